// Graphs of growing length: every time per node should stay the same from 1,000 to 100,000 nodes.

#include "tandem/ir/graph.h"
#include "tandem/ir/text.h"

#include <benchmark/benchmark.h>

#include <string>

namespace {

using namespace tandem;

/// Layers of linear, gelu, dropout mask and residual sum: what a recording of a transformer looks
/// like.
ir::Graph build(int64_t nodes) {
  auto op = [](const char* name, const char* overload) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  };
  c10::OperatorHandle addmm = op("aten::addmm", "");
  c10::OperatorHandle gelu = op("aten::gelu", "");
  c10::OperatorHandle mul = op("aten::mul", "Tensor");
  c10::OperatorHandle add = op("aten::add", "Tensor");

  ir::Graph graph("bench.joint");
  auto type = std::make_shared<const ir::TensorType>(
      ir::TensorType::contiguous(c10::ScalarType::Float, {128, 512}));
  auto square = std::make_shared<const ir::TensorType>(
      ir::TensorType::contiguous(c10::ScalarType::Float, {512, 512}));
  ir::ValueId x = graph.add_input(type, ir::Descriptor::user_input(0), "x").id();
  ir::ValueId w = graph.add_input(square, ir::Descriptor::param("fc.weight"), "w").id();
  ir::ValueId last = x;
  for (int64_t i = 0; i < nodes; ++i) {
    ir::OpSpec spec{.op = add, .results = {ir::Type(type)}, .location = {"net.cpp", 1 + i % 50}};
    switch (i % 4) {
      case 0:
        spec.op = addmm;
        spec.operands = {x, last, w, 1, 1};
        break;
      case 1:
        spec.op = gelu;
        spec.operands = {last, "none"};
        break;
      case 2:
        spec.op = mul;
        spec.operands = {last, 1.25};
        break;
      default:
        spec.operands = {last, x, 1};
    }
    last = graph.add_op(std::move(spec)).results()[0];
  }
  graph.add_output(last, ir::Descriptor::output(0));
  return graph;
}

/// Time per node beside the time per run.
void count_nodes(benchmark::State& state) {
  state.SetComplexityN(state.range(0));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void BM_Build(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(build(state.range(0)).node_count());
  count_nodes(state);
}

void BM_Copy(benchmark::State& state) {
  ir::Graph graph = build(state.range(0));
  for (auto _ : state) {
    ir::Graph copy = graph;
    benchmark::DoNotOptimize(copy.node_count());
  }
  count_nodes(state);
}

void BM_Print(benchmark::State& state) {
  ir::Graph graph = build(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ir::print(graph).size());
  count_nodes(state);
}

void BM_Parse(benchmark::State& state) {
  std::string text = ir::print(build(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(ir::parse(text).node_count());
  count_nodes(state);
}

void BM_Verify(benchmark::State& state) {
  ir::Graph graph = build(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ir::violations(graph).empty());
  count_nodes(state);
}

void BM_Hash(benchmark::State& state) {
  ir::Graph graph = build(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ir::structural_hash(graph));
  count_nodes(state);
}

/// Erases front to back, so that a search of the users of `x` would be as long as it can be.
void BM_EraseReaders(benchmark::State& state) {
  ir::Graph readers("readers");
  auto type = std::make_shared<const ir::TensorType>(
      ir::TensorType::contiguous(c10::ScalarType::Float, {4}));
  ir::ValueId x = readers.add_input(type, ir::Descriptor::user_input(0)).id();
  c10::OperatorHandle sin = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sin", "");
  for (int64_t i = 0; i < state.range(0); ++i) {
    readers.add_op({.op = sin, .operands = {x}, .results = {ir::Type(type)}});
  }
  for (auto _ : state) {
    state.PauseTiming();
    ir::Graph graph = readers;
    state.ResumeTiming();
    graph.for_each_node([&](ir::Node& node) { graph.erase(node); });
  }
  count_nodes(state);
}

#define TANDEM_IR_BENCHMARK(name) \
  BENCHMARK(name)                 \
      ->RangeMultiplier(10)       \
      ->Range(1000, 100000)       \
      ->Complexity(benchmark::oN) \
      ->Unit(benchmark::kMillisecond)

TANDEM_IR_BENCHMARK(BM_Build);
TANDEM_IR_BENCHMARK(BM_Copy);
TANDEM_IR_BENCHMARK(BM_Print);
TANDEM_IR_BENCHMARK(BM_Parse);
TANDEM_IR_BENCHMARK(BM_Verify);
TANDEM_IR_BENCHMARK(BM_Hash);
TANDEM_IR_BENCHMARK(BM_EraseReaders);

}  // namespace
