#include "support/error_text.h"
#include "support/graph_surgeon.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ir {
namespace {

/// %x -> sin -> %y -> cos -> %z; a constant %c; a region %r of %z.
Graph sample() {
  return parse(R"(
    graph g(%x: f32[4] user_input 0, %u: f32[4] user_input 1) {
      %y: f32[4] = aten.sin(%x)
      %z: f32[4] = aten.add.Tensor(%y, %y, alpha=1)
      %c: f32[2] = constant {1.0, 2.0}
      %r: f32[4] = region "r" (%z) graph (%a: f32[4] user_input 0) {
        %b: f32[4] = aten.sin(%a)
        return %b: output 0
      }
      return %r: output 0, %z: saved 0
    })");
}

constexpr NodeId kSin{0}, kAdd{1}, kConstant{2}, kRegion{3};
constexpr ValueId kX{0}, kU{1}, kY{2}, kC{4}, kR{5};

std::vector<std::string> rules(const Graph& graph) {
  std::vector<std::string> names;
  for (const Violation& violation : violations(graph)) {
    EXPECT_TRUE(violation.text.find(violation.rule) != std::string::npos) << violation.text;
    if (names.empty() || names.back() != violation.rule) names.push_back(violation.rule);
  }
  return names;
}

using Rules = std::vector<std::string>;

TEST(Verify, AcceptsAWellFormedGraph) {
  Graph graph = sample();
  EXPECT_EQ(rules(graph), Rules());
  EXPECT_NO_THROW(verify(graph));
  EXPECT_EQ(rules(Graph()), Rules());
}

TEST(Verify, NodesFormOneList) {
  Graph graph = sample();
  GraphSurgeon::next(graph.node(kSin)) = kConstant;
  EXPECT_EQ(rules(graph), Rules{"nodes form one list"});
  Graph count = sample();
  GraphSurgeon::node_count(count) = 7;
  EXPECT_EQ(rules(count), Rules{"nodes form one list"});
  Graph cycle = sample();
  GraphSurgeon::next(cycle.node(kRegion)) = kSin;
  EXPECT_EQ(rules(cycle), Rules{"nodes form one list"});
}

TEST(Verify, ValuesAreDefinedOnce) {
  Graph graph = sample();
  GraphSurgeon::results(graph.node(kAdd))[0] = kY;
  EXPECT_EQ(rules(graph)[0], "values are defined once");
  Graph input = sample();
  GraphSurgeon::inputs(input)[1] = kY;
  EXPECT_EQ(rules(input)[0], "values are defined once");
}

TEST(Verify, OperandsAreDefinedBeforeUse) {
  Graph graph = sample();
  graph.move_before(graph.node(kAdd), graph.node(kSin));
  auto found = violations(graph);
  ASSERT_EQ(found.size(), 2u) << "once per mention";
  EXPECT_EQ(found[0].rule, "operands are defined before use");
  EXPECT_EQ(found[0].node, kAdd);
  EXPECT_EQ(found[0].text,
            "operands are defined before use: %y is not defined before its use; node %z: f32[4] = "
            "aten.add.Tensor(%y, %y, alpha=1)");
}

TEST(Verify, OperandsExist) {
  Graph graph = sample();
  GraphSurgeon::operands(graph.node(kSin))[0] = ValueId{99};
  EXPECT_EQ(rules(graph)[0], "operands are defined before use");
}

TEST(Verify, UseListsMatchOperandsAndOutputs) {
  Rules expected{"use lists match operands and outputs"};
  Graph missing = sample();
  GraphSurgeon::users(missing.value(kX)).clear();
  EXPECT_EQ(rules(missing), expected);
  Graph wrong = sample();
  GraphSurgeon::users(wrong.value(kX))[0] = kAdd;
  EXPECT_EQ(rules(wrong), expected);
  Graph extra = sample();
  GraphSurgeon::users(extra.value(kX)).push_back(kAdd);
  GraphSurgeon::mentions(extra.value(kX)).push_back(0);
  EXPECT_EQ(rules(extra), expected);
  Graph unread = sample();
  GraphSurgeon::users(unread.value(kU)).push_back(kAdd);
  EXPECT_EQ(rules(unread), expected);
  Graph output = sample();
  GraphSurgeon::output_positions(output.value(kR)).clear();
  EXPECT_EQ(rules(output), expected);
  Graph more = sample();
  GraphSurgeon::output_positions(more.value(kU)).push_back(0);
  EXPECT_EQ(rules(more), expected);
}

TEST(Verify, OperandsMatchTheSchema) {
  Rules expected{"operands match the schema"};
  Graph few = sample();
  GraphSurgeon::operands(few.node(kAdd)).pop_back();
  EXPECT_EQ(rules(few), expected);
  Graph kind = sample();
  kind.set_operand(kind.node(kAdd), 2, std::string("one"));
  EXPECT_EQ(
      violations(kind)[0].text,
      "operands match the schema: argument alpha of aten.add.Tensor is a number; node %z: f32[4] = "
      "aten.add.Tensor(%y, %y, alpha=\"one\")");
  Graph tensor_for_number = sample();
  tensor_for_number.set_operand(tensor_for_number.node(kAdd), 2, kY);
  EXPECT_EQ(rules(tensor_for_number), expected);
  Graph number_for_tensor = sample();
  number_for_tensor.set_type(kX, Type::of(TypeKind::Int));
  EXPECT_EQ(rules(number_for_tensor), expected);
  Graph absent = sample();
  absent.set_operand(absent.node(kAdd), 2, Operand());
  EXPECT_EQ(rules(absent), expected);
}

TEST(Verify, AcceptsAnUndefinedTensor) {
  Graph graph = sample();
  graph.set_operand(graph.node(kAdd), 1, Operand());
  EXPECT_EQ(rules(graph), Rules());
}

TEST(Verify, ResultsMatchTheSchema) {
  Rules expected{"results match the schema"};
  Graph shape = sample();
  GraphSurgeon::result_shape(shape.node(kSin)) = {1};
  EXPECT_EQ(rules(shape), expected);
  Graph count = sample();
  GraphSurgeon::result_shape(count.node(kSin)) = {kSingle, kSingle};
  EXPECT_EQ(rules(count), expected);
  Graph kind = parse("graph g(%x: f32[4] user_input 0) { %n: int = aten.size.int(%x, 0) return }");
  kind.set_type(ValueId{1}, kind.value(ValueId{0}).type());
  EXPECT_EQ(rules(kind), expected);
}

TEST(Verify, ValuesHaveTypes) {
  Graph graph = sample();
  graph.set_type(kC, Type());
  EXPECT_EQ(rules(graph), (Rules{"constants match their type", "values have types"}));
  Graph strides = sample();
  TensorType type = *strides.value(kU).tensor_type();
  type.strides.clear();
  strides.set_type(kU, type);
  EXPECT_EQ(rules(strides), Rules{"values have types"});
}

TEST(Verify, InputRolesAreUniqueAndFit) {
  Graph twice = sample();
  twice.set_input_role(kU, Descriptor::user_input(0));
  EXPECT_EQ(violations(twice)[0].text,
            "input roles are unique: input %u is user_input 0, and so is an earlier one");
  Graph input = sample();
  input.set_input_role(kU, Descriptor::output(0));
  EXPECT_EQ(violations(input)[0].text, "roles fit inputs and outputs: input %u is output 0");
  Graph output = sample();
  GraphSurgeon::outputs(output)[0].role = Descriptor::tangent(0);
  EXPECT_EQ(violations(output)[0].text, "roles fit inputs and outputs: output 0 is tangent 0");
}

TEST(Verify, OutputsAreDefined) {
  Graph graph = sample();
  GraphSurgeon::outputs(graph)[0].value = ValueId{77};
  EXPECT_EQ(violations(graph)[0].text,
            "outputs are defined: output 0 (output 0) is %undefined.77, which nothing defines");
}

TEST(Verify, SymbolsAreDeclared) {
  Size s0 = Size::symbol("s0");
  Graph type = sample();
  type.set_type(kU, TensorType::contiguous(at::kFloat, {s0}));
  EXPECT_EQ(violations(type)[0].text, "symbols are declared: symbol s0 is not declared");
  type.add_symbol({"s0"});
  EXPECT_EQ(rules(type), Rules());
  type.add_symbol({"s0"});
  EXPECT_EQ(violations(type)[0].text, "symbols are declared: symbol s0 is declared twice");
  Graph operand = sample();
  operand.set_operand(operand.node(kAdd), 2, s0);
  EXPECT_EQ(rules(operand), Rules{"symbols are declared"});
}

TEST(Verify, RegionsMatchTheirOperandsAndResults) {
  Rules expected{"regions match their operands and results"};
  Graph arity = sample();
  GraphSurgeon::set_region(arity.node(kRegion), Graph("empty"));
  EXPECT_EQ(rules(arity), expected);
  Graph type = sample();
  type.set_operand(type.node(kRegion), 0, kC);
  EXPECT_EQ(rules(type), expected);
  Graph result = sample();
  result.set_type(kR, TensorType::contiguous(at::kFloat, {5}));
  EXPECT_EQ(rules(result), expected);
}

TEST(Verify, LooksIntoRegions) {
  Graph graph = sample();
  Graph body = graph.node(kRegion).region();
  body.move_before(body.node(NodeId{0}), body.node(NodeId{0}));
  GraphSurgeon::operands(body.node(NodeId{0})).clear();
  GraphSurgeon::set_region(graph.node(kRegion), body);
  auto found = violations(graph);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].node, kRegion);
  EXPECT_TRUE(found[0].text.starts_with("in region \"r\": ")) << found[0].text;
}

