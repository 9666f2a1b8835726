/// Passes over recordings of random programs: same bits and strides as without them, by each pass
/// alone and by all in order, and nobody comes to share memory.
#include "passes/registry.h"
#include "pipeline/pipeline.h"
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

namespace tandem::pipeline {
namespace {

using T = at::Tensor;
using Tensors = std::vector<T>;

constexpr int kSteps = 24;

/// A program on 4x4 tensors that does much for nothing: copies, views there and back, writes to
/// parts, factors of one.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {}

  Tensors operator()(const T& x, const T& y) {
    pool_ = {x, y};
    for (int i = 0; i < kSteps; ++i) pool_.push_back(step());
    Tensors results = {pool_.back()};
    for (int i = 0; i < 3; ++i) results.push_back(any() + any());
    return results;
  }

 private:
  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % uint64_t(limit)); }
  T any() { return pool_[static_cast<size_t>(below(static_cast<int64_t>(pool_.size())))]; }

  T step() {
    const T a = any(), b = any();
    const int64_t row = below(4);
    switch (below(28)) {
      case 0:
        return a.t();
      case 1:
        return a.reshape({2, 8}).reshape({4, 4});
      case 2:
        return a.clone();
      case 3:
        return a * 1;
      case 4:
        return a - 0;
      case 5:
        return a + 0;
      case 6:
        return -a;
      case 7:
        return a + b;
      case 8:
        return a * b.sin();
      case 9:
        return a.tanh();
      case 10:
        return torch::cat(a.split(2, row % 2), row % 2);
      case 11:
        return torch::cat({a, b}, 0).split(4)[static_cast<size_t>(below(2))];
      case 12: {
        T c = a.clone();
        c.select(0, row).copy_(b.select(below(2), row));
        return c;
      }
      case 13: {
        T c = a.clone();
        c.slice(below(2), row, row + 2).mul_(2);
        return c + c.select(0, row);
      }
      case 14:
        return a.to(torch::kDouble).to(torch::kFloat);
      case 15:
        return a.to(torch::kBFloat16).to(torch::kFloat).to(torch::kDouble).to(torch::kFloat);
      case 16:
        return a + torch::arange(4) * 2;
      case 17:
        return torch::ones_like(a) * b;
      case 18:
        return a.unsqueeze(0).expand({2, 4, 4}).select(0, 1);
      case 19:
        return a.pow(1);
      case 20:
        return torch::full({4, 4}, 2.0) * a / torch::ones({4});
      case 21:
        return torch::cat({a});
      case 22: {
        T c = a.clone();
        c.copy_(b);
        return c * a;
      }
      case 23: {
        T c = a.clone();
        c.diagonal().add_(1);
        return c;
      }
      case 24:
        return a.permute({1, 0}).contiguous();
      case 25:
        return torch::stack(a.unbind(0), below(2));
      case 26: {
        T c = a.clone();
        c.select(0, row).copy_(b.select(0, 0));
        c.select(0, (row + 1) % 4).copy_(b.select(0, 1));
        return c * c.select(0, row);
      }
      default:
        return a.repeat({1, 1}) - torch::zeros({4, 4});
    }
  }

  std::mt19937_64 random_;
  Tensors pool_;
};

/// As it is recorded, before any pass.
ir::Graph record(uint64_t seed) {
  torch::manual_seed(seed);
  const T x = torch::randn({4, 4}).set_requires_grad(true);
  const T y = torch::randn({4, 4}).t().set_requires_grad(true);
  const detail::FlatFunction flat = detail::Typed<Tensors(T, T)>::flat_function(
      [seed](const T& a, const T& b) { return RandomProgram(seed)(a, b); });
  StageLog log("random", {});
  return capture(Program(flat), detail::flatten<T, T>(x, y), {}, log).joint.graph;
}

/// Numbers for every input, zeros of both signs among them.
Tensors make_inputs(const ir::Graph& graph) {
  torch::manual_seed(7);
  Tensors inputs;
  for (ir::ValueId id : graph.inputs()) {
    const ir::TensorType& type = *graph.value(id).tensor_type();
    T data =
        torch::empty_strided(type.static_sizes(), type.static_strides(), at::dtype(type.dtype));
    data.normal_();
    data.select(0, 0).zero_();
    data.select(0, 1).zero_().neg_();
    inputs.push_back(data);
  }
  return inputs;
}

Tensors run(const ir::Graph& graph, Tensors inputs) {
  return backend("eager")->compile(graph, {})->run(inputs);
}

void expect_same(const ir::Graph& before, const ir::Graph& after, const std::string& what) {
  ASSERT_TRUE(ir::violations(after).empty()) << what << "\n" << ir::print(after);
  const Tensors inputs = make_inputs(before);
  const Tensors expected = run(before, inputs), found = run(after, inputs);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(test::same_bits(found[i], expected[i])) << what << ", output " << i << "\n"
                                                        << ir::print(before) << ir::print(after);
    if (!found[i].defined()) continue;
    ASSERT_EQ(found[i].strides(), expected[i].strides()) << what << ", output " << i;
    for (size_t j = 0; j < i; ++j) {
      if (!found[j].defined() || expected[i].is_alias_of(expected[j])) continue;
      ASSERT_FALSE(found[i].is_alias_of(found[j]))
          << what << ", outputs " << i << " and " << j << "\n"
          << ir::print(after);
    }
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (expected[i].is_alias_of(inputs[j])) continue;
      ASSERT_FALSE(found[i].is_alias_of(inputs[j]))
          << what << ", output " << i << ", input " << j << "\n"
          << ir::print(after);
    }
  }
}

TEST(RandomGraphs, EachPassAndAllOfThemKeepEveryBit) {
  std::map<std::string, int64_t> changes;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const ir::Graph recorded = record(seed);
    for (const PassInfo& pass : passes::all_passes()) {
      if (!pass.exact) continue;
      ir::Graph graph = recorded;
      changes[pass.name] += passes::run_pass(pass, graph).changes;
      expect_same(recorded, graph, std::string(pass.name) + ", seed " + std::to_string(seed));
      if (HasFatalFailure()) return;
    }
    ir::Graph graph = recorded;
    for (const char* name : joint_passes()) passes::run_pass(passes::find_pass(name), graph);
    EXPECT_LE(graph.node_count(), recorded.node_count());
    expect_same(recorded, graph, "all passes, seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
  // A test of nothing would be passed, too.
  for (const auto& [pass, count] : changes) EXPECT_GT(count, 60) << pass;
}

}  // namespace
}  // namespace tandem::pipeline
