#!/usr/bin/env python3
"""Compares every #include of the source tree with src/layers.txt.

Usage: check_layers.py [ROOT]. Prints one line per broken rule; exit status 1 if there is one.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
BORDER = ["capi", "cli", "examples", "python"]  # see include/tandem only
# Headers of libtorch that few folders may use, by prefix.
RESTRICTED = {
    "torch/csrc/autograd/": {"libtorch", "tracing", "signature", "joint", "runtime"},
    # hooks; Meta kernels where libtorch has none; forms of ops that the text of a graph may name
    "torch/library.h": {"ir", "ops", "tracing"},
}
# Seconds of compile time for everyone who includes our header.
HEAVY = {"torch/torch.h", "torch/nn.h", "torch/all.h", "ATen/ATen.h"}


def read_layers(path):
    """Folder -> the folders that it may include."""
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines() if ":" not in line.split("#")[0]]
    lines = [line for line in lines if line]
    allowed, above, capture = {}, set(), set()
    for line in lines:
        marked = {name[1:] for name in line if name.startswith("!")}
        names = {name.lstrip("!") for name in line}
        sees_capture = marked or line is lines[-1]
        for name in names:
            allowed[name] = {name} | (above if sees_capture else above - capture)
        above |= names
        capture |= marked
    return allowed


def read_sublayers(path):
    """Folder -> its sub-folders by rank, "." for its own files; from lines `folder: a b | c`."""
    ranks = {}
    for line in path.read_text().splitlines():
        name, colon, rest = line.split("#")[0].partition(":")
        if colon:
            ranks[name.strip()] = {part: rank for rank, group in enumerate(rest.split("|")) for part in group.split()}
    return ranks


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp", ".inc"))


def part(path):
    """The sub-folder of a file, "." for none: loops/ir/loop_ir.h is in ir."""
    return path.parts[1] if len(path.parts) > 2 else "."


def check(root):
    allowed = read_layers(root / "src" / "layers.txt")
    ranks = read_sublayers(root / "src" / "layers.txt")
    problems = []

    def includes(path):
        text = path.read_text(errors="replace")
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(2)) + 1
            yield f"{path.relative_to(root)}:{line}", match[1] == '"', match[2]

    def report(where, message):
        problems.append(f"{where}: {message}")

    for path in sources(root / "src"):
        folder = path.relative_to(root / "src").parts[0]
        if folder not in allowed:
            report(path.relative_to(root), f"folder {folder} is not in src/layers.txt")
            continue
        rank = ranks.get(folder, {})
        own = part(path.relative_to(root / "src"))
        if rank and own not in rank:
            report(path.relative_to(root), f"folder {folder}/{own} is not in src/layers.txt")
            continue
        for where, quoted, name in includes(path):
            first = name.split("/")[0]
            if quoted and rank and first == folder and rank.get(part(pathlib.PurePath(name)), 0) > rank[own]:
                report(where, f"{folder}/{own} may not include {folder}/{part(pathlib.PurePath(name))}")
            if quoted and first != "tandem" and ("/" not in name or first not in allowed):
                report(where, f'"{name}" is not spelled from src/ or include/')
            elif quoted and first in allowed and first not in allowed[folder]:
                report(where, f"{folder} may not include {first}")
            if path.suffix == ".h" and name in HEAVY:
                report(where, f"{name} is too heavy for a header: include what is used")
            if folder == "base" and re.match(r"(ATen|c10|torch)/", name):
                report(where, "base uses the standard library only")
            for prefix, folders in RESTRICTED.items():
                if name.startswith(prefix) and folder not in folders:
                    report(where, f"{name} belongs to {', '.join(sorted(folders))}")

    for path in sources(root / "include"):
        for where, quoted, name in includes(path):
            if (quoted and not name.startswith(("tandem/", "tandem-c/"))) or name.split("/")[0] in allowed:
                report(where, f"a public header includes {name}, which is not public")
            if name in HEAVY:
                report(where, f"{name} is too heavy for a header: include what is used")

    for path in (p for folder in BORDER for p in sources(root / folder)):
        for where, quoted, name in includes(path):
            own = quoted and ((path.parent / name).exists() or (root / name).exists())
            if name.split("/")[0] in allowed and not own:
                report(where, f"programs see include/tandem only, not {name}")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    problems = check(root)
    print("\n".join(problems) if problems else "layers: every include is allowed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
