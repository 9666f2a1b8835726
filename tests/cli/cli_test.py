"""Starts the tool and looks at its output, its error texts and its exit codes.

Usage: cli_test.py TOOL VERSION TORCH_VERSION; run by CTest.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL, VERSION, TORCH_VERSION = sys.argv[1:4]
OK, WRONG_INPUT, WRONG_USAGE = 0, 1, 2

# A dead node and two equal ones.
GRAPH = """\
graph g(%x: f32[4, 4] user_input 0) {
  %unused: f32[4, 4] = aten.sin(%x)
  %a: f32[4, 4] = aten.exp(%x)
  %b: f32[4, 4] = aten.exp(%x)
  %s: f32[4, 4] = aten.add.Tensor(%a, %b, alpha=1)
  return %s: output 0
}
"""
CLEAN = """\
graph g(%x: f32[4, 4] user_input 0) {
  %a: f32[4, 4] = aten.exp(%x)
  %s: f32[4, 4] = aten.add.Tensor(%a, %a, alpha=1)
  return %s: output 0
}
"""
IDENTITY = """\
graph h(%y: f32[2] user_input 0) {
  return %y: output 0
}
"""


JOINT = """\
graph g.joint(%x: f32[4] user_input 0, %dy: f32[4] tangent 0) {
  %c: f32[4] = aten.cos(%x)
  %y: f32[4] = aten.sin(%c)
  backward:
  %cc: f32[4] = aten.cos(%c)
  %dc: f32[4] = aten.mul.Tensor(%dy, %cc)
  %s: f32[4] = aten.sin(%x)
  %dx: f32[4] = aten.mul.Tensor(%dc, %s)
  return %y: output 0, %dx: grad 0
}
"""
FORWARD = """\
graph g.forward(%x: f32[4] user_input 0) {
  %c: f32[4] = aten.cos(%x)
  %y: f32[4] = aten.sin(%c)
  return %y: output 0, %x: saved 0
}

