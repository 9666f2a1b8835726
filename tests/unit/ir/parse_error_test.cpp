#include "support/error_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/library.h>

namespace tandem::ir {
namespace {

std::string error_of(const std::string& text) {
  return test::error_text<UserError>([&] { parse(text); });
}

/// The error of a graph whose second line is `line`.
std::string error_of_line(const std::string& line) {
  return error_of("graph g(%x: f32[4] user_input 0) {\n  " + line + "\n  return %x: output 0\n}\n");
}

TEST(ParseError, NamesLineColumnExpectedAndGot) {
  EXPECT_EQ(error_of(""), "parse: line 1, column 1: expected 'graph', got the end of the text");
  EXPECT_EQ(error_of("\n  grph g"), "parse: line 2, column 3: expected 'graph', got 'grph'");
  EXPECT_EQ(error_of("graph g {"), "parse: line 1, column 9: expected '(', got '{'");
  EXPECT_EQ(error_of("graph g() {"),
            "parse: line 1, column 12: expected an operator, constant, region or return, got the "
            "end of the text");
  EXPECT_EQ(error_of("graph g() { return } x"),
            "parse: line 1, column 22: expected the end of the text, got 'x'");
  EXPECT_EQ(error_of("graph g(%x f32[4] user_input 0) {"),
            "parse: line 1, column 12: expected ':', got 'f32'");
  EXPECT_EQ(error_of("graph g(x: f32[4] user_input 0) {"),
            "parse: line 1, column 9: expected a value, got 'x'");
  EXPECT_EQ(error_of("graph g(% : f32[4] user_input 0) {"),
            "parse: line 1, column 9: expected a value, got '%'");
}

TEST(ParseError, NamesWrongTypes) {
  std::string dtypes = error_of("graph g(%x: f33[4] user_input 0) {");
  EXPECT_TRUE(
      dtypes.starts_with("parse: line 1, column 13: expected a dtype (f32, f64, f16, bf16, i64"))
      << dtypes;
  EXPECT_TRUE(dtypes.ends_with("), got 'f33'")) << dtypes;
  EXPECT_EQ(error_of("graph g(%x: foo f32[4] user_input 0) {"),
            "parse: line 1, column 13: expected a type, got 'foo'");
  EXPECT_EQ(error_of("graph g(%x: user_input 0) {"),
            "parse: line 1, column 13: expected a type, got 'user_input'");
  EXPECT_EQ(error_of("graph g(%x: f32[4, ] user_input 0) {"),
            "parse: line 1, column 20: expected a size, got ']'");
  EXPECT_EQ(error_of("graph g(%x: f32[4 5] user_input 0) {"),
            "parse: line 1, column 19: expected ',' or ']', got '5'");
  EXPECT_EQ(error_of("graph g(%x: f32[4, 5] (1) user_input 0) {"),
            "parse: line 1, column 23: expected 2 strides, got 1");
  EXPECT_EQ(error_of("graph g(%x: f32[99999999999999999999] user_input 0) {"),
            "parse: line 1, column 17: expected an integer of 64 bits, got '99999999999999999999'");
}

TEST(ParseError, NamesWrongRoles) {
  EXPECT_EQ(error_of("graph g(%x: f32[4] input 0) {"),
            "parse: line 1, column 20: expected the role of an input, got 'input'");
  EXPECT_EQ(error_of("graph g(%x: f32[4] output 0) {"),
            "parse: line 1, column 20: expected the role of an input, got 'output'");
  EXPECT_EQ(error_of("graph g(%x: f32[4] user_input) {"),
            "parse: line 1, column 30: expected an integer, got ')'");
  EXPECT_EQ(error_of("graph g(%x: f32[4] param fc) {"),
            "parse: line 1, column 26: expected a string, got 'fc'");
  EXPECT_EQ(error_of("graph g() { return none: tangent 0 }"),
            "parse: line 1, column 26: expected the role of an output, got 'tangent'");
}

TEST(ParseError, NamesWrongStrings) {
  EXPECT_EQ(error_of("graph \"g\n() { return }"),
            "parse: line 1, column 7: a string is not closed");
  EXPECT_EQ(error_of("graph \"\\q\"() { return }"),
            "parse: line 1, column 8: expected \\n, \\t, \\r, \\\", \\\\ or \\x, got '\\q'");
  EXPECT_EQ(error_of("graph \"\\x1\"() { return }"),
            "parse: line 1, column 8: expected two hex digits after '\\x'");
}

// Operators of their own: libtorch's differ from version to version.
TORCH_LIBRARY(tandem_parse_test, library) {
  library.def("resize(Tensor x) -> Tensor");
  library.def("pick.one(Tensor x) -> Tensor");
  library.def("pick.two(Tensor x) -> Tensor");
}

TEST(ParseError, SuggestsOperators) {
  EXPECT_EQ(error_of_line("%y: f32[4] = tandem_parse_test.rezise(%x)"),
            "parse: line 2, column 16: unknown operator tandem_parse_test.rezise, did you mean "
            "tandem_parse_test.resize?");
  EXPECT_EQ(error_of_line("%y: f32[4] = tandem_parse_test.pick(%x)"),
            "parse: line 2, column 16: unknown operator tandem_parse_test.pick, did you mean "
            "tandem_parse_test.pick.one or tandem_parse_test.pick.two?");
  EXPECT_EQ(error_of_line("%y: f32[4] = nothing_like_this(%x)"),
            "parse: line 2, column 16: unknown operator nothing_like_this");
}

TEST(ParseError, NamesWrongValues) {
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(%z)"),
            "parse: line 2, column 25: value %z is not defined before its use");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(%y)"),
            "parse: line 2, column 25: value %y is not defined before its use");
  EXPECT_EQ(error_of_line("%x: f32[4] = aten.sin(%x)"),
            "parse: line 2, column 3: value %x is defined twice");
  EXPECT_EQ(error_of("graph g() { return x: output 0 }"),
            "parse: line 1, column 20: expected a value or none, got 'x'");
}

