/// Fusion of random graphs: groups never wait for each other, steps keep the order that data, draws
/// and writes demand, and the results are eager's.
#include "backends/eager/eager_backend.h"
#include "loops/fusion/step_order.h"
#include "loops/host/kernel_backend.h"
#include "loops/ir/kernel_compiler.h"
#include "ops/op_table.h"
#include "tandem/backend.h"
#include "tandem/expr.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tandem::loops {
namespace {

using at::Tensor;

constexpr int64_t kSize = 64;  // a number for each row, spread over the rows, waits for its reader
constexpr auto kDtype = c10::ScalarType::Double;

/// A graph of what fusion has to tell apart: pointwise work, reductions of rows and columns,
/// numbers spread over a tensor, views, copies from other places, what is left to libtorch, draws,
/// writes.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {}

  ir::Graph make() {
    ir::Graph graph("g");
    Builder builder(graph);
    builder_ = &builder;
    const auto input = [&](c10::ScalarType dtype, std::vector<ir::Size> sizes) {
      const auto index = static_cast<int64_t>(graph.inputs().size());
      const ir::Value& value = graph.add_input(ir::TensorType::contiguous(dtype, std::move(sizes)),
                                               ir::Descriptor::user_input(index));
      return builder.value(value.id());
    };
    for (int i = 0; i < 3; ++i) pool_.push_back(input(kDtype, {kSize, kSize}));
    pool_.push_back(input(kDtype, {1, kSize}));
    pool_.push_back(input(kDtype, {kSize, 1}));
    index_ = input(c10::ScalarType::Long, {kSize});
    for (int i = 0; i < 2; ++i) written_.push_back(input(kDtype, {kSize, kSize}));
    for (int i = 0; i < kSteps; ++i) pool_.push_back(step());
    for (int64_t i = 0; i < 5; ++i) {
      const Expr& x = i < 3 ? pool_[pool_.size() - 1 - static_cast<size_t>(i)] : any();
      graph.add_output(x.id(), ir::Descriptor::output(i));
    }
    return graph;
  }

 private:
  static constexpr int kSteps = 30;

  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % uint64_t(limit)); }
  /// Mostly something new: the graph is deep rather than wide.
  const Expr& any() {
    const auto all = static_cast<int64_t>(pool_.size());
    const int64_t back = below(below(3) == 0 ? all : std::min<int64_t>(all, 6));
    return pool_[static_cast<size_t>(all - 1 - back)];
  }
  Expr spread(const Expr& x) { return expand(x, {kSize, kSize}); }
  /// Of full size.
  Expr full() {
    const Expr& x = any();
    return x.size(0) == kSize && x.size(1) == kSize ? x : spread(x) * 0.5;
  }
  Expr bounded(const Expr& x) { return tanh(x); }

  Expr step() {
    const Expr& a = any();
    switch (below(18)) {
      case 0:
        return bounded(a);
      case 1:
        return a * 0.5;
      case 2:
      case 3:
      case 4:
        return bounded(a + any());
      case 5:
        return a * any();
      case 6:
      case 7:
        return mean(a, {below(2)}, KeepDims::yes);
      case 8:
        return amax(a, {below(2)}, KeepDims::yes);
      case 9:
      case 10:
        return spread(a) * 0.5;
      case 11:
        return builder_->op("t", {a});
      case 12:
        return builder_->op("mm", {full(), full()}) * (1.0 / kSize);
      case 13: {
        const Expr x = full();
        const auto half = [&](int64_t from) {
          return builder_->op("slice.Tensor", {x, int64_t{0}, from, from + kSize / 2});
        };
        const Expr first = half(0), second = half(kSize / 2);
        return builder_->op("cat", {ir::Operand::Values{(-second).id(), first.id()}, int64_t{0}});
      }
      case 14: {
        const Expr x = full();
        if (!x.type().is_contiguous()) return bounded(x);
        return view(view(x, {kSize / 4, 4 * kSize}) * 0.9, {kSize, kSize});
      }
      case 15:
        return builder_->op("index_select", {full(), int64_t{below(2)}, index_});
      case 16:
        return builder_->op("bernoulli.p", {any(), 0.5});
      default: {
        if (written_.empty() || below(3) != 0) return a - any() * 0.25;
        const Expr into = written_.back();
        written_.pop_back();
        builder_->op("copy_", {into, full()});
        return any() * 0.75;
      }
    }
  }

  std::mt19937_64 random_;
  Builder* builder_ = nullptr;
  std::vector<Expr> pool_, written_;
  Expr index_;
};

