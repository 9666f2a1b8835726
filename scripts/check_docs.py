#!/usr/bin/env python3
"""Compares the Markdown pages with each other and with the code.

Usage: check_docs.py [ROOT]. Prints one line per difference; exit status 1 if there is one. Each
function below is one check. What needs the library (printed graphs, programs, guards) is compared
by tests/golden/stage_pages_test.cpp instead. Addresses on the web are not visited.
"""

import fnmatch
import os
import pathlib
import re
import signal
import sys
import urllib.parse

LINK = re.compile(r"\[[^\]\[]*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

SOURCES = (".h", ".cpp", ".in", ".py", ".sh", ".txt", ".cmake", ".json", ".map", ".supp", ".tdm")
# Pages that a program writes, and the history of the project: their words are not compared with the code.
NOT_READ = ("CHANGELOG.md", "tests/conformance/STATUS.md")
# Namespaces whose names are not ours.
FOREIGN = {"at", "aten", "c10", "mylib", "nn", "prims", "shop", "std", "torch", "F", "tandem_functional"}
# Names of libtorch, Python and pip that our code does not use.
THEIRS = {
    "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "ReshapeAliasBackward0", "ViewBackward0", "collect_next_edges", "fft_hfft",
    "index_put", "linalg_eigvals", "max_pool1d", "saved_tensors_hooks", "setFlushDenormal",
}
# Files of programs that a page imagines, that a program writes, or that belong to other projects.
IMAGINED_FILES = {
    "net.cpp", "train.cpp", "step.cpp", "effects.cpp", "export-module.cpp", "mlp.cpp", "program.cpp", "f.cpp", "graph.txt", "why.txt",
    "derivatives.yaml", "g.tdm", "broken.tdm", "clean.tdm", "joint.tdm", "table.txt", "export_joint.00-joint.tdm",
}


class Tree:
    """The files of a checkout, without what is built."""

    def __init__(self, root):
        self.root = root
        self.files = []
        for folder, folders, files in os.walk(root):
            here = pathlib.Path(folder).relative_to(root)
            skipped = ("build", "demo-out", "shared") if here == pathlib.Path(".") else ("__pycache__",)
            folders[:] = sorted(f for f in folders if f not in skipped and not f.startswith("."))
            self.files += [(here / file).as_posix() for file in sorted(files)]
        self.folders = {parent.as_posix() for file in self.files for parent in pathlib.PurePath(file).parents}
        self.names = {file.rsplit("/", 1)[-1] for file in self.files}
        self.texts = {}

    def text(self, file):
        """Empty if there is no such file."""
        if file not in self.texts:
            path = self.root / file
            self.texts[file] = path.read_text(errors="replace") if path.is_file() else ""
        return self.texts[file]

    def sources(self, *folders):
        return [f for f in self.files if f.endswith(SOURCES) and (not folders or f.split("/")[0] in folders)]

    def words(self, file):
        return set(IDENTIFIER.findall(self.text(file)))

    def pages(self):
        folders = ("docs/", "benchmarks/", "examples/", "tests/")
        return [f for f in self.files if f.endswith(".md") and ("/" not in f or f.startswith(folders))]

    def read_pages(self):
        return [page for page in self.pages() if page not in NOT_READ]


def blank(match):
    """Same number of lines, no text: code is not searched for links."""
    return "\n" * match[0].count("\n")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def spans(tree, page):
    """The `code` of a page outside of fences, with the line of each."""
    text = FENCE.sub(blank, tree.text(page))
    for match in CODE.finditer(text):
        yield f"{page}:{line_of(text, match.start())}", match[0][1:-1]


def table(text, header):
    """The rows below a line that starts with `| header |`, as lists of cells, with their lines."""
    start = re.search(rf"^\| {re.escape(header)} \|.*\n\|[-| :]+\|\n", text, re.MULTILINE)
    if not start:
        return []
    rows = []
    for i, line in enumerate(text[start.end():].split("\n")):
        if not line.startswith("|"):
            break
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        rows.append((line_of(text, start.end()) + i, cells))
    return rows


def compare(where, what, page, code):
    """One line for each thing that only one side has."""
    missing = [f"{where}: {name} is missing ({what})" for name in code if name not in page]
    return missing + [f"{where}: {name} does not exist ({what})" for name in page if name not in code]


# --- links -----------------------------------------------------------------------------------------


def anchors(text):
    """The anchors of a page's headings, made as the usual Markdown viewers make them."""
    seen = {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", FENCE.sub(blank, text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        yield name if count == 0 else f"{name}-{count}"


def links(tree, page):
    text = CODE.sub("", FENCE.sub(blank, tree.text(page)))
    for match in [*LINK.finditer(text), *REFERENCE.finditer(text)]:
        target = match[1].strip("<>")
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(page), urllib.parse.unquote(name))) if name else page
        yield f"{page}:{line_of(text, match.start())}", target, file, anchor


