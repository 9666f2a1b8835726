"""Runs each program compiled and as its eager twin, and compares what they print.

On the backend eager every line must be the same. On llvm, numbers may differ in their last digits, and
a little more with each step that they have gone through. A program that has a file in expected/ must end
with an error that contains each line of this file, and must have printed what its twin prints until then.
"""

import argparse
import concurrent.futures
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 2e-4  # of llvm: steps of training enlarge what rounds differently


def run(program, backend):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
    environment |= {"TANDEM_BACKEND": backend, "TANDEM_STRICT": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([program], capture_output=True, text=True, env=environment, timeout=600)


def close(a, b, tolerance):
    if a == b:
        return True
    try:
        return math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


def differences(eager, compiled, tolerance):
    """Of two texts, line by line, word by word."""
    for i, (a, b) in enumerate(zip(eager, compiled), start=1):
        words_a, words_b = a.split(), b.split()
        same = len(words_a) == len(words_b) and all(close(x, y, tolerance) for x, y in zip(words_a, words_b))
        if not same:
            yield f"line {i}: eager {a!r}, compiled {b!r}"


def check(name, folder, backend):
    eager, compiled = (run(folder / f"stranger_{name}_{kind}", backend) for kind in ("eager", "compiled"))
    if eager.returncode != 0 or not eager.stdout:
        return [f"the eager twin failed ({eager.returncode}): {eager.stderr[-500:]}"]
    expected = HERE / "expected" / f"{name}.txt"
    a, b = eager.stdout.splitlines(), compiled.stdout.splitlines()
    found = list(differences(a, b, 0 if backend == "eager" else TOLERANCE))
    if not expected.exists():
        if compiled.returncode != 0:
            found.append(f"ended with {compiled.returncode}: {compiled.stderr[-1500:]}")
        if len(a) != len(b):
            found.append(f"{len(b)} lines instead of {len(a)}")
        return found
    if compiled.returncode == 0:
        found.append("ran to its end, but an error is expected")
    found += [f"the error does not say {line!r}: {compiled.stderr[-1500:]}"
              for line in expected.read_text().splitlines() if line not in compiled.stderr]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("programs", nargs="+")
    arguments = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: check(name, arguments.bin, arguments.backend), arguments.programs))
    for name, found in zip(arguments.programs, results):
        print(f"{'failed' if found else 'passed'}  {name}")
        for line in found[:5]:
            print(f"    {line}")
    failed = sum(bool(found) for found in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