// A body may use the symbols of the graph around it.
TEST(Verify, SeesOuterSymbolsInRegions) {
  EXPECT_NO_THROW(parse(R"(
    graph g[s0: 2..9](%x: f32[s0] user_input 0) {
      %r: f32[s0] = region "r" (%x) graph (%a: f32[s0] user_input 0) { return %a: output 0 }
      return %r: output 0
    })"));
}

TEST(Verify, ConstantsMatchTheirType) {
  Graph graph = sample();
  GraphSurgeon::constant(graph.node(kConstant)) = at::zeros({3});
  EXPECT_EQ(violations(graph)[0].text,
            "constants match their type: the tensor is f32[3]; node %c: f32[2] = constant {0.0, "
            "0.0, 0.0}");
}

TEST(Verify, RaisesWithTheFirstViolations) {
  Graph graph = sample();
  graph.set_input_role(kU, Descriptor::user_input(0));
  EXPECT_EQ(
      test::error_text<InternalError>([&] { verify(graph, "passes"); }),
      "passes: graph g is not well-formed\n"
      "  rule:   input roles are unique: input %u is user_input 0, and so is an earlier one\n"
      "  remedy: this is a defect of Tandem; please report it with the program that shows it");
}

}  // namespace
}  // namespace tandem::ir