def check_links(tree):
    for page in tree.pages():
        for where, target, file, anchor in links(tree, page):
            if not (tree.root / file).exists():
                yield f"{where}: {target}: no such file"
            elif anchor and file.endswith(".md") and anchor not in anchors(tree.text(file)):
                yield f"{where}: {target}: no such heading"


def check_every_page_is_linked(tree):
    """README.md is the table of contents."""
    linked = {file for _, _, file, _ in links(tree, "README.md")}
    examples = [f for f in tree.files if re.fullmatch(r"examples/\d\d_\w+\.cpp", f)]
    for page in [*tree.pages(), *examples]:
        if page.startswith(("docs/", "examples/")) and page not in linked:
            yield f"README.md: no link to {page}"


# --- names -----------------------------------------------------------------------------------------


def expand(pattern):
    """`a.{h,cpp}` -> a.h, a.cpp"""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        return [pattern]
    return [name for part in match[1].split(",") for name in expand(pattern.replace(match[0], part, 1))]


def exists(tree, name):
    """A path from the root, from src/ or from include/; the ending may be left out. `*` stands for anything."""
    known = tree.files + sorted(tree.folders)
    for base in ("", "src/", "include/", "include/tandem/", "tests/", "docs/"):
        path = base + name.rstrip("/")
        if any(fnmatch.fnmatchcase(one, path + end) for one in known for end in ("", ".h", ".cpp")):
            return True
    return False


def check_files(tree):
    """Every file and folder that a page names is there."""
    tops = {file.split("/")[0] for file in tree.files if "/" in file}
    tops |= {folder[4:] for folder in tree.folders if re.fullmatch(r"src/[^/]+", folder)}
    for page in tree.read_pages():
        for where, span in spans(tree, page):
            name = span.split(" ")[0]
            if "<" in name or "my_" in name or not re.fullmatch(r"[\w./*{},-]+", name):
                continue
            if "/" in name:
                first, _, rest = name.partition("/")
                if first not in tops or rest == "":
                    continue
                if first == "passes" and rest in pass_names(tree):
                    continue  # a step in the timings
                if first == "build":
                    continue
                for one in expand(name):
                    if not exists(tree, one):
                        yield f"{where}: {one}: no such file or folder"
            elif name.endswith((".h", ".cpp", ".py", ".tdm", ".md", ".cmake", ".sh", ".txt")):
                for one in expand(name):
                    if one not in IMAGINED_FILES and not fnmatch.filter(tree.names, one):
                        yield f"{where}: {one}: no such file"
        for fence in FENCE.finditer(tree.text(page)):
            for match in re.finditer(r"(?<![\w./*-])[\w-]+\.(?:cpp|h|py)\b", fence[0]):
                if match[0] not in IMAGINED_FILES and match[0] not in tree.names:
                    yield f"{page}:{line_of(tree.text(page), fence.start() + match.start())}: {match[0]}: no such file"


