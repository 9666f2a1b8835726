#include "ops/memory/memory_roots.h"
#include "partition/keeping.h"
#include "partition/min_cut/choose_saved.h"
#include "partition/min_cut/cut_graph.h"
#include "partition/min_cut/flow_network.h"
#include "partition/min_cut/keeping_weights.h"
#include "partition/min_cut/min_cut.h"
#include "partition/min_cut/recompute_rules.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

/// The cut against all that there are, on graphs small enough to try them.
namespace tandem::partition {
namespace {

class RandomJoint {
 public:
  explicit RandomJoint(uint32_t seed) : random_(seed) {
    out_ << "graph g.joint(%x: f32[4, 4] user_input 0, %w: f32[4, 4] param \"w\", "
            "%dy: f32[4, 4] tangent 0) {\n";
    values_ = {"x", "w"};
    forward();
    out_ << "backward:\n";
    backward();
  }
  std::string text() const { return out_.str(); }

 private:
  int64_t pick(int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random_);
  }
  const std::string& any() { return values_[static_cast<size_t>(pick(std::ssize(values_)))]; }
  std::string add(const std::string& type, const std::string& call) {
    std::string name = "v" + std::to_string(count_++);
    out_ << "  %" << name << ": " << type << " = " << call << "\n";
    return name;
  }
  std::string random_op() {
    switch (pick(8)) {
      case 0:
        return add("f32[4, 4]", "aten.mm(%" + any() + ", %" + any() + ")");
      case 1:
        return add("f32[4, 4]", "aten.rand_like(%" + any() +
                                    ", dtype=none, layout=none, device=none, pin_memory=none, "
                                    "memory_format=none)");
      case 2: {
        // A fourth of the bytes, then back to all of them.
        const std::string mask = add("bool[4, 4]", "aten.gt.Scalar(%" + any() + ", 0)");
        return add("f32[4, 4]", "aten.mul.Tensor(%" + any() + ", %" + mask + ")");
      }
      case 3: {
        const std::string sum =
            add("f32[4, 1]", "aten.sum.dim_IntList(%" + any() + ", [1], true, dtype=none)");
        return add("f32[4, 4]", "aten.mul.Tensor(%" + any() + ", %" + sum + ")");
      }
      case 4:
      case 5:
        return add("f32[4, 4]", "aten.mul.Tensor(%" + any() + ", %" + any() + ")");
      default:
        return add("f32[4, 4]", "aten.sin(%" + any() + ")");
    }
  }
  void forward() {
    const int64_t ops = 2 + pick(6);
    for (int64_t i = 0; i < ops; ++i) values_.push_back(random_op());
  }
  void backward() {
    const std::string y = values_.back(), also = any();
    std::string tangent = "dy";
    const int64_t ops = 1 + pick(4);
    for (int64_t i = 0; i < ops; ++i) {
      std::string factor = any();
      // Sometimes of something that the backward computes without a tangent.
      if (pick(3) == 0) factor = add("f32[4, 4]", "aten.cos(%" + factor + ")");
      const char* op = pick(3) == 0 ? "aten.mm(%" : "aten.mul.Tensor(%";
      tangent = add("f32[4, 4]", op + tangent + ", %" + factor + ")");
    }
    out_ << "  return %" << y << ": output 0";
    if (pick(2) == 0 && also != y && also != "x" && also != "w")
      out_ << ", %" << also << ": output 1";
    out_ << ", %" << tangent << ": grad 0\n}\n";
  }

  std::mt19937 random_;
  std::ostringstream out_;
  std::vector<std::string> values_;
  int64_t count_ = 0;
};

/// Whether the backward can be computed from what is kept; the flow network has no part in this.
class Legality {
 public:
  explicit Legality(const CutGraph& graph) : graph_(graph), bans_(bans(graph)) {}

  bool operator()(const std::vector<bool>& kept) const {
    std::vector<bool> there(static_cast<size_t>(graph_.size()));
    bool legal = true;
    for (Item item = 0; item < graph_.size(); ++item) {
      const auto i = static_cast<size_t>(item);
      bool computable = graph_[item].node != ir::kNoNode && bans_[i].empty();
      for (Item read : graph_.operands(item))
        computable = computable && there[static_cast<size_t>(read)];
      there[i] = kept[i] || graph_.only_in_backward(item) || computable;
      if (graph_.only_in_backward(item)) {
        for (Item read : graph_.operands(item)) legal = legal && there[static_cast<size_t>(read)];
      } else if (graph_.needed_by_backward(item)) {
        legal = legal && there[i];
      }
    }
    return legal && (graph_.fuses() || !works_twice(kept));
  }

