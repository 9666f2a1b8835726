#!/usr/bin/env python3
"""Runs every benchmark of a build, keeps the results as JSON and prints a summary. `make bench` calls it.

Usage: run_all.py --bin build/release/bin --out build/release/bench [--peer .venv/bin/python]
                  [--google NAME ...] [--compare NAME ...]
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def summarise(path):
    """One line per case of a result file."""
    data = json.loads(path.read_text())
    if "benchmarks" in data:  # Google Benchmark
        for case in data["benchmarks"]:
            if case.get("run_type") != "aggregate":
                yield f"{case['name']:<44} {case['real_time']:>12.4g} {case['time_unit']}"
    elif "cases" in data:
        for case in data["cases"]:
            if "speed" in case:
                yield (f"{data['benchmark'] + ': ' + case['name']:<44} {case['speed']:>12.3f} times eager's speed"
                       f" ({case['speed_low']:.3f} to {case['speed_high']:.3f})")
            else:
                yield f"{data['benchmark'] + ': ' + case['name']:<44} {case['ratio']:>12.4g} of an at::add"
    else:
        yield f"{'capture: 12 blocks':<44} {data['tandem']['capture_ms']:>12.4g} ms"
        if "comparison" in data:
            yield f"{'capture: against aot_function':<44} {data['comparison']['ratio']:>12.4g} times as fast"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--peer", default="")
    parser.add_argument("--google", nargs="*", default=[], help="programs made with Google Benchmark")
    parser.add_argument("--compare", nargs="*", default=[], help="programs that take --out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    commands = {name: [options.bin / name, f"--benchmark_out={options.out / name}.json"] for name in options.google}
    commands |= {name: [options.bin / name, "--out", options.out / f"{name}.json"] for name in options.compare}
    commands["capture"] = [sys.executable, HERE / "run_capture.py", "--program", options.bin / "capture_bench",
                           "--peer", options.peer, "--out", options.out / "capture.json"]
    failed = []
    for name, command in commands.items():
        print(f"\n=== {name}", flush=True)
        if subprocess.run(list(map(str, command))).returncode != 0:
            failed.append(name)

    print(f"\n=== summary (JSON in {options.out})")
    for name in commands:
        if name not in failed:
            print("\n".join(summarise(options.out / f"{name}.json")))
    for name in failed:
        print(f"{name}: FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
