#include "tandem/ir/graph.h"

#include "support/error_text.h"
#include "support/graph_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>

namespace tandem::ir {
namespace {

c10::OperatorHandle op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

Graph chain() {
  return parse(R"(
    graph g(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      %a: f32[4] = aten.sin(%x)
      %b: f32[4] = aten.cos(%a)
      %c: f32[4] = aten.add.Tensor(%a, %a, alpha=1)
      return %b: output 0, %c: output 1
    })");
}

constexpr ValueId kX{0}, kY{1}, kA{2}, kB{3}, kC{4};
constexpr NodeId kSin{0}, kCos{1}, kAdd{2};

std::vector<NodeId> sorted_users(const Graph& graph, ValueId id) {
  std::vector<NodeId> users(graph.value(id).users().begin(), graph.value(id).users().end());
  std::sort(users.begin(), users.end());
  return users;
}

template <class Fn>
std::string internal_error(Fn&& fn) {
  std::string text = test::error_text<InternalError>(fn);
  return text.substr(0, text.find('\n'));
}

TEST(Graph, KnowsWhoReadsAValue) {
  Graph graph = chain();
  EXPECT_EQ(sorted_users(graph, kA), (std::vector<NodeId>{kCos, kAdd, kAdd})) << "once per mention";
  EXPECT_EQ(graph.value(kB).output_uses(), 1);
  EXPECT_FALSE(graph.value(kY).has_users());
  EXPECT_EQ(graph.value(kA).producer(), kSin);
  EXPECT_TRUE(graph.value(kX).is_input());
}

TEST(Graph, CopiesAsAValue) {
  Graph graph = chain();
  Graph copy = graph;
  copy.set_output(0, kX);
  copy.set_output(1, kX);
  copy.erase(copy.node(kAdd));
  copy.erase(copy.node(kCos));
  copy.erase(copy.node(kSin));
  EXPECT_EQ(copy.node_count(), 0u);
  EXPECT_EQ(graph.node_count(), 3u);
  verify(graph);
  verify(copy);
}

TEST(Graph, ErasesNodesThatNobodyReads) {
  Graph graph = chain();
  graph.set_output(0, kA);
  graph.erase(graph.node(kCos));
  EXPECT_TRUE(graph.node(kCos).erased());
  EXPECT_EQ(graph.next(kSin), kAdd);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      %a: f32[4] = aten.sin(%x)
      %c: f32[4] = aten.add.Tensor(%a, %a, alpha=1)
      return %a: output 0, %c: output 1
    })");
  verify(graph);
}

TEST(Graph, RefusesToEraseWhatIsRead) {
  Graph graph = chain();
  EXPECT_EQ(internal_error([&] { graph.erase(graph.node(kSin)); }),
            "ir: result 0 of node 0 is still read");
  EXPECT_EQ(internal_error([&] { graph.erase(graph.node(kCos)); }),
            "ir: result 0 of node 1 is still read");
  EXPECT_EQ(internal_error([&] { graph.erase_input(kX); }), "ir: input 0 of graph g is still read");
  verify(graph);
}

TEST(Graph, ErasesAndReordersInputs) {
  Graph graph = chain();
  graph.reorder_inputs({kY, kX});
  EXPECT_EQ(graph.input_role(kX), Descriptor::user_input(0));
  EXPECT_EQ(graph.inputs()[0], kY);
  EXPECT_EQ(internal_error([&] { graph.reorder_inputs({kX, kX}); }),
            "ir: input 1 of graph g comes twice in its new order");
  EXPECT_EQ(internal_error([&] { graph.reorder_inputs({kX}); }),
            "ir: new order of 1 inputs for graph g with 2");
  graph.erase_input(kY);
  EXPECT_EQ(graph.inputs().size(), 1u);
  EXPECT_EQ(graph.input_role(kX), Descriptor::user_input(0));
  EXPECT_EQ(internal_error([&] { graph.input_role(kY); }),
            "ir: value 1 is not an input of graph g");
  EXPECT_EQ(internal_error([&] { graph.input_role(kA); }),
            "ir: value 2 is not an input of graph g");
  graph.set_input_role(kX, Descriptor::param("w"));
  EXPECT_EQ(to_string(graph.input_role(kX)), "param \"w\"");
  verify(graph);
}

