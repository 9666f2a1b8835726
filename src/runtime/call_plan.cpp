#include "runtime/call_plan.h"

#include "base/error.h"
#include "runtime/memory_roots.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tandem::runtime {
namespace {

class Planner {
 public:
  explicit Planner(const Split& split)
      : split_(split), forward_(split.forward), roots_(memory_roots(split.forward)) {
    for (size_t i = 0; i < forward_.inputs().size(); ++i) {
      input_position_[forward_.inputs()[i]] = static_cast<int64_t>(i);
      if (split.signature.inputs[i].data_written) written_.insert(forward_.inputs()[i]);
    }
  }

  CallPlan plan() {
    plan_.first_saved = static_cast<int64_t>(forward_.outputs().size());
    for (size_t i = 0; i < forward_.outputs().size(); ++i) {
      const ir::Output& output = forward_.outputs()[i];
      const auto position = static_cast<int64_t>(i);
      switch (output.role.role) {
        case ir::Role::Mutated:
          add_write_back(output, position);
          break;
        case ir::Role::Output:
          add_fresh(output, position);
          break;
        case ir::Role::Saved:
          plan_.first_saved = std::min(plan_.first_saved, position);
          add_saved(output);
          break;
        default:
          TANDEM_CHECK(false, "lower", "unexpected forward output ", ir::to_string(output.role));
      }
    }
    add_version_bumps();
    add_edges();
    for (const ir::TangentFacts& tangent : split_.signature.tangents) {
      plan_.tangent_strides.push_back(tangent.type->static_strides());
    }
    return std::move(plan_);
  }

 private:
  ir::ValueId root(ir::ValueId value) const { return roots_[static_cast<size_t>(value)]; }
  bool is_written(ir::ValueId value) const { return written_.contains(root(value)); }

  void add_write_back(const ir::Output& output, int64_t position) {
    // Its own memory is a no-op copy; another written input's would be gone when its turn comes.
    const bool own =
        root(output.value) == forward_.inputs()[static_cast<size_t>(output.role.index)];
    plan_.write_backs.push_back({output.role.index, position, is_written(output.value) && !own});
  }

  void add_fresh(const ir::Output& output, int64_t position) {
    const ir::ValueId memory = root(output.value);
    const ir::Value& owner = forward_.value(memory);
    const bool foreign =
        owner.is_input() || forward_.node(owner.producer()).kind() == ir::NodeKind::Constant;
    const bool taken = !fresh_of_root_.try_emplace(memory, output.role.index).second;
    plan_.fresh.push_back({output.role.index, position, foreign || taken});
  }

  void add_saved(const ir::Output& output) {
    SavedSlot slot;
    slot.copy = is_written(output.value);
    const auto input = input_position_.find(output.value);
    if (input != input_position_.end() && !slot.copy) slot.input = input->second;
    if (const auto fresh = fresh_of_root_.find(root(output.value)); fresh != fresh_of_root_.end()) {
      if (!forward_.value(root(output.value)).is_input()) slot.output = fresh->second;
    }
    plan_.saved.push_back(slot);
  }

  void add_version_bumps() {
    for (size_t i = 0; i < split_.signature.inputs.size(); ++i) {
      const ir::InputFacts& facts = split_.signature.inputs[i];
      if (facts.duplicate_of >= 0 || facts.version_delta == 0) continue;
      plan_.version_bumps.push_back({static_cast<int64_t>(i), facts.version_delta});
    }
  }

  void add_edges() {
    const ir::Signature& signature = split_.signature;
    for (size_t i = 0; i < split_.backward.outputs().size(); ++i) {
      plan_.edges.push_back({split_.backward.outputs()[i].role.index, static_cast<int64_t>(i)});
    }
    const auto parameters = std::stable_partition(
        plan_.edges.begin(), plan_.edges.end(), [&](const CallPlan::GradientEdge& edge) {
          return edge.input >= signature.lifted_count ||
                 !signature.inputs[static_cast<size_t>(edge.input)].is_leaf;
        });
    plan_.first_parameter_edge = static_cast<size_t>(parameters - plan_.edges.begin());
  }

  const Split& split_;
  const ir::Graph& forward_;
  std::vector<ir::ValueId> roots_;
  std::unordered_map<ir::ValueId, int64_t> input_position_;
  std::set<ir::ValueId> written_;
  std::unordered_map<ir::ValueId, int64_t> fresh_of_root_;  // memory -> the result that owns it
  CallPlan plan_;
};

}  // namespace

CallPlan make_call_plan(const Split& split) { return Planner(split).plan(); }

}  // namespace tandem::runtime
