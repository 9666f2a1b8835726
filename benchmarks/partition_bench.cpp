// Transformers of growing depth, from about 1,000 to 100,000 nodes: what capturing them takes, and
// what cutting them in two takes. Counters: nodes of the joint graph, bytes saved for the backward.

#include "models.h"
#include "tandem/tandem.h"

#include <benchmark/benchmark.h>

#include <tuple>

namespace {

tandem::Joint capture(int64_t blocks) {
  torch::manual_seed(0);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < blocks; ++i) net->push_back(bench::PlainBlock(32, 4));
  const at::Tensor x = torch::randn({2, 16, 32});
  return tandem::export_joint(
      [net](const at::Tensor& input) mutable { return net->forward(input).pow(2).mean(); },
      std::tuple{x});
}

void count(benchmark::State& state, const tandem::Joint& joint) {
  const auto nodes = static_cast<int64_t>(joint.graph.node_count());
  state.counters["nodes"] = static_cast<double>(nodes);
  state.SetItemsProcessed(state.iterations() * nodes);
}

void BM_Capture(benchmark::State& state) {
  tandem::Joint joint;
  for (auto _ : state) joint = capture(state.range(0));
  count(state, joint);
}

void cut(benchmark::State& state, const tandem::Partitioner& partitioner) {
  const tandem::Joint joint = capture(state.range(0));
  const tandem::Options options;
  tandem::Split parts;
  for (auto _ : state) parts = partitioner(joint, options);
  count(state, joint);
  int64_t bytes = 0;
  for (const tandem::Saved& saved : parts.saved) bytes += saved.bytes;
  state.counters["saved_bytes"] = static_cast<double>(bytes);
}

void BM_DefaultPartition(benchmark::State& state) { cut(state, tandem::default_partition); }
void BM_MinCut(benchmark::State& state) { cut(state, tandem::min_cut_recompute); }

#define TANDEM_PARTITION_BENCHMARK(name) \
  BENCHMARK(name)->Arg(8)->Arg(80)->Arg(800)->Unit(benchmark::kMillisecond)
TANDEM_PARTITION_BENCHMARK(BM_Capture);
TANDEM_PARTITION_BENCHMARK(BM_DefaultPartition);
TANDEM_PARTITION_BENCHMARK(BM_MinCut);

}  // namespace