def check_names(tree):
    """Every `name_with_underscore`, `CamelCase`, `function()` and `a::b` of a page occurs in the code."""
    code = {file: tree.words(file) for file in tree.sources() if file != "scripts/check_docs.py"}
    code["Makefile"] = tree.words("Makefile")
    words = set().union(*code.values())
    for page in tree.read_pages():
        for where, span in spans(tree, page):
            for name in re.findall(r"(?<![\w.:/%~-])[A-Za-z_]\w*(?:::\w+)+", span):
                *scope, last = name.split("::")
                if scope[0] in FOREIGN:
                    continue
                if not any(last in found and scope[-1] in found for found in code.values()):
                    yield f"{where}: {name} does not occur in the code"
            if not re.fullmatch(r"[A-Za-z_]\w*(\(\))?", span):
                continue
            name = span.removesuffix("()")
            telling = "_" in name.strip("_") or span.endswith("()") or re.search(r"[a-z][A-Z]", name)
            if telling and name not in words and name not in THEIRS:
                yield f"{where}: {name} does not occur in the code"


# --- passes, options, commands -----------------------------------------------------------------------


def pass_names(tree):
    return re.findall(r'PassInfo\{\s*"([\w-]+)"', tree.text("src/passes/registry.cpp"))


def check_passes(tree):
    """The table of passes, and every pass that is named where passes are chosen."""
    names = pass_names(tree)
    page = "docs/stages/passes.md"
    rows = table(tree.text(page), "pass")
    shown = [name for _, cells in rows for name in re.findall(r"`([\w-]+)`", cells[0])]
    yield from compare(page, "src/passes/registry.cpp", shown, names)
    imagined = {"a", "b", "my-pass", "..."}
    for page in tree.read_pages():
        text = tree.text(page)
        for match in re.finditer(r"(?:--passes[= ]|TANDEM_PASSES=|--dump-after=)([\w,.-]+)", text):
            for name in match[1].rstrip(".").split(","):
                name = name.removeprefix("-")
                if name and name not in [*names, *imagined, "all", "none"]:
                    yield f"{page}:{line_of(text, match.start())}: no pass is called {name}"


def check_options(tree):
    """The table of options is the struct: names, order, defaults, environment and its words."""
    page = "docs/reference/options.md"
    struct = re.search(r"^struct Options \{\n(.*?)^\};", tree.text("include/tandem/options.h"), re.M | re.S)
    if not struct:
        return
    fields = {}
    for line in struct[1].split("\n"):
        match = re.match(r"\s+([\w:]+(?:<.*>)?)\s+([^;=]+?)(?:\s*=\s*(.*?))?;", line)
        for name in (match[2].split(",") if match else []):
            fields[name.strip().removesuffix("{}")] = match[3]
    chosen = re.search(r'^BackendRef::BackendRef\(\) : BackendRef\((".*?")\)',
                       tree.text("src/partition/default_partition.cpp"), re.M)
    if chosen and "backend" in fields:
        fields["backend"] = chosen[1]
    source = tree.text("src/pipeline/settings/environment.cpp")
    variables = dict(re.findall(r'^    \{"(TANDEM_\w+)",\s*"([^"]*)"', source, re.MULTILINE))
    rows = table(tree.text(page), "Field")
    shown = [cells[0].strip("`") for _, cells in rows]
    yield from compare(page, "struct Options", shown, list(fields))
    if sorted(shown) == sorted(fields) and shown != list(fields):
        yield f"{page}: the options are not in the order of struct Options"
    for line, cells in rows:
        name, default = cells[0].strip("`"), fields.get(cells[0].strip("`"))
        written = cells[1].strip("`")
        if default is not None and written != default:
            yield f"{page}:{line}: the default of {name} is {default}"
        if default is None and name in fields and written not in ("none", "empty"):
            yield f"{page}:{line}: the default of {name} is none or empty"
        variable = f"TANDEM_{name.upper()}"
        if (variable in variables) != (f"`{variable}`" in cells[2]):
            yield f"{page}:{line}: {variable} is {'missing' if variable in variables else 'not read'}"
        words = re.findall(r"\w+", re.sub(r"\b(or|the name of a backend)\b", "", variables.get(variable, "")))
        for word in words:
            if not re.search(rf"\b{word}\b", cells[2]):
                yield f"{page}:{line}: {variable} also takes {word}"
    for variable in variables:
        if variable not in tree.text(page):
            yield f"{page}: {variable} is missing"
    not_built = re.search(r"^## What is not built yet\n\n(.*?)\n\n", tree.text(page), re.M | re.S)
    shown = [name for name in re.findall(r"`(\w+)`", not_built[1]) if name in fields] if not_built else []
    refused = re.findall(r"require_default\(!?options\.(\w+)", tree.text("src/pipeline/settings/options.cpp"))
    yield from compare(page, "not built yet, src/pipeline/settings/options.cpp", shown, refused)


