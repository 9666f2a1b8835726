"""The link check must catch what it is for; run by CTest."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import check_docs  # noqa: E402

PAGES = {"docs/a.md": "# A page: with `code`\n\n## Twice\n\n## Twice\n", "src/x.cpp": ""}


class CheckDocs(unittest.TestCase):
    def problems(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in {**PAGES, "README.md": text}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            return check_docs.check(root)[0]

    def test_good_links_pass(self):
        for link in ("docs/a.md", "src/x.cpp", "docs/a.md#twice-1", "docs/a.md#a-page-with-code", "https://x.org/y"):
            self.assertEqual(self.problems(f"See [it]({link})."), [], link)

    def test_a_missing_file_is_reported_with_its_line(self):
        self.assertEqual(self.problems("\n[it](docs/b.md)"), ["README.md:2: docs/b.md: no such file"])

    def test_a_missing_heading_is_reported(self):
        self.assertEqual(self.problems("[it](docs/a.md#b)"), ["README.md:1: docs/a.md#b: no such heading"])

    def test_code_is_not_searched(self):
        self.assertEqual(self.problems("`[](const T& x)`\n```cpp\n[x](y)\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