TEST(Graph, InsertsBeforeTheInsertPoint) {
  Graph graph = chain();
  graph.set_insert_point(kCos);
  Type type = graph.value(kX).type();
  Node& first =
      graph.add_op({.op = op("aten::exp"), .operands = {kA}, .results = {type}, .names = {"n"}});
  graph.add_constant(at::zeros({1}));
  graph.set_insert_point(kNoNode);
  graph.add_op({.op = op("aten::tanh"), .operands = {first.results()[0]}, .results = {type}});
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      %a: f32[4] = aten.sin(%x)
      %n: f32[4] = aten.exp(%a)
      %z: f32[1] = constant {0.0}
      %b: f32[4] = aten.cos(%a)
      %c: f32[4] = aten.add.Tensor(%a, %a, alpha=1)
      %t: f32[4] = aten.tanh(%n)
      return %b: output 0, %c: output 1
    })");
  verify(graph);
}

TEST(Graph, KeepsTheInsertPointWhenItsNodeGoes) {
  Graph graph = chain();
  graph.set_output(0, kA);
  graph.set_insert_point(kCos);
  graph.erase(graph.node(kCos));
  Node& added =
      graph.add_op({.op = op("aten::exp"), .operands = {kA}, .results = {graph.value(kX).type()}});
  EXPECT_EQ(graph.next(added.id()), kAdd);
}

TEST(Graph, MovesNodes) {
  Graph graph = chain();
  graph.move_before(graph.node(kAdd), graph.node(kCos));
  EXPECT_EQ(graph.next(kSin), kAdd);
  EXPECT_EQ(graph.next(kAdd), kCos);
  EXPECT_EQ(graph.last_node(), kCos);
  graph.move_before(graph.node(kAdd), graph.node(kAdd));
  EXPECT_EQ(graph.next(kSin), kAdd);
  verify(graph);
}

TEST(Graph, ReplacesEveryUse) {
  Graph graph = chain();
  graph.replace_all_uses(kA, kY);
  EXPECT_FALSE(graph.value(kA).has_users());
  EXPECT_EQ(sorted_users(graph, kY), (std::vector<NodeId>{kCos, kAdd, kAdd}));
  graph.replace_all_uses(kB, kC);
  EXPECT_EQ(graph.value(kC).output_uses(), 2);
  EXPECT_EQ(graph.outputs()[0].value, kC);
  graph.replace_all_uses(kC, kC);
  verify(graph);
}

TEST(Graph, ReplacesOperands) {
  Graph graph = chain();
  graph.set_operand(graph.node(kAdd), 1, kX);
  EXPECT_EQ(sorted_users(graph, kA), (std::vector<NodeId>{kCos, kAdd}));
  graph.set_operand(graph.node(kAdd), 0, Operand());
  EXPECT_EQ(sorted_users(graph, kA), (std::vector<NodeId>{kCos}));
  EXPECT_EQ(internal_error([&] { graph.set_operand(graph.node(kSin), 1, kX); }),
            "ir: operand 1 of a node with 1");
  verify(graph);
}

TEST(Graph, ReplacesValuesInLists) {
  Graph graph = parse(R"(
    graph g(%x: f32[4] user_input 0, %y: f32[4] user_input 1) {
      %a: f32[12] = aten.cat([%x, %y, %x], 0)
      return %a: output 0
    })");
  graph.replace_all_uses(kX, kY);
  EXPECT_EQ(graph.value(kY).users().size(), 3u);
  EXPECT_EQ(graph.node(NodeId{0}).operands()[0], Operand(Operand::Values{kY, kY, kY}));
  verify(graph);
}

TEST(Graph, SetsOutputs) {
  Graph graph = chain();
  graph.set_outputs(
      {{kX, Descriptor::output(0)}, {kNoValue, Descriptor::grad(1)}, {kX, Descriptor::saved(0)}});
  EXPECT_EQ(graph.value(kX).output_uses(), 2);
  EXPECT_EQ(graph.value(kB).output_uses(), 0);
  graph.set_output(1, kY);
  EXPECT_EQ(graph.value(kY).output_uses(), 1);
  verify(graph);
}