TEST(ParseError, NamesWrongArguments) {
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(f32)"),
            "parse: line 2, column 25: expected a tensor for argument self, got 'f32'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(%x, %x)"),
            "parse: line 2, column 29: aten.sin has 1 arguments, got more");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin()"),
            "parse: line 2, column 25: argument self of aten.sin is missing");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(%x, out=%x)"),
            "parse: line 2, column 29: aten.sin has no argument out");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(%x, self=%x)"),
            "parse: line 2, column 29: argument self of aten.sin comes twice");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.add.Tensor(%x, %x, 1)"),
            "parse: line 2, column 40: argument alpha of aten.add.Tensor is written with its name: "
            "alpha=...");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sum.dim_IntList(%x, 0)"),
            "parse: line 2, column 41: expected a list of integers, got '0'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sum.dim_IntList(%x, [0.5])"),
            "parse: line 2, column 43: expected ',' or ']', got '.5'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sum.dim_IntList(%x, [0], 1)"),
            "parse: line 2, column 46: expected true or false, got '1'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sum.dim_IntList(%x, [0], dtype=f31)"),
            "parse: line 2, column 52: expected a dtype, got 'f31'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.gelu(%x, approximate=tanh)"),
            "parse: line 2, column 42: expected a string, got 'tanh'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.dropout(%x, half, true)"),
            "parse: line 2, column 33: expected a float, got 'half'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.empty_like(%x, layout=foo)"),
            "parse: line 2, column 43: expected a layout, got 'foo'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.empty_like(%x, memory_format=foo)"),
            "parse: line 2, column 50: expected a memory format, got 'foo'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.empty_like(%x, device=foo:0)"),
            "parse: line 2, column 43: expected a device, got 'foo'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.bernoulli(%x, generator=0)"),
            "parse: line 2, column 45: expected a generator, got '0'");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.bernoulli(%x, generator=generator -1)"),
            "parse: line 2, column 55: generator -1 is out of range");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.cat([%x, 1], 0)"),
            "parse: line 2, column 30: expected a value or none, got '1'");
  EXPECT_EQ(error_of_line("[%y: f32[4]] = aten._foreach_add.ScalarList([%x], [1, 2.0])"),
            "parse: line 2, column 53: a list of numbers has numbers of one kind");
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.sin(%x"),
            "parse: line 3, column 3: expected ',' or ')', got 'return'");
}

TEST(ParseError, NamesWrongResults) {
  EXPECT_EQ(error_of_line("%y: f32[4] = aten.max.dim(%x, 0, false)"),
            "parse: line 2, column 3: aten.max.dim has 2 results, got 1");
  EXPECT_EQ(error_of_line("aten.sin(%x)"),
            "parse: line 2, column 3: aten.sin has 1 results, got 0");
  EXPECT_EQ(
      error_of_line("%y: f32[4] = aten.split.Tensor(%x, 2, 0)"),
      "parse: line 2, column 3: result 0 of aten.split.Tensor is a list: write it in brackets");
  EXPECT_EQ(error_of_line("[%y: f32[4]] = aten.sin(%x)"),
            "parse: line 2, column 3: result 0 of aten.sin is not a list");
  EXPECT_EQ(error_of_line("%y: f32[4] aten.sin(%x)"),
            "parse: line 2, column 14: expected '=', got 'aten.sin'");
}