/// Where each node stands in the order of steps; -1: it takes no step.
std::vector<int32_t> places(const ir::Graph& graph, const FusionPlan& plan,
                            const std::vector<KernelOrNode>& steps) {
  std::vector<int32_t> of_group(plan.groups.size(), -1), place(graph.node_limit(), -1);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].group >= 0) {
      of_group[static_cast<size_t>(steps[i].group)] = static_cast<int32_t>(i);
    } else {
      place[static_cast<size_t>(steps[i].node)] = static_cast<int32_t>(i);
    }
  }
  for (size_t node = 0; node < place.size(); ++node) {
    if (const int32_t group = plan.group_of[node]; group >= 0)
      place[node] = of_group[static_cast<size_t>(group)];
  }
  return place;
}

TEST(RandomFusion, NoGroupWaitsForItself) {
  const std::shared_ptr<KernelCompiler> compiler = make_reference_compiler();
  int64_t fused = 0, members = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const ir::Graph graph = RandomGraph(seed).make();
    const Views views(graph);
    const FusionPlan plan = fuse(graph, views, compiler->target());
    std::vector<KernelOrNode> steps;
    ASSERT_NO_THROW(steps = order_steps(graph, views, plan)) << "seed " << seed << "\n"
                                                             << ir::print(graph);
    const std::vector<int32_t> place = places(graph, plan, steps);
    int32_t last_draw = -1, last_write = -1, latest = -1;
    graph.for_each_node([&](const ir::Node& node) {
      const int32_t here = place[static_cast<size_t>(node.id())];
      if (here < 0) return;
      const bool source = plan.source[static_cast<size_t>(node.id())] != nullptr;
      for (const ir::Operand& operand : node.operands()) {
        operand.for_each_value([&](ir::ValueId id) {
          const ir::Value& value = graph.value(views.behind(id).value);
          if (source || value.is_input()) return;
          const int32_t made = place[static_cast<size_t>(value.producer())];
          const bool together = plan.group_of[static_cast<size_t>(node.id())] >= 0 && made == here;
          EXPECT_TRUE(made < here || together) << "seed " << seed << "\n" << ir::print(graph);
        });
      }
      if (!source) EXPECT_GT(here, last_write) << "seed " << seed;
      const ops::OpInfo& info = ops::info(node.op());
      if (info.must_happen()) {
        EXPECT_GT(here, last_draw) << "seed " << seed;
        last_draw = here;
      }
      if (info.writes()) {
        EXPECT_GE(here, latest) << "seed " << seed;
        last_write = here;
      }
      if (!source) latest = std::max(latest, here);
    });
    for (const KernelGroup& group : plan.groups) {
      fused += group.members.size() > 1 ? 1 : 0;
      members += static_cast<int64_t>(group.members.size());
    }
    if (HasFailure()) return;
  }
  // A test of nothing would be passed, too.
  EXPECT_GT(fused, 2000);
  EXPECT_GT(members, 3 * fused);
}

TEST(RandomFusion, GivesEagersResults) {
  const auto engine = make_backend(make_reference_compiler(), backends::eager::make_backend());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ir::Graph graph = RandomGraph(seed).make();
    const auto run = [&](Backend& backend) {
      torch::manual_seed(static_cast<int64_t>(seed));
      std::vector<Tensor> inputs;
      for (ir::ValueId id : graph.inputs()) {
        const ir::TensorType& type = *graph.value(id).tensor_type();
        inputs.push_back(type.dtype == c10::ScalarType::Long
                             ? torch::randint(kSize, type.static_sizes())
                             : torch::randn(type.static_sizes(), kDtype));
      }
      std::vector<Tensor> given = inputs;
      std::vector<Tensor> results = backend.compile(graph, {})->run(given);
      results.insert(results.end(), inputs.begin(), inputs.end());  // some were written
      return results;
    };
    const std::vector<Tensor> expected = run(*backend("eager")), found = run(*engine);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].strides(), expected[i].strides()) << "seed " << seed;
      ASSERT_TRUE(at::allclose(found[i], expected[i], 1e-10, 1e-10))
          << "seed " << seed << ", result " << i << "\n"
          << ir::print(graph);
    }
  }
}

}  // namespace
}  // namespace tandem::loops
