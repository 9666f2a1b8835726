#!/usr/bin/env python3
"""Plants each bug of tests/fuzz/planted into a copy of the tree, and lets the fuzzer look for it.

Usage: planted_bugs.py [--check] [--seed-from N] [--count N] [--jobs N] [--tree FOLDER] [BUG ...]. The table in
tests/fuzz/planted/README.md says with which options of tandem_fuzz each bug is looked for. The copy is kept, so that each
bug compiles only what it changes. Prints a line per bug; exit status 1 if one is not found. A program that fails without the
bug, too, does not count.

--check only compares the table with the folder, and asks whether every patch still applies.
"""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLANTED = pathlib.PurePath("tests/fuzz/planted")
COPIED = (
    "CMakeLists.txt", "CMakePresets.json", "benchmarks", "cli", "cmake", "examples", "include", "src", "tests",
)
ROW = re.compile(r"^\| \[(?P<name>\w+)\]\((?P<file>[^)]+)\) \| (?P<classes>[^|]+) \| `(?P<options>[^`|]+)` \| (?P<breaks>.+) \|$")
FAILURE = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)


class Bug:
    def __init__(self, row):
        self.name, self.classes, self.breaks = row["name"], row["classes"].strip(), row["breaks"]
        self.options = shlex.split(row["options"])
        self.patch = PLANTED / row["file"]


def read_table(root):
    lines = (root / PLANTED / "README.md").read_text().splitlines()
    return [Bug(match) for match in map(ROW.match, lines) if match]


def apply(patch, tree, *options):
    """What git says against it; empty if it applies. From outside of the repository that the tree may lie in."""
    command = ["git", "apply", f"--directory={tree.relative_to(tree.anchor)}", *options, str(patch)]
    done = subprocess.run(command, cwd=tree.anchor, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip() or "git apply failed"


def check(root):
    """One line per difference between table, patches and tree."""
    bugs, problems = read_table(root), []
    listed, there = {bug.patch.name for bug in bugs}, {file.name for file in (root / PLANTED).glob("*.patch")}
    problems += [f"{PLANTED / name}: is not in the table of README.md" for name in sorted(there - listed)]
    problems += [f"{PLANTED}/README.md: there is no {name}" for name in sorted(listed - there)]
    for bug in bugs:
        if bug.patch.name not in there:
            continue
        if bug.patch.name != f"{bug.name}.patch":
            problems.append(f"{PLANTED}/README.md: {bug.name} is in {bug.patch.name}")
        first = (root / bug.patch).read_text().split("\n", 1)[0]
        if not first or first.startswith("---"):
            problems.append(f"{bug.patch}: the first line must say what it breaks")
        if why := apply(root / bug.patch, root, "--check"):
            problems.append(f"{bug.patch}: does not apply: {why.splitlines()[0]}")
    return problems or ([] if bugs else [f"{PLANTED}/README.md: no table of bugs"])


def files_below(root):
    for name in COPIED:
        top = root / name
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(root)


def make_copy(root, tree):
    """Leaves alone what is as it should be, so that it is not compiled again."""
    wanted = set(files_below(root))
    for file in set(files_below(tree)) - wanted:
        (tree / file).unlink()
    for file in wanted:
        content, target = (root / file).read_bytes(), tree / file
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    if not (tree / ".venv").exists() and (root / ".venv").exists():
        (tree / ".venv").symlink_to((root / ".venv").resolve())


def build(tree, jobs, what):
    log = tree / "build/build.log"
    with open(log, "w") as out:
        commands = [["cmake", "--build", "--preset", "dev", "-j", str(jobs), "-t", "tandem_fuzz"]]
        if not (tree / "build/dev/build.ninja").exists():
            torch = os.environ.get("TORCH_DIR", "")
            commands.insert(0, ["cmake", f"-DTORCH_DIR={torch}", "--preset", "dev"])
        for command in commands:
            if subprocess.run(command, cwd=tree, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                sys.exit(f"planted_bugs: {what} does not build: see {log}")
    return tree / "build/dev/bin/tandem_fuzz"


def fuzz(program, seed, count, options):
    """The first seed that fails, and why; nothing if none does."""
    command = [str(program), "--seed-from", str(seed), "--count", str(count), "--first-failure", "--quiet", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    failure = FAILURE.search(done.stdout)
    if (done.returncode == 0) != (failure is None):
        sys.exit(f"planted_bugs: {shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return (int(failure[1]), failure[2]) if failure else None


def look_for(program, unchanged, bug, seed_from, count):
    """The number of the first program that fails with the bug and not without; None if there is none."""
    seed, end = seed_from, seed_from + count
    while seed < end:
        found = fuzz(program, seed, end - seed, bug.options)
        if found is None:
            return None
        if fuzz(unchanged, found[0], 1, bug.options) is None:
            return found
        seed = found[0] + 1
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="only whether the patches apply")
    parser.add_argument("--seed-from", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=10000, help="how many programs until a bug counts as not found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of the build")
    parser.add_argument("--tree", type=pathlib.Path, default=ROOT / "build/planted/tree", help="where the copy lies")
    parser.add_argument("bugs", nargs="*", help="only these")
    arguments = parser.parse_args()
    if problems := check(ROOT):
        sys.exit("\n".join(problems))
    if arguments.check:
        return 0
    bugs = read_table(ROOT)
    if unknown := set(arguments.bugs) - {bug.name for bug in bugs}:
        sys.exit(f"planted_bugs: there is no {' '.join(sorted(unknown))}")
    tree = arguments.tree.resolve()
    if tree == ROOT:
        sys.exit("planted_bugs: --tree: the copy is changed, so it must lie elsewhere")
    unchanged = tree / "build/tandem_fuzz"
    (tree / "build").mkdir(parents=True, exist_ok=True)
    make_copy(ROOT, tree)
    shutil.copy2(build(tree, arguments.jobs, "the copy of the tree"), unchanged)
    print(f"seeds {arguments.seed_from} to {arguments.seed_from + arguments.count - 1}\n")
    print(f"{'bug':<22}{'class':<10}{'found in program':>18}{'seconds':>9}  difference", flush=True)
    missed = []
    for bug in bugs:
        if arguments.bugs and bug.name not in arguments.bugs:
            continue
        make_copy(ROOT, tree)
        if why := apply(ROOT / bug.patch, tree):
            sys.exit(f"{bug.patch}: {why}")
        program, start = build(tree, arguments.jobs, bug.name), time.monotonic()
        found = look_for(program, unchanged, bug, arguments.seed_from, arguments.count)
        if found is None:
            missed.append(bug.name)
        number, why = (str(found[0] - arguments.seed_from + 1), found[1]) if found else ("not found", "")
        seconds = time.monotonic() - start
        print(f"{bug.name:<22}{bug.classes:<10}{number:>18}{seconds:>9.0f}  {why[:120]}", flush=True)
    make_copy(ROOT, tree)
    if missed:
        print(f"\nnot found: {' '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
