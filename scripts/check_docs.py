#!/usr/bin/env python3
"""Checks that relative links and #headings in the Markdown files resolve.

Usage: check_docs.py [ROOT]. Prints one line per broken link; exit status 1 if there is one.
Addresses on the web are not visited.
"""

import pathlib
import re
import sys
import urllib.parse

LINK = re.compile(r"\[[^\]\[]*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def blank(match):
    """Same number of lines, no text: code is not searched for links."""
    return "\n" * match[0].count("\n")


def anchors(path):
    """The anchors of a page's headings, made as the usual Markdown viewers make them."""
    seen = {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", FENCE.sub(blank, path.read_text()), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        yield name if count == 0 else f"{name}-{count}"


def check(root):
    problems = []
    pages = sorted(root.glob("*.md"))
    for folder in ("docs", "benchmarks", "examples", "tests"):
        pages += sorted((root / folder).rglob("*.md"))
    for page in pages:
        text = CODE.sub("", FENCE.sub(blank, page.read_text()))
        for match in [*LINK.finditer(text), *REFERENCE.finditer(text)]:
            target = match[1].strip("<>")
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            where = f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
            name, _, anchor = target.partition("#")
            file = (page.parent / urllib.parse.unquote(name)).resolve() if name else page
            if not file.exists():
                problems.append(f"{where}: {target}: no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                problems.append(f"{where}: {target}: no such heading")
    return problems, len(pages)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    problems, pages = check(root)
    print("\n".join(problems) if problems else f"docs: all links of {pages} pages resolve")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
