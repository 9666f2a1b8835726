// Transformers of growing depth, from about 1,000 to 100,000 nodes: what capturing them takes, and
// what cutting them in two takes. Counters: nodes of the joint graph, bytes saved for the backward.
// BM_Stages takes the times of a whole compile from stats(): capture (trace, signature, joint),
// each pass, the cut, and how often the capture goes into passes and cut.

#include "models.h"
#include "tandem/tandem.h"

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace {

// Graphs as they are recorded: no op is written as others.
tandem::Options options_with(tandem::Partitioner partitioner = tandem::min_cut) {
  return {.backend = "eager", .partitioner = std::move(partitioner)};
}

auto make_step(int64_t blocks) {
  torch::manual_seed(0);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < blocks; ++i) net->push_back(bench::PlainBlock(32, 4));
  return [net](const at::Tensor& input) mutable { return net->forward(input).pow(2).mean(); };
}

at::Tensor make_input() { return torch::randn({2, 16, 32}); }

tandem::Joint capture(int64_t blocks) {
  return tandem::export_joint(make_step(blocks), std::tuple{make_input()}, options_with());
}

void stages(benchmark::State& state, const tandem::Partitioner& partitioner) {
  const auto step = make_step(state.range(0));
  const at::Tensor x = make_input();
  std::map<std::string, double> seconds;
  size_t nodes = 0;
  for (auto _ : state) {
    auto compiled = tandem::compile<at::Tensor(at::Tensor)>(step, options_with(partitioner));
    compiled.prepare(x);
    for (const auto& [stage, time] : compiled.stats().seconds) seconds[stage] += time;
    nodes = compiled.entries()[0].joint().node_count();
  }
  const double rounds = static_cast<double>(state.iterations());
  const double capture = seconds["trace"] + seconds["signature"] + seconds["joint"];
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["capture_ms"] = 1e3 * capture / rounds;
  state.counters["passes_ms"] = 1e3 * seconds["passes"] / rounds;
  state.counters["cut_ms"] = 1e3 * seconds["partition"] / rounds;
  state.counters["rest_to_capture"] = (seconds["passes"] + seconds["partition"]) / capture;
  for (const auto& [stage, time] : seconds) {
    if (stage.starts_with("passes/")) state.counters[stage + "_ms"] = 1e3 * time / rounds;
  }
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
  const tandem::Options options = options_with();
  tandem::Split parts;
  for (auto _ : state) parts = partitioner(joint, options);
  count(state, joint);
  int64_t bytes = 0;
  for (const tandem::Saved& saved : parts.saved) bytes += saved.bytes;
  state.counters["saved_bytes"] = static_cast<double>(bytes);
}

void BM_DefaultPartition(benchmark::State& state) { cut(state, tandem::default_partition); }
void BM_MinCut(benchmark::State& state) { cut(state, tandem::min_cut_recompute); }

void BM_Stages(benchmark::State& state) { stages(state, tandem::min_cut); }
void BM_StagesRecompute(benchmark::State& state) { stages(state, tandem::min_cut_recompute); }

#define TANDEM_PARTITION_BENCHMARK(name) \
  BENCHMARK(name)->Arg(9)->Arg(12)->Arg(94)->Arg(935)->Unit(benchmark::kMillisecond)
TANDEM_PARTITION_BENCHMARK(BM_Capture);
TANDEM_PARTITION_BENCHMARK(BM_DefaultPartition);
TANDEM_PARTITION_BENCHMARK(BM_MinCut);
TANDEM_PARTITION_BENCHMARK(BM_Stages);
TANDEM_PARTITION_BENCHMARK(BM_StagesRecompute);

}  // namespace