 private:
  /// Whether both halves compute something that is no view, number or constant.
  bool works_twice(const std::vector<bool>& kept) const {
    std::vector<bool> forward(kept), backward(kept.size(), false);
    bool twice = false;
    for (Item item = graph_.size(); item-- > 0;) {
      const auto i = static_cast<size_t>(item);
      const ItemFacts& facts = graph_[item];
      const bool only = graph_.only_in_backward(item);
      forward[i] = !only && (forward[i] || graph_.needed_by_forward(item));
      backward[i] = only || ((backward[i] || graph_.needed_by_backward(item)) && !kept[i]);
      for (Item read : graph_.operands(item)) {
        if (forward[i]) forward[static_cast<size_t>(read)] = true;
        if (backward[i]) backward[static_cast<size_t>(read)] = true;
      }
      const bool is_work =
          facts.node != ir::kNoNode && !facts.is_view && !facts.is_number && !facts.is_constant;
      twice = twice || (forward[i] && backward[i] && is_work);
    }
    return twice;
  }

  const CutGraph& graph_;
  const std::vector<std::string_view> bans_;
};

/// As on a backend that fuses, and as on one that does not.
class MinCutProperty : public ::testing::TestWithParam<bool> {
 protected:
  CanFuse can_fuse() const { return GetParam() ? fuses_sweeps : fuses_nothing; }
};

TEST_P(MinCutProperty, WeighsAsLittleAsTheLightestOfAllLegalCuts) {
  int64_t compared = 0, recomputing = 0, several = 0;
  for (uint32_t seed = 0; compared < 1000; ++seed) {
    const std::string text = RandomJoint(seed).text();
    ir::Graph joint = ir::parse(text);
    passes::remove_dead_nodes(joint);
    const CutGraph graph(joint, can_fuse());
    const ir::Signature signature;
    const Keeping keeping(joint, signature);
    const std::vector<KeepingWeight> weights = keeping_weights(graph, keeping);
    std::vector<Item> candidates;
    for (Item item = 0; item < graph.size(); ++item) {
      if (!graph.only_in_backward(item) && graph[item].value != ir::kNoValue)
        candidates.push_back(item);
    }
    if (candidates.size() > 12) continue;
    ++compared;

    const Legality legal(graph);
    int64_t lightest = std::numeric_limits<int64_t>::max();
    for (uint32_t subset = 0; subset < (1u << candidates.size()); ++subset) {
      std::vector<bool> kept(static_cast<size_t>(graph.size()));
      int64_t weight = 0;
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (((subset >> i) & 1) == 0) continue;
        kept[static_cast<size_t>(candidates[i])] = true;
        weight += weights[static_cast<size_t>(candidates[i])].bytes;
      }
      if (weight < lightest && legal(kept)) lightest = weight;
    }

    int64_t weight = 0;
    std::vector<bool> kept(static_cast<size_t>(graph.size()));
    for (ir::ValueId value : minimum_crossing(joint, {}, graph)) {
      kept[static_cast<size_t>(graph.of(value))] = true;
      weight += weights[static_cast<size_t>(graph.of(value))].bytes;
    }
    ASSERT_TRUE(legal(kept)) << text;
    ASSERT_EQ(weight, lightest) << text;
    several += std::ranges::count(kept, true) > 1;
    // Otherwise the cut is what the backward reads, and nothing was weighed.
    for (Item item = 0; item < graph.size(); ++item) {
      const auto reads = graph.users(item);
      if (!kept[static_cast<size_t>(item)] && graph.needed_by_forward(item) &&
          std::ranges::any_of(reads, [&](Item user) { return graph.only_in_backward(user); })) {
        ++recomputing;
        break;
      }
    }
  }
  if (GetParam()) {
    EXPECT_GT(recomputing, 100);
  }
  EXPECT_GT(several, GetParam() ? 300 : 30);
}

INSTANTIATE_TEST_SUITE_P(Rules, MinCutProperty, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Cheap" : "Views"; });

/// What stays alive for the backward and did not belong to the caller before.
int64_t memory_kept(const ir::Graph& joint, const std::vector<SavedValue>& saved) {
  const std::vector<ir::ValueId> roots = ops::memory_roots(joint);
  std::set<ir::ValueId> owners;
  int64_t bytes = 0;
  for (const SavedValue& value : saved) {
    if (value.is_copy()) {
      bytes += joint.value(value.value).tensor_type()->bytes();
    } else {
      owners.insert(roots[static_cast<size_t>(value.value)]);
    }
  }
  for (ir::ValueId owner : owners) {
    if (!joint.value(owner).is_input()) bytes += joint.value(owner).tensor_type()->bytes();
  }
  return bytes;
}

// A backend that fuses nothing pays a kernel for every op that is repeated.
TEST(MinCutWithoutFusion, RepeatsOnlyViewsAndKeepsNoMoreThanTheDefaultPartition) {
  int64_t fewer = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const std::string text = RandomJoint(seed).text();
    Joint joint;
    joint.graph = ir::parse(text);
    joint.signature.training = true;
    const int64_t before = memory_kept(joint.graph, saved_values(joint.graph));
    const CutGraph graph(joint.graph, fuses_nothing);
    const int64_t after = memory_kept(joint.graph, choose_saved(joint.graph, {}, graph));
    ASSERT_LE(after, before) << text;
    fewer += after < before;
    for (const Recomputed& again : cut_at_minimum(joint, fuses_nothing).recomputed)
      ASSERT_EQ(again.bytes, 0) << again.why << "\n" << text;
  }
  EXPECT_GT(fewer, 20);
}

}  // namespace
}  // namespace tandem::partition
