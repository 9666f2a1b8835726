"""Compiles programs that must not compile and looks for the sentences in the compiler's output.

Usage: static_asserts_test.py <source> <command that compiles it, without the file>; run by CTest.
What is in refused_calls.cpp may have at most ten lines of output for each expectation.
"""

import pathlib
import subprocess
import sys

MOST_LINES = 10


def main(source, *command):
    source = pathlib.Path(__file__).with_name(source)
    arguments = [*command, "-fsyntax-only", str(source)]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    # A compiler may break a long string literal in its message into quoted pieces.
    output = " ".join(result.stderr.split()).replace('" "', "")
    problems = [] if result.returncode != 0 else ["it compiles"]
    lines = source.read_text().splitlines()
    expected = 0
    for number, line in enumerate(lines, start=1):
        _, mark, text = line.strip().partition("// expect: ")
        if not mark:
            continue
        expected += 1
        if text not in output:
            problems.append(f"{source.name}:{number}: the compiler does not say: {text}")
        if f"{source.name}:{number + 1}:" not in output:
            problems.append(f"{source.name}:{number + 1}: the compiler does not mention this line")
    printed = len(result.stderr.splitlines())
    print(f"{source.name}: {expected} expectations, {printed} lines of output")
    if source.name == "refused_calls.cpp" and printed > MOST_LINES * expected:
        problems.append(f"{source.name}: more than {MOST_LINES} lines for each expectation")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