def check_variables(tree):
    """Every TANDEM_ name of a page is read by something."""
    words = set().union(*(tree.words(file) for file in tree.sources() if not file.startswith("scripts/check_docs")))
    words |= tree.words("Makefile")
    for page in tree.read_pages():
        text = tree.text(page)
        for match in re.finditer(r"\bTANDEM_[A-Z_]+\b", text):
            if match[0] not in words:
                yield f"{page}:{line_of(text, match.start())}: {match[0]} does not occur in the code"


def check_tools(tree):
    """Commands and options of our programs, targets of make, presets of CMake."""
    page, main = "docs/reference/cli.md", tree.text("cli/main.cpp")
    commands = re.findall(r'add_subcommand\("([\w-]+)"', main)
    yield from compare(page, "cli/main.cpp", re.findall(r"^## tandem (\w+)$", tree.text(page), re.M), commands)
    for page, source in (("docs/reference/cli.md", "cli/main.cpp"), ("docs/how-to/fuzz.md", "tests/fuzz/fuzz_main.cpp")):
        options = re.findall(r"--[\w-]+", " ".join(re.findall(r'add_(?:option|flag)\("([^"]*)"', tree.text(source))))
        shown = [*dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][\w-]*", tree.text(page)))]
        yield from compare(page, source, [o for o in shown if o != "--help"], options)
    makefile = tree.text("Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    presets = set(re.findall(r'"name": "([\w-]+)"', tree.text("CMakePresets.json")))
    for page in tree.read_pages():
        text = tree.text(page)
        for match in re.finditer(r"(?:`|^)make ([a-z][\w-]*)(?=`|$| [A-Z]+=|\s+#)", text, re.MULTILINE):
            if match[1] not in targets:
                yield f"{page}:{line_of(text, match.start())}: make {match[1]}: no such target"
        for match in re.finditer(r"--preset ([\w-]+)", text):
            if match[1] not in presets:
                yield f"{page}:{line_of(text, match.start())}: no preset is called {match[1]}"
        for match in re.finditer(r"build/(?:<preset>|[\w-]+)/bin/(\w+)", text):
            name = match[1]
            made = any(re.search(rf"\b{name}\b", tree.text(f)) for f in tree.sources() if f.endswith("CMakeLists.txt"))
            folder = name.removeprefix("tandem_test_").replace("_", "/", 1 if "unit_" in name else 0)
            if not made and f"tests/{folder}" not in tree.folders and name != "tandem":
                yield f"{page}:{line_of(text, match.start())}: no program is called {name}"


# --- errors ----------------------------------------------------------------------------------------


def literals(text):
    """String literals, neighbours joined as the compiler joins them, raw ones too."""
    token = re.compile(r'R"(\w*)\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*)"|(//[^\n]*)|(\s+)|(.)', re.DOTALL)
    joined, found = None, []
    for match in token.finditer(text):
        if match[1] is not None:
            joined = (joined or "") + match[2]
        elif match[3] is not None:
            joined = (joined or "") + re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[3])
        elif match[6] is not None and joined is not None:
            found.append(joined)
            joined = None
    return found


def raised_texts(tree):
    """Per statement of the sources: its literals up to the first detail line."""
    found = []
    for file in tree.sources("src", "include"):
        if not file.endswith((".h", ".cpp")) or '"' not in tree.text(file):
            continue
        for statement in re.split(r";\s*\n", tree.text(file)):
            pieces = []
            for piece in literals(statement):
                if piece.startswith("\n"):
                    break
                pieces.append(piece.split("\n")[0])
            if pieces:
                found.append(pieces)
    return found


