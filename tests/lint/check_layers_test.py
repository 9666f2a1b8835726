"""The layer check must catch what it is for; run by CTest."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import check_layers  # noqa: E402

LAYERS = "base\nir\n!tracing\n!joint\nbackends runtime\npipeline\nruntime: guards | . call\n"


class CheckLayers(unittest.TestCase):
    def problems(self, path, include):
        """What the check says about a tree with one file that has one include."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"src/layers.txt": LAYERS, path: f"#pragma once\n#include {include}\n"}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_layers.check(root)

    def assert_allowed(self, path, include):
        self.assertEqual(self.problems(path, include), [])

    def assert_refused(self, path, include, message):
        problems = self.problems(path, include)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(message, problems[0])
        self.assertTrue(problems[0].startswith(f"{path}:2: "), problems[0])

    def test_a_folder_sees_itself_those_above_and_the_border(self):
        self.assert_allowed("src/ir/a.cpp", '"ir/a.h"')
        self.assert_allowed("src/ir/a.cpp", '"base/a.h"')
        self.assert_allowed("src/base/a.cpp", '"tandem/error.h"')
        self.assert_allowed("src/backends/eager/a.cpp", '"backends/eager/a.h"')

    def test_a_folder_does_not_see_those_below(self):
        self.assert_refused("src/base/a.cpp", '"ir/a.h"', "base may not include ir")

    def test_a_folder_does_not_see_its_neighbour(self):
        self.assert_refused("src/runtime/a.cpp", '"backends/a.h"', "runtime may not include backends")
        self.assert_refused("src/backends/a.cpp", '"runtime/a.h"', "backends may not include runtime")

    def test_capture_is_seen_by_capture_and_pipeline_only(self):
        self.assert_allowed("src/joint/a.cpp", '"tracing/a.h"')
        self.assert_allowed("src/pipeline/a.cpp", '"tracing/a.h"')
        self.assert_refused("src/runtime/a.cpp", '"tracing/a.h"', "runtime may not include tracing")

    def test_a_sub_folder_sees_those_before_it_and_its_neighbours(self):
        self.assert_allowed("src/runtime/call/a.cpp", '"runtime/guards/a.h"')
        self.assert_allowed("src/runtime/call/a.cpp", '"runtime/a.h"')
        self.assert_refused("src/runtime/guards/a.cpp", '"runtime/call/a.h"', "runtime/guards may not include runtime/call")
        self.assert_refused("src/runtime/guards/a.cpp", '"runtime/a.h"', "runtime/guards may not include runtime/.")

    def test_an_unknown_sub_folder_is_reported(self):
        self.assertIn("runtime/odd is not in src/layers.txt", self.problems("src/runtime/odd/a.h", "<vector>")[0])

    def test_includes_are_spelled_from_a_root(self):
        self.assert_refused("src/ir/a.cpp", '"../base/a.h"', "not spelled from")
        self.assert_refused("src/ir/a.cpp", '"a.h"', "not spelled from")

    def test_autograd_belongs_to_capture_and_runtime(self):
        self.assert_allowed("src/runtime/a.cpp", "<torch/csrc/autograd/function.h>")
        self.assert_refused("src/ir/a.cpp", "<torch/csrc/autograd/function.h>", "belongs to")

    def test_base_has_no_libtorch(self):
        self.assert_refused("src/base/a.cpp", "<c10/util/Exception.h>", "standard library only")

    def test_headers_stay_light(self):
        self.assert_allowed("src/ir/a.cpp", "<ATen/ATen.h>")
        self.assert_refused("src/ir/a.h", "<ATen/ATen.h>", "too heavy")

    def test_public_headers_include_public_ones(self):
        self.assert_allowed("include/tandem/a.h", '"tandem/b.h"')
        self.assert_refused("include/tandem/a.h", '"ir/graph.h"', "not public")
        self.assert_refused("include/tandem/a.h", "<ir/graph.h>", "not public")

    def test_programs_see_the_border_only(self):
        self.assert_allowed("cli/main.cpp", "<tandem/tandem.h>")
        self.assert_refused("cli/main.cpp", '"ir/graph.h"', "include/tandem only")

    def test_an_unknown_folder_is_reported(self):
        self.assertIn("not in src/layers.txt", self.problems("src/misc/a.h", "<vector>")[0])


if __name__ == "__main__":
    unittest.main()