"""
BACKWARD = """\
graph g.backward(%x: f32[4] saved 0, %dy: f32[4] tangent 0) {
  backward:
  %c: f32[4] = aten.cos(%x)
  %cc: f32[4] = aten.cos(%c)
  %dc: f32[4] = aten.mul.Tensor(%dy, %cc)
  %s: f32[4] = aten.sin(%x)
  %dx: f32[4] = aten.mul.Tensor(%dc, %s)
  return %dx: grad 0
}
"""


class ToolTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, text, name="g.tdm"):
        (self.folder / name).write_text(text)
        return name

    def run_tool(self, *arguments, text=None, environment=None):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TANDEM_")}
        return subprocess.run([TOOL, *arguments], input=text, capture_output=True, text=True, cwd=self.folder,
                              env={**clean, **(environment or {})}, check=False)

    def expect(self, *arguments, code=OK, out="", error="", text=None):
        result = self.run_tool(*arguments, text=text)
        self.assertEqual((result.stderr, result.stdout, result.returncode), (error, out, code))


class Print(ToolTest):
    def test_several_graphs_come_out_in_normal_form(self):
        crooked = GRAPH.replace("  %", "%").replace(", ", " ,  ") + "\n\n\n" + IDENTITY
        self.expect("print", self.file(crooked), out=GRAPH + "\n" + IDENTITY)

    def test_what_it_prints_it_prints_again(self):
        self.expect("print", "-", text=GRAPH + "\n" + IDENTITY, out=GRAPH + "\n" + IDENTITY)

    def test_a_file_that_is_not_there(self):
        self.expect("print", "missing.tdm", code=WRONG_INPUT, error="parse: cannot read missing.tdm\n")

    def test_a_mistake_is_shown_with_line_column_and_file(self):
        result = self.run_tool("print", self.file(GRAPH.replace("return", "giveback")))
        self.assertEqual((result.returncode, result.stdout), (WRONG_INPUT, ""))
        self.assertRegex(result.stderr, r"^parse: line 6, column 3: .*giveback.*\n  file:   g\.tdm\n$")

    def test_text_without_a_graph(self):
        self.expect("print", "-", text="# nothing but a comment\n", code=WRONG_INPUT,
                    error="parse: standard input holds no graph\n"
                          "  remedy: a graph starts with the word graph, see docs/reference/graph-text.md\n")


class Verify(ToolTest):
    def test_well_formed_graphs(self):
        self.expect("verify", self.file(GRAPH + IDENTITY),
                    out="graph g: well-formed, 1 input, 4 nodes, 1 output\n"
                        "graph h: well-formed, 1 input, 0 nodes, 1 output\n")

    def test_a_broken_rule_is_named(self):
        twice = "graph t(%a: f32[2] user_input 0, %b: f32[2] user_input 0) {\n  return %a: output 0\n}\n"
        self.expect("verify", self.file(IDENTITY + twice), code=WRONG_INPUT,
                    error="parse: line 4, column 1: graph t is not well-formed: input roles are unique: input %b is "
                          "user_input 0, and so is an earlier one\n  file:   g.tdm\n")


class Opt(ToolTest):
    PASSES = "--passes=merge-duplicates,remove-dead-nodes"

    def test_passes_run_in_order_on_every_graph(self):
        self.expect("opt", self.file(GRAPH + IDENTITY), self.PASSES, out=CLEAN + "\n" + IDENTITY)

    def test_only_the_named_passes_run(self):
        without_dead = GRAPH.replace("  %unused: f32[4, 4] = aten.sin(%x)\n", "")
        self.expect("opt", self.file(GRAPH), "--passes=remove-dead-nodes", out=without_dead)

    def test_the_result_goes_to_a_file(self):
        self.expect("opt", self.file(GRAPH), self.PASSES, "-o", "clean.tdm")
        self.assertEqual((self.folder / "clean.tdm").read_text(), CLEAN)

    def test_a_folder_that_is_not_there(self):
        result = self.run_tool("opt", self.file(GRAPH), self.PASSES, "-o", "missing/clean.tdm")
        self.assertEqual(result.returncode, WRONG_INPUT)
        self.assertTrue(result.stderr.startswith("write: cannot write missing/clean.tdm\n"), result.stderr)

    def test_dumps_go_to_stderr_and_say_unchanged(self):
        self.expect("opt", self.file(CLEAN), self.PASSES, "--dump-after=all", out=CLEAN,
                    error="# graph g after merge-duplicates: unchanged\n# graph g after remove-dead-nodes: unchanged\n")

    def test_one_step_is_dumped(self):
        self.expect("opt", self.file(GRAPH), self.PASSES, "--dump-after=remove-dead-nodes", out=CLEAN,
                    error="# graph g after remove-dead-nodes: 1 change\n" + CLEAN)

    def test_times_are_one_table(self):
        result = self.run_tool("opt", self.file(GRAPH), self.PASSES, "--time")
        self.assertEqual((result.returncode, result.stdout), (OK, CLEAN))
        self.assertRegex(result.stderr, r"^graph g +changes +nodes +ms\n"
                                        r"  merge-duplicates +1 +3 +\d+\.\d{3}\n"
                                        r"  remove-dead-nodes +1 +2 +\d+\.\d{3}\n$")

    def test_list(self):
        result = self.run_tool("opt", "--list")
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        names = [line.split()[0] for line in result.stdout.splitlines()]
        self.assertEqual(names, sorted(names))
        self.assertLessEqual({"merge-duplicates", "remove-dead-nodes", "remove-no-ops"}, set(names))

    def test_an_unknown_pass_is_wrong_usage(self):
        known = ", ".join(line.split()[0] for line in self.run_tool("opt", "--list").stdout.splitlines())
        self.expect("opt", "missing.tdm", "--passes=remove-dead-nodes,shuffle", code=WRONG_USAGE,
                    error=f'usage: --passes: no pass is called "shuffle"\n  known:  {known}\n'
                          "  remedy: see tandem opt --help\n")

    def test_a_dump_after_a_pass_that_does_not_run(self):
        self.expect("opt", "missing.tdm", self.PASSES, "--dump-after=remove-no-ops", code=WRONG_USAGE,
                    error='usage: --dump-after: expected all, none or a pass of --passes, got "remove-no-ops"\n'
                          "  remedy: see tandem opt --help\n")

    def test_passes_and_file_are_required(self):
        self.expect("opt", "g.tdm", code=WRONG_USAGE,
                    error="usage: --passes is required\n  remedy: see tandem opt --help\n")
        self.expect("opt", self.PASSES, code=WRONG_USAGE,
                    error="usage: FILE is required\n  remedy: see tandem opt --help\n")


class Split(ToolTest):
    def test_both_halves_and_what_is_saved(self):
        self.expect("split", self.file(JOINT), "--partitioner", "min_cut_recompute", out=FORWARD + BACKWARD, error=(
            "# saved: 1 value, 0 bytes\n"
            "#              0  %x: an input that the backward reads (by reference, 0 bytes)\n"
            "# computed again: 1 value, 16 bytes\n"
            "#             16  %c: aten.cos is cheap, made from %x\n"))

    def test_min_cut_asks_the_backend(self):
        name = self.file(JOINT)
        fused, alone = (self.run_tool("split", name, "--partitioner", "min_cut", "--backend", backend).stderr
                        for backend in ("llvm", "eager"))
        self.assertIn("# computed again: 1 value, 16 bytes\n", fused)
        self.assertNotIn("# computed again", alone)
        self.assertEqual(self.run_tool("split", name, "--partitioner", "min_cut").stderr, fused)
        self.expect("split", name, "--backend", "abacus", code=WRONG_USAGE,
                    error='usage: --backend: no backend is called "abacus"\n'
                          f'  known:  {", ".join(Info.backends(self))}\n  remedy: see tandem split --help\n')

    def test_the_default_saves_what_the_backward_reads(self):
        self.assertIn("# saved: 2 values, 16 bytes\n", self.run_tool("split", self.file(JOINT)).stderr)

    def test_without_tangents_there_is_one_half(self):
        self.expect("split", self.file(IDENTITY), out=IDENTITY.replace("graph h(", "graph h.forward("))


class Run(ToolTest):
    def test_zeros(self):
        self.expect("run", self.file(CLEAN + IDENTITY), "--inputs", "zeros",
                    out="graph g: 2 nodes on backend eager\n"
                        "  output 0         f32[4, 4]                mean 2  min 2  max 2\n"
                        "graph h: 0 nodes on backend eager\n"
                        "  output 0         f32[2]                   {0, 0}\n")

    def test_another_backend_gives_the_same_bits_where_all_promise_them(self):
        name = self.file(CLEAN)
        on_llvm, on_eager = (self.run_tool("run", name, "--backend", backend).stdout for backend in ("llvm", "eager"))
        self.assertEqual(on_eager, on_llvm.replace("on backend llvm", "on backend eager"))
        self.assertEqual(on_eager, self.run_tool("run", name).stdout)

    def test_a_seed_gives_the_same_numbers_and_another_seed_others(self):
        name = self.file(IDENTITY)
        first, again, other = (self.run_tool("run", name, "--seed", seed).stdout for seed in ("1", "1", "2"))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_random_ops_draw_from_the_seed(self):
        name = self.file("graph d(%x: f32[6] user_input 0) {\n"
                         "  %y: f32[6], %m: bool[6] = aten.native_dropout(%x, 0.5, true)\n"
                         "  return %m: output 0\n}\n")
        results = {seed: self.run_tool("run", name, "--seed", seed).stdout for seed in map(str, range(8))}
        self.assertEqual(results["3"], self.run_tool("run", name, "--seed", "3").stdout)
        self.assertGreater(len(set(results.values())), 1)

    def test_strides_integers_booleans_and_absent_outputs(self):
        result = self.run_tool("run", self.file(
            "graph k(%t: f32[2, 3] (1, 2) user_input 0, %e: f32[2, 3] (0, 1) user_input 1, "
            "%i: i64[8] user_input 2, %b: bool[20] user_input 3, %z: f32[0, 3] user_input 4) {\n"
            "  return %t: output 0, %e: output 1, %i: output 2, %b: output 3, %z: output 4, none: output 5\n}\n"))
        self.assertEqual((result.stderr, result.returncode), ("", OK))
        lines = result.stdout.splitlines()
        self.assertRegex(lines[1], r"output 0 +f32\[2, 3\] \(1, 2\) +\{.*\}$")
        rows = re.search(r"\{(.*)\}", lines[2])[1].split(", ")
        self.assertEqual(rows[:3], rows[3:], "a stride of zero repeats the row")
        integers = list(map(int, re.search(r"\{(.*)\}", lines[3])[1].split(", ")))
        self.assertTrue(all(0 <= value < 4 for value in integers), integers)
        self.assertRegex(lines[4], r"output 3 +bool\[20\] +\d+ of 20 true$")
        self.assertRegex(lines[5], r"output 4 +f32\[0, 3\] +\{\}$")
        self.assertRegex(lines[6], r"output 5 +none$")

    def test_a_type_that_the_result_does_not_have(self):
        wrong = IDENTITY.replace("  return", "  %z: f32[3] = aten.exp(%y)\n  return").replace("return %y", "return %z")
        result = self.run_tool("run", self.file(wrong), "--inputs", "zeros")
        self.assertEqual((result.returncode, result.stderr),
                         (WRONG_INPUT, "run: output 0 of graph h does not have its type: expected f32[3], got f32[2]\n"
                                       "  remedy: correct the type in the file\n"))

    def test_a_kernel_that_refuses_its_inputs(self):
        result = self.run_tool("run", self.file(
            "graph m(%a: f32[2, 3] user_input 0, %b: f32[2, 3] user_input 1) {\n"
            "  %c: f32[2, 3] = aten.mm(%a, %b)\n  return %c: output 0\n}\n"))
        self.assertEqual((result.returncode, result.stdout), (WRONG_INPUT, ""))
        self.assertRegex(result.stderr, r"^run: graph m cannot be run on random inputs: mat1 and mat2 shapes")
        self.assertRegex(result.stderr, r"\n  remedy: try --inputs zeros, or correct the graph\n$")
        self.assertNotIn("frame #", result.stderr)

    def test_symbolic_sizes_cannot_be_made_up(self):
        self.expect("run", self.file("graph s[s0: 2..](%x: f32[s0] user_input 0) {\n  return %x: output 0\n}\n"),
                    code=WRONG_INPUT,
                    error="run: input user_input 0 of graph s is f32[s0]: only strided tensors with constant sizes can "
                          "be made up\n  remedy: write sizes into the file\n")

    def test_an_unknown_backend_is_wrong_usage(self):
        names = ", ".join(Info.backends(self))
        self.expect("run", self.file(IDENTITY), "--backend", "abacus", code=WRONG_USAGE,
                    error=f'usage: --backend: no backend is called "abacus"\n  known:  {names}\n'
                          "  remedy: see tandem run --help\n")

    def test_wrong_values_of_options(self):
        self.expect("run", "g.tdm", "--inputs", "ones", code=WRONG_USAGE,
                    error="usage: --inputs: ones not in {random,zeros}\n  remedy: see tandem run --help\n")
        for seed in ("-1", "1.5", "x"):
            self.expect("run", "g.tdm", f"--seed={seed}", code=WRONG_USAGE,
                        error=f"usage: --seed: expected a whole number, 0 or more, got {seed}\n"
                              "  remedy: see tandem run --help\n")


class Info(ToolTest):
    @staticmethod
    def section(test, title, **more):
        text = test.run_tool("info", **more).stdout
        lines = text.split(f"\n{title}\n")[1].split("\n\n")[0].splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    @staticmethod
    def backends(test):
        return Info.section(test, "backends")

    def test_versions(self):
        first = self.run_tool("info").stdout.splitlines()[0]
        self.assertEqual(first, f"tandem {VERSION}, built with torch {TORCH_VERSION}")

    def test_backends_say_whether_they_can_be_used(self):
        name = self.file(IDENTITY)
        for backend, state in self.backends(self).items():
            code = self.run_tool("run", name, "--backend", backend).returncode
            self.assertEqual(code == OK, state == "ready", f"{backend}: {state}")
        self.assertEqual(self.backends(self)["eager"], "ready")

    def test_passes_are_those_of_opt(self):
        listed = [line.split()[0] for line in self.run_tool("opt", "--list").stdout.splitlines()]
        self.assertEqual(list(self.section(self, "passes")), listed)

    def test_the_environment_is_shown(self):
        self.assertEqual(self.section(self, "environment")["TANDEM_LOG"], "not set")
        shown = self.section(self, "environment", environment={"TANDEM_LOG": "debug"})
        self.assertEqual(shown["TANDEM_LOG"], "debug")


class CommandLine(ToolTest):
    COMMANDS = "print, verify, opt, split, run, info"

    def test_no_command(self):
        self.expect(code=WRONG_USAGE, error=f"usage: a command is required\n  known:  {self.COMMANDS}\n"
                                            "  remedy: see tandem --help\n")

    def test_an_unknown_command(self):
        self.expect("frobnicate", "x", code=WRONG_USAGE,
                    error=f'usage: no command is called "frobnicate"\n  known:  {self.COMMANDS}\n'
                          "  remedy: see tandem --help\n")

    def test_a_word_too_many(self):
        self.expect("print", "a", "b", code=WRONG_USAGE,
                    error="usage: The following argument was not expected: b\n  remedy: see tandem print --help\n")

    def test_help_of_every_command_has_examples(self):
        for command in ([], *([name] for name in self.COMMANDS.split(", "))):
            result = self.run_tool(*command, "--help")
            self.assertEqual((result.returncode, result.stderr), (OK, ""), command)
            self.assertIn("\nExamples:\n  ", result.stdout, command)

    def test_version(self):
        self.expect("--version", out=f"tandem {VERSION}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
