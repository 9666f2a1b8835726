"""Compiles static_asserts.cpp and looks for the texts of the static_asserts.

Usage: static_asserts_test.py <command that compiles it, without the file>; run by CTest.
"""

import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_name("static_asserts.cpp")


def main(command):
    arguments = [*command, "-fsyntax-only", str(SOURCE)]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    # A compiler may break a long string literal in its message into quoted pieces.
    output = " ".join(result.stderr.split()).replace('" "', "")
    problems = [] if result.returncode != 0 else ["it compiles"]
    lines = SOURCE.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        _, mark, text = line.strip().partition("// expect: ")
        if not mark:
            continue
        if text not in output:
            problems.append(f"{SOURCE.name}:{number}: the compiler does not say: {text}")
        if f"{SOURCE.name}:{number + 1}:" not in output:
            problems.append(f"{SOURCE.name}:{number + 1}: the compiler does not mention this line")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