def share_of(text, pieces):
    """How much of a text these literals make, in order."""
    matched = at = 0
    for piece in (piece.rstrip() for piece in pieces):
        place = text.find(piece, at) if len(piece) > 2 else -1
        if place >= 0:
            matched += len(piece)
            at = place + len(piece)
    return matched / len(text)


def check_labels(tree):
    """The labels of the lines below an error."""
    page = "docs/reference/errors.md"
    made = set()
    for file in tree.sources("src"):
        made |= set(re.findall(r"\\n  ([a-z]+): ", tree.text(file)))
        for choice in re.findall(r"detail_line\(([^,]*),", tree.text(file)):
            made |= set(re.findall(r'"([a-z]+)"', choice))
    made.discard("miss")  # of Stats
    shown = [name for _, cells in table(tree.text(page), "label") for name in re.findall(r"`(\w+)`", cells[0])]
    if shown:
        yield from compare(page, "labels of errors in src/", shown, sorted(made))


def check_errors(tree):
    """Every text of an error or of a miss is in a test, or is made by a statement of the code; every stage has a row."""
    def without_numbers(text):
        return re.sub(r"\d+", "0", text)

    tests = [text for file in tree.sources("tests") for text in literals(tree.text(file))]
    tested = without_numbers("\n".join(tests))
    raised = raised_texts(tree)
    pages = (("docs/reference/errors.md", "stage", 2), ("docs/how-to/export-a-module.md", "error", 0),
             ("docs/how-to/why-compiled-again.md", "reason", 0))
    for page, header, column in pages:
        for line, cells in table(tree.text(page), header):
            for text in re.findall(r"`([^`]+)`", cells[column])[:1 if column else None]:
                short = text.replace("...", "").strip(" ,")
                if without_numbers(short) in tested:
                    continue
                made = [*raised, *([one] for one in tests)]
                if max((share_of(one, pieces) for pieces in made for one in (text, short)), default=0) < 0.6:
                    yield f"{page}:{line}: nothing raises: {text}"
    stages = set()
    for file in tree.sources("src", "include"):
        text = tree.text(file)
        stages |= set(re.findall(r'TANDEM_REQUIRE\((?:[^";]|"[^"]*"(?=\)))*?,\s*"([a-z]+)",', text))
        stages |= set(re.findall(r'TANDEM_UNSUPPORTED\(\s*"([a-z]+)"', text))
        stages |= set(re.findall(r'throw (?:User|Unsupported)Error\(\s*"([a-z]+)"', text))
    rows = table(tree.text("docs/reference/errors.md"), "stage")
    shown = {name for _, cells in rows for name in re.findall(r"`(\w+)`", cells[0])}
    for stage in sorted(stages - shown) if rows else []:
        yield f"docs/reference/errors.md: the stage {stage} has no row"


# --- lists -----------------------------------------------------------------------------------------


def check_layers(tree):
    """The layers on the page of the architecture, and a word on every folder."""
    page = "docs/architecture.md"
    if page not in tree.files:
        return
    block = re.search(r"^## Layers\n.*?^```\n(.*?)^```", tree.text(page), re.M | re.S)
    lines = [line.split("#")[0] for line in tree.text("src/layers.txt").split("\n")]
    names = [name for line in lines if ":" not in line for name in line.replace("!", " ").split()]
    if names and block:
        above = block[1].split("  ----")[0].split("\n")
        shown = [word for line in above for word in re.findall(r"[a-z_]+", line[:21])]
        if shown != names:
            yield f"{page}: the layers are {' '.join(names)}, the page has {' '.join(shown)}"
    for folder in sorted(tree.folders):
        if re.fullmatch(r"src(/\w+){1,2}", folder):
            name = folder.removeprefix("src/")
            if not re.search(rf"\b{name}\b" if "/" not in name else rf"\b{name}/?\b", tree.text(page)):
                yield f"{page}: nothing about {folder}"


