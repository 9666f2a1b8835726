"""The check of the pages must catch what it is for; run by CTest."""

import pathlib
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import check_docs  # noqa: E402


def problems(files):
    """What the checks say about a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        return check_docs.check(root)[0]


class Case(unittest.TestCase):
    files = {}  # a tree in which nothing is wrong

    def setUp(self):
        numbers = unittest.mock.patch.object(check_docs, "NUMBERS", [])  # those of the real pages
        numbers.start()
        self.addCleanup(numbers.stop)

    def assert_found(self, files, *texts):
        """Just these problems, in any order."""
        found = problems({**self.files, **files})
        self.assertEqual(len(found), len(texts), found)
        for text in texts:
            self.assertTrue(any(text in problem for problem in found), found)

    def assert_fine(self, files):
        self.assertEqual(problems({**self.files, **files}), [])


class Links(Case):
    files = {"docs/a.md": "# A page: with `code`\n\n## Twice\n\n## Twice\n", "src/x.cpp": ""}

    def test_good_links_pass(self):
        for link in ("src/x.cpp", "docs/a.md#twice-1", "docs/a.md#a-page-with-code", "https://x.org/y"):
            self.assert_fine({"README.md": f"See [it]({link}) and [all](docs/a.md)."})

    def test_a_missing_file_is_reported_with_its_line(self):
        self.assert_found({"README.md": "[all](docs/a.md)\n[it](docs/b.md)"}, "README.md:2: docs/b.md: no such file")

    def test_a_missing_heading_is_reported(self):
        self.assert_found({"README.md": "[it](docs/a.md#b)"}, "README.md:1: docs/a.md#b: no such heading")

    def test_code_is_not_searched(self):
        self.assert_fine({"README.md": "[all](docs/a.md) `[](const T& x)`\n```cpp\n[x](y)\n```\n"})

    def test_a_page_without_a_link_is_reported(self):
        self.assert_found({"README.md": ""}, "README.md: no link to docs/a.md")


class Names(Case):
    files = {"src/passes/memory_facts.h": "struct MemoryFacts { bool may_go(); };", "Makefile": "test:\n\ttrue\n",
             "CMakePresets.json": '{"configurePresets": [{"name": "dev"}]}'}

    def test_names_that_occur_pass(self):
        self.assert_fine({"README.md": "`may_go`, `MemoryFacts::may_go()`, `passes/memory_facts.h`, `memory_*.h`, `make test`, "
                                       "`src/passes/memory_facts.{h}`, `at::add_something`, `plain`, `cmake --preset dev`"})

    def test_a_name_that_does_not_occur(self):
        self.assert_found({"README.md": "\n`may_stay`"}, "README.md:2: may_stay does not occur")
        self.assert_found({"README.md": "`MemoryFacts::may_stay()`"}, "MemoryFacts::may_stay does not occur")
        self.assert_found({"README.md": "`NotThere`"}, "NotThere does not occur")
        self.assert_found({"README.md": "`stay()`"}, "stay does not occur")

    def test_a_file_that_is_not_there(self):
        self.assert_found({"README.md": "`src/passes/facts.h`"}, "src/passes/facts.h: no such file or folder")
        self.assert_found({"README.md": "`passes/facts`"}, "passes/facts: no such file or folder")
        self.assert_found({"README.md": "`facts.cpp`"}, "facts.cpp: no such file")
        self.assert_found({"README.md": "```\nmemory_facts.h  net.cpp\nfacts.cpp\n```"}, "README.md:3: facts.cpp: no such file")

    def test_a_variable_target_or_preset_that_is_not_there(self):
        self.assert_found({"README.md": "set TANDEM_SPEED"}, "TANDEM_SPEED does not occur")
        self.assert_found({"README.md": "`make fast`"}, "make fast: no such target")
        self.assert_found({"README.md": "cmake --preset fast"}, "no preset is called fast")

    def test_a_comment_that_refers_to_a_page_that_is_not_there(self):
        self.assert_found({"src/x.h": "// see docs/reference/x.md\n"}, "src/x.h:1: docs/reference/x.md: no such page")


class Passes(Case):
    files = {"src/passes/registry.cpp": 'PassInfo{"merge-views", "merges", merge_views, true},\n',
             "docs/stages/passes.md": "| pass | does |\n| --- | --- |\n| `merge-views` | merges |\n",
             "README.md": "[p](docs/stages/passes.md)"}

    def test_a_pass_without_a_row(self):
        self.assert_fine({})
        self.assert_found({"docs/stages/passes.md": "| pass | does |\n| --- | --- |\n"}, "merge-views is missing")

    def test_a_pass_that_does_not_exist(self):
        page = "[p](docs/stages/passes.md) `TANDEM_PASSES=-merge-views` "
        self.assert_found({"README.md": page + "`--passes=merge-all`", "src/x.cpp": '"TANDEM_PASSES"'},
                          "no pass is called merge-all")


class Options(Case):
    page = ("| Field | Default | Environment |\n| --- | --- | --- |\n| `speed` | `Speed::low` | `TANDEM_SPEED` (`low`, `high`) |\n"
            "| `folder` | empty | |\n\n## What is not built yet\n\nThese: `folder`.\n\n")
    files = {"include/tandem/options.h": "struct Options {\n  Speed speed = Speed::low;\n  std::path folder{};\n};\n",
             "src/pipeline/settings/environment.cpp": '    {"TANDEM_SPEED", "low or high",\n',
             "src/pipeline/settings/options.cpp": "require_default(options.folder.empty(), ...",
             "docs/reference/options.md": page, "README.md": "[o](docs/reference/options.md)"}

    def found(self, old, new, *texts):
        self.assert_found({"docs/reference/options.md": self.page.replace(old, new)}, *texts)

    def test_the_table_is_the_struct(self):
        self.assert_fine({})
        self.found("`Speed::low`", "`low`", "the default of speed is Speed::low")
        self.found("| `folder` | empty | |\n", "", "folder is missing (struct Options)")
        self.found("| `folder` | empty |", "| `folder` | 3 |", "the default of folder is none or empty")

    def test_the_environment_is_the_table(self):
        self.found("`TANDEM_SPEED` (`low`, `high`)", "", "TANDEM_SPEED is missing", "TANDEM_SPEED is missing",
                   "also takes low", "also takes high")
        self.found(", `high`)", ")", "TANDEM_SPEED also takes high")

    def test_what_is_not_built_is_what_is_refused(self):
        self.found("These: `folder`", "These: `speed`", "folder is missing", "speed does not exist")


class Tools(Case):
    files = {"cli/main.cpp": 'app.add_subcommand("run", ""); run->add_option("-s,--seed", seed);',
             "docs/reference/cli.md": "## tandem run\n\n`--seed`\n", "README.md": "[c](docs/reference/cli.md)"}

    def test_commands_and_options(self):
        self.assert_fine({})
        self.assert_found({"docs/reference/cli.md": "`--seed`\n"}, "run is missing")
        self.assert_found({"docs/reference/cli.md": "## tandem run\n"}, "--seed is missing")
        self.assert_found({"docs/reference/cli.md": "## tandem run\n## tandem fly\n`--seed` `--high`\n"},
                          "fly does not exist", "--high does not exist")


    def test_outputs(self):
        test = 'self.expect(out="graph g: 2 nodes\\n"\n                 "  output 0   f32[4]\\n")'
        page = "## tandem run\n`--seed`\n```\n$ tandem run g.tdm\ngraph g: 3 nodes\n  output 0  f32[4]\n```\n"
        self.assert_fine({"docs/reference/cli.md": page, "tests/cli/cli_test.py": test})
        self.assert_found({"docs/reference/cli.md": page.replace("nodes", "ops"), "tests/cli/cli_test.py": test},
                          "expects no line: graph g: 3 ops")


class Errors(Case):
    head = "| stage | class | text |\n| --- | --- | --- |\n"
    files = {"src/trace.cpp": 'TANDEM_REQUIRE(ok, "trace", "the tensor of argument ", i, " is sparse", "\\n  remedy: x");\n',
             "docs/reference/errors.md": head + "| `trace` | a | `the tensor of argument 3 is sparse` |\n",
             "README.md": "[e](docs/reference/errors.md)"}

    def test_texts_of_the_code_and_of_tests(self):
        self.assert_fine({})
        self.assert_found({"docs/reference/errors.md": self.head + "| `trace` | | `the tensor of argument 3 has gone to sleep` |\n"},
                          "nothing raises: the tensor of argument 3 has gone to sleep")
        self.assert_fine({"docs/reference/errors.md": self.head + "| `trace` | | `it has gone to sleep 3 times` |\n",
                          "tests/x_test.cpp": 'EXPECT_EQ(text, "it has "\n  "gone to sleep 7 times");'})

    def test_labels(self):
        page = "| label | x |\n| --- | --- |\n| `remedy` | x |\n\n" + self.files["docs/reference/errors.md"]
        self.assert_fine({"docs/reference/errors.md": page})
        self.assert_found({"docs/reference/errors.md": page.replace("`remedy`", "`help`")}, "remedy is missing", "help does not exist")

    def test_a_stage_without_a_row(self):
        self.assert_found({"docs/reference/errors.md": self.head + "| `ops` | | |\n"}, "the stage trace has no row")


class Lists(Case):
    def test_layers(self):
        page = "## Layers\n\n```\n  base                 errors\n  ir                   graph\n  ---- border\n```\n"
        files = {"src/layers.txt": "# list\nbase\nir\nir: text | .\n", "src/base/a.h": "", "src/ir/text/b.h": "",
                 "README.md": "[a](docs/architecture.md)"}
        self.assert_fine({**files, "docs/architecture.md": page + "`ir/text`"})
        self.assert_found({**files, "docs/architecture.md": page}, "nothing about src/ir/text")
        self.assert_found({**files, "docs/architecture.md": page.replace("  ir   ", "  new  ") + "`ir/text`"}, "the layers are base ir")

    def test_the_glossary_is_sorted(self):
        page = "| word | meaning |\n| --- | --- |\n| node | x |\n| alias | y |\n"
        self.assert_found({"docs/glossary.md": page, "README.md": "[g](docs/glossary.md) alias node"}, "docs/glossary.md:4: alias comes before node")

    def test_a_word_of_the_glossary_is_used(self):
        page = "| word | meaning |\n| --- | --- |\n| alias, other name | y |\n"
        self.assert_found({"docs/glossary.md": page, "README.md": "[g](docs/glossary.md) an alias"}, "nobody else says other name")

    def test_facts_and_own_ops(self):
        page = "| fact | x |\n| --- | --- |\n| `Effect` | x |\n\n| op | x |\n| --- | --- |\n| `tandem::a(Tensor x) -> Tensor` | x |\n"
        files = {"src/ops/op_row.h": "  Effect = 1 << 0,  // x\n", "src/a.cpp": 'TORCH_LIBRARY_FRAGMENT(tandem, library) { library.def("a(Tensor x) -> Tensor"); }',
                 "README.md": "[o](docs/reference/ops.md)"}
        self.assert_fine({**files, "docs/reference/ops.md": page})
        self.assert_found({**files, "docs/reference/ops.md": page.replace("Effect", "Draw")}, "Effect is missing", "Draw does not exist")
        self.assert_found({**files, "docs/reference/ops.md": page.replace("Tensor x", "int x")}, "(Tensor x) -> Tensor is missing",
                          "(int x) -> Tensor does not exist")

    def test_words_of_the_graph_text(self):
        source = 'constexpr std::array kLayouts = {\n    Word{Strided, "strided"},\n};\n'
        page = {"README.md": "[g](docs/reference/graph-text.md)", "src/ir/text/words.cpp": source}
        self.assert_fine({**page, "docs/reference/graph-text.md": "Layouts: `strided`."})
        self.assert_found({**page, "docs/reference/graph-text.md": "Layouts: none."}, "strided is missing")

    def test_numbers(self):
        number = ("docs/a.md", r"at most (\d+) nodes", "fuse.cpp", r"kMost = (\d+)")
        files = {"docs/a.md": "It takes at most 64 nodes.", "src/fuse.cpp": "kMost = 64;", "README.md": "[a](docs/a.md)"}
        with unittest.mock.patch.object(check_docs, "NUMBERS", [number]):
            self.assert_fine(files)
            self.assert_found({**files, "src/fuse.cpp": "kMost = 32;"}, "docs/a.md:1: at most 64 nodes, but src/fuse.cpp has kMost = 32")
            self.assert_found({**files, "src/fuse.cpp": ""}, "nothing matches")

    def test_figures(self):
        head = "| model, 2 threads | x |\n| --- | --- |\n"
        measured = "| model, threads | x |\n| --- | --- |\n| mlp, 2 | 0.86 (0.82 to 0.93) |\n"
        self.assert_fine({"README.md": head + "| mlp | 0.86 |\n", "benchmarks/README.md": measured})
        self.assert_found({"README.md": head + "| mlp | 0.68 |\n", "benchmarks/README.md": measured}, "0.68 was not measured")

    def test_quotes(self):
        files = {"tests/golden/a.tdm": "graph g() {\n  return\n}\n# end\n", "README.md": "[a](docs/a.md)"}
        for block in ("graph g() {\n  return\n}\n", "graph g() {\n...\n# end\n"):
            page = f"<!-- from: tests/golden/a.tdm -->\n```\n{block}```\n"
            for indent in ("", "   "):
                self.assert_fine({**files, "docs/a.md": "".join(indent + line for line in page.splitlines(True))})
        self.assert_found({**files, "docs/a.md": "<!-- from: tests/golden/a.tdm -->\n```\ngraph h() {\n```\n"}, "has no such lines")


if __name__ == "__main__":
    unittest.main()