TEST(Graph, KeepsOneEntryPerGenerator) {
  Graph graph("g");
  at::Generator one = at::make_generator<at::CPUGeneratorImpl>(1);
  at::Generator two = at::make_generator<at::CPUGeneratorImpl>(2);
  EXPECT_EQ(graph.add_generator(one), GeneratorRef{0});
  EXPECT_EQ(graph.add_generator(two), GeneratorRef{1});
  EXPECT_EQ(graph.add_generator(one), GeneratorRef{0});
  graph.bind_generator(GeneratorRef{3}, one);
  EXPECT_EQ(graph.generators().size(), 4u);
  EXPECT_FALSE(graph.generators()[2].defined());
}

TEST(Graph, RefusesConstantsWithoutText) {
  Graph graph("g");
  EXPECT_EQ(internal_error([&] { graph.add_constant({}); }),
            "ir: a constant cannot be an undefined tensor");
  auto unsupported = [&](const at::Tensor& tensor) {
    return test::error_text<UnsupportedError>([&] { graph.add_constant(tensor); });
  };
  EXPECT_EQ(unsupported(at::zeros({2}).to_sparse()),
            "ir: a constant of type sparse_coo f32[2] cannot be part of a graph\n"
            "  remedy: pass it as an argument of the function");
  EXPECT_EQ(unsupported(at::zeros({2}, at::kComplexFloat).conj()),
            "ir: a constant of type c64[2] that is a lazy conjugate or negation cannot be part of "
            "a graph\n"
            "  remedy: pass it as an argument of the function");
  EXPECT_EQ(graph.node_count(), 0u);
}

TEST(Graph, RefusesResultsThatDoNotFitTheirShape) {
  Graph graph = chain();
  Type type = graph.value(kX).type();
  EXPECT_EQ(internal_error([&] {
              graph.add_op({.op = op("aten::split", "Tensor"), .results = {type}, .shape = {2}});
            }),
            "ir: aten::split.Tensor: 1 results for a shape of 2");
}

// Random edits, each checked by the verifier, whose use-list rule knows nothing of how they are
// done.
TEST(Graph, StaysWellFormedUnderRandomEdits) {
  std::mt19937 random(3);
  Graph graph = chain();
  Type type = graph.value(kX).type();
  auto any = [&] {
    // Inputs are defined everywhere.
    return random() % 2 ? kX : kY;
  };
  for (int i = 0; i < 500; ++i) {
    NodeId id{static_cast<int32_t>(random() % graph.node_limit())};
    Node& node = graph.node(id);
    switch (random() % 6) {
      case 0:
        graph.set_insert_point(node.erased() ? kNoNode : id);
        graph.add_op({.op = op("aten::cat"),
                      .operands = {Operand::Values{any(), any(), any()}, Size(0)},
                      .results = {type}});
        break;
      case 1:
        if (!node.erased())
          graph.set_operand(node, 0,
                            node.op().schema().name() == "aten::cat"
                                ? Operand(Operand::Values{any()})
                                : Operand(any()));
        break;
      case 2:
        if (!node.erased() && !graph.value(node.results()[0]).has_users()) graph.erase(node);
        break;
      case 3:
        graph.replace_all_uses(any(), any());
        break;
      case 4:
        if (!node.erased() && graph.value(node.results()[0]).users().empty() &&
            graph.last_node() != kNoNode) {
          graph.move_before(node, graph.node(graph.last_node()));
        }
        break;
      default:
        if (!node.erased()) graph.replace_all_uses(node.results()[0], any());
        graph.set_output(0, any());
    }
    ASSERT_NO_THROW(verify(graph)) << "edit " << i;
  }
}

// In an order that would make any search of the list of readers long; benchmarks/ir_bench.cpp has
// the times.
TEST(Graph, EditsAValueWithManyReaders) {
  Graph graph("g");
  Type type = TensorType::contiguous(at::kFloat, {4});
  ValueId x = graph.add_input(type, Descriptor::user_input(0)).id();
  ValueId y = graph.add_input(type, Descriptor::user_input(1)).id();
  auto sin = op("aten::sin");
  constexpr int kReaders = 20000;
  for (int i = 0; i < kReaders; ++i) graph.add_op({.op = sin, .operands = {x}, .results = {type}});
  for (int i = 0; i < kReaders; i += 2) graph.set_operand(graph.node(NodeId{i}), 0, y);
  EXPECT_EQ(graph.value(x).users().size(), static_cast<size_t>(kReaders / 2));
  verify(graph);
  graph.for_each_node([&](Node& node) { graph.erase(node); });
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_FALSE(graph.value(x).has_users());
}

}  // namespace
}  // namespace tandem::ir