def check_glossary(tree):
    page = "docs/glossary.md"
    words = [(line, cells[0]) for line, cells in table(tree.text(page), "word")]
    for (_, a), (line, b) in zip(words, words[1:]):
        if a.lower() >= b.lower():
            yield f"{page}:{line}: {b} comes before {a}"
    others = [f for f in tree.files if f.endswith((".md", ".h", ".cpp")) and f != page]
    used = " ".join(" ".join(tree.text(file).lower().split()) for file in others)
    for line, word in words:
        for one in word.lower().split(", "):
            if one not in used:
                yield f"{page}:{line}: nobody else says {one}"


def check_ops(tree):
    """Facts, costs and Tandem's own ops on the page of the table of ops."""
    page = "docs/reference/ops.md"
    text = tree.text(page)
    facts = [f for f in re.findall(r"^  (\w+) = 1 <<", tree.text("src/ops/op_row.h"), re.M)]
    shown = [name for _, cells in table(text, "fact") for name in re.findall(r"`(\w+)`", cells[0])]
    yield from compare(page, "src/ops/op_row.h", shown, facts)
    schema = re.compile(r"library\.def\(\s*\"(\w+\(.*?-> [^\"]*)\"")
    defined = [f"tandem::{found}" for file in tree.sources("src") for found in schema.findall(tree.text(file))]
    defined = [one.replace("=None", "") for one in defined]
    shown = [cells[0].strip("`") for _, cells in table(text, "op")]
    yield from compare(page, "library.def", shown, defined)


def check_graph_words(tree):
    """dtypes, layouts, memory formats and roles of the graph text."""
    page = "docs/reference/graph-text.md"
    text = tree.text(page)
    source = next((f for f in tree.files if f.endswith("ir/words.cpp") or f.endswith("text/words.cpp")), "")
    for array in ("kDtypes", "kLayouts", "kMemoryFormats", "kRoles"):
        body = re.search(rf"std::array {array} = \{{(.*?)^\}};", tree.text(source), re.M | re.S)
        for word in re.findall(r'"(\w+)"', body[1]) if body else []:
            ranged = re.fullmatch(r"([ui])[2-6]", word)  # `u1` ... `u7`
            if not ranged and not re.search(rf"(?<![\w]){word}(?![\w])", text):
                yield f"{page}: {word} is missing ({source})"


# What a page says, and the constant behind it: page, words with a number, file, code with a number.
NUMBERS = [
    ("docs/stages/lower.md", r"At most (\d+) nodes per kernel", "target.h", r"most_nodes = (\d+);"),
    ("docs/stages/lower.md", r"what has (\d+) times the bytes", "target.h", r"spread = (\d+);"),
    ("docs/stages/passes.md", r"constant of at most\s+(\d+) KiB", "fold_constants.cpp", r"kMostBytes = int64_t\{(\d+)\} << 10"),
    ("docs/stages/passes.md", r"constant up to (\d+) elements", "fold_constants.cpp", r"kMostFolded = (\d+);"),
    ("docs/reference/ops.md", r"at most (\d+) MiB of operands", "kernel_answers.cpp", r"int64_t\{(\d+)\} << 20"),
    ("docs/reference/graph-text.md", r"constants of more than (\d+) elements", "tensor_data.h", r"kInlineElements = (\d+);"),
    ("docs/reference/cli.md", r"Constants of more than (\d+) elements", "tensor_data.h", r"kInlineElements = (\d+);"),
    ("docs/reference/graph-text.md", r"nest up to\s+(\d+) levels", "parse.cpp", r"kMaxDepth = (\d+);"),
    ("docs/design/0014-machine-code.md", r"Column walks take (\d+) rows", "schedule.cpp", r"kRowBlock = (\d+),"),
    ("docs/design/0014-machine-code.md", r"\((\d+) if the kernel also writes rows\)", "schedule.cpp", r"kWrittenRowBlock = (\d+);"),
    ("docs/reference/differences.md", r"more than (\d+) gradients", "gradients.cpp", r"kMostTrials = (\d+);"),
    ("docs/design/0003-host-memory-of-empty.md", r"up to (\d+) bytes", "host_memory.cpp", r"kAlwaysConstant = (\d+);"),
    ("docs/design/0006-source-lines.md", r"up to (\d+) outside", "source_lines.cpp", r"kMostCalls = (\d+);"),
    ("docs/how-to/why-compiled-again.md", r"`max_entries` \((\d+)\)", "options.h", r"max_entries = (\d+);"),
    ("docs/how-to/sizes-that-change.md", r": (\d+) of a large model", "entry_table.cpp", r"kLeast = (\d+),"),
    ("docs/reference/options.md", r"keeps (\d+) variants of a large", "entry_table.cpp", r"kLeast = (\d+),"),
    ("docs/reference/options.md", r"up to ([\d,]+) of a small", "entry_table.cpp", r"kMost = ([\d']+);"),
]