TEST(ParseError, NamesWrongConstants) {
  EXPECT_EQ(error_of_line("%c: f32[2] = constant {1.0}"),
            "parse: line 2, column 25: expected 2 elements of dtype f32, got 1");
  EXPECT_EQ(error_of_line("%c: i8[1] = constant {128}"),
            "parse: line 2, column 25: expected an element of dtype i8, got '128'");
  EXPECT_EQ(error_of_line("%c: bool[1] = constant {1}"),
            "parse: line 2, column 27: expected an element of dtype bool, got '1'");
  EXPECT_EQ(error_of_line("%c: int = constant {1}"),
            "parse: line 2, column 3: a constant has one result, a tensor of known size");
  EXPECT_EQ(error_of_line("%c: f32[s0] = constant {1.0}"),
            "parse: line 2, column 3: a constant has one result, a tensor of known size");
  EXPECT_EQ(error_of_line("%c: f32[100] = constant @0:0123456789abcdef"),
            "parse: line 2, column 27: constant @0 is in a side file\n  remedy: read the file with "
            "ir::read_file");
  EXPECT_EQ(error_of_line("%c: f32[100] = constant @0:xyz"),
            "parse: line 2, column 27: expected a checksum in hex digits, got 'xyz'");
  EXPECT_EQ(error_of_line("%c: qi8[1] = constant {1}"),
            "parse: line 2, column 26: expected an element of dtype qi8, got '1'");
}

TEST(ParseError, NamesWrongRegions) {
  std::string body = " graph (%a: f32[4] user_input 0) { return %a: output 0 }";
  EXPECT_EQ(error_of_line("region \"r\" (%x)" + body),
            "parse: line 2, column 3: region \"r\" has 1 results, got 0");
  EXPECT_EQ(error_of_line("%y: f32[5] = region \"r\" (%x)" + body),
            "parse: line 2, column 3: result 0 of region \"r\" is f32[4], got f32[5]");
  EXPECT_EQ(error_of_line("%y: f32[4] = region \"r\" (1)" + body),
            "parse: line 2, column 28: expected a value or none, got '1'");
  EXPECT_EQ(error_of_line("%y: f32[4] = region \"r\" ()" + body),
            "parse: line 1, column 1: graph g is not well-formed: regions match their operands and "
            "results: the "
            "body has 1 inputs and 1 outputs; node %y: f32[4] = region \"r\" () graph {...}");
}

TEST(ParseError, RefusesBottomlessRegions) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "graph () { region \"r\" () ";
  EXPECT_EQ(error_of(text), "parse: line 1, column 2526: more than 100 nested regions");
}

TEST(ParseError, NamesBrokenRules) {
  EXPECT_EQ(error_of("graph g(%x: f32[s0] user_input 0) { return }"),
            "parse: line 1, column 1: graph g is not well-formed: symbols are declared: symbol s0 "
            "is not declared");
  EXPECT_EQ(error_of("graph g(%x: f32[1] user_input 0, %y: f32[1] user_input 0) { return }"),
            "parse: line 1, column 1: graph g is not well-formed: input roles are unique: input %y "
            "is user_input 0, "
            "and so is an earlier one");
}

// Any prefix of a good text is an error, never a crash.
TEST(ParseError, SurvivesEveryTruncation) {
  std::string text =
      "graph \"a b\"[s0: 2..9 hint 3](%x: cuda:0 f32[s0, 4*s0] (1, s0) param \"p\") {\n"
      "  %y: f32[2] = constant {1.0, nan(0x7fc00001)}  # a.cpp:1\n"
      "  [%a: f32[2], none] = aten.split.Tensor(%x, 2, 0)\n  backward:\n"
      "  %z: f32[2] = region \"r\" (%y) graph (%i: f32[2] user_input 0) {\n    return %i: output "
      "0\n  }\n"
      "  return %z: output 0, none: grad 1 \"p\"\n}";
  EXPECT_NO_THROW(parse(text));
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse(text.substr(0, length)), UserError) << length;
  }
}

}  // namespace
}  // namespace tandem::ir