def check_numbers(tree):
    for page, said, name, meant in NUMBERS:
        file = next((f for f in tree.sources("src", "include") if f.endswith("/" + name)), name)
        if not tree.text(page):
            continue
        on_page, in_code = re.search(said, tree.text(page)), re.search(meant, tree.text(file))
        if not on_page or not in_code:
            yield f"{page if not on_page else file}: nothing matches {said if not on_page else meant}"
        elif on_page[1].replace(",", "") != in_code[1].replace("'", ""):
            yield f"{page}:{line_of(tree.text(page), on_page.start())}: {on_page[0]}, but {file} has {in_code[0]}"


def check_figures(tree):
    """Shares of time in README.md are those of benchmarks/README.md."""
    measured = {cells[0]: cells for _, cells in table(tree.text("benchmarks/README.md"), "model, threads")}
    for line, cells in table(tree.text("README.md"), "model, 2 threads"):
        there = [cell.split(" ")[0] for cell in measured.get(f"{cells[0]}, 2", [])]
        for figure in cells[1:]:
            if figure not in there:
                yield f"README.md:{line}: {cells[0]}: {figure} was not measured (benchmarks/README.md)"


def check_quotes(tree):
    """A fenced block after `<!-- from: FILE -->` is a part of that file, but for indentation; `...` stands for any lines."""
    def plain(text):
        return "".join(line.strip() + "\n" for line in text.split("\n") if line.strip())

    for page in tree.pages():
        text = tree.text(page)
        for match in re.finditer(r"^ *<!-- from: (\S+) -->\n *```\w*\n(.*?)^ *```", text, re.M | re.S):
            parts = re.split(r"^\.\.\.\n", plain(match[2]).rstrip("\n"), flags=re.MULTILINE)
            pattern = ".*?".join(re.escape(part) for part in parts)
            if not re.search(pattern, plain(tree.text(match[1])), re.DOTALL):
                yield f"{page}:{line_of(text, match.start())}: {match[1]} has no such lines"


def check_outputs(tree):
    """What the tool prints on its page is what its test expects; times and names of files are not compared."""
    def plain(text):
        return " ".join(re.sub(r"[\d.]+", "0", text).split())

    page, test = "docs/reference/cli.md", "tests/cli/cli_test.py"
    if not tree.text(test):
        return
    expected = plain(re.sub(r'(?:\\n)?"\s*\n\s*f?"', lambda m: "\n" if "n" in m[0] else "", tree.text(test)).replace('\\"', '"'))
    for fence in re.finditer(r"^```\n(\$ tandem .*?)^```", tree.text(page), re.MULTILINE | re.DOTALL):
        for line in fence[1].split("\n")[1:] if "--time" not in fence[1] else []:
            if plain(line) not in expected and not line.startswith("  file:"):
                yield f"{page}:{line_of(tree.text(page), fence.start())}: {test} expects no line: {line}"


def check_comments(tree):
    """Pages that comments of the code refer to."""
    for file in tree.sources():
        for match in re.finditer(r"docs/[\w./-]+\.md", tree.text(file)):
            if match[0] not in tree.files and not file.startswith("tests/lint/"):
                yield f"{file}:{line_of(tree.text(file), match.start())}: {match[0]}: no such page"


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]


def check(root):
    tree = Tree(pathlib.Path(root))
    return [problem for one in CHECKS for problem in one(tree)], len(tree.pages())


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    problems, pages = check(root)
    print("\n".join(problems) if problems else f"docs: {len(CHECKS)} checks of {pages} pages find nothing")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
