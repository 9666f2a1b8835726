#include "runtime/call/call_plan.h"

#include "base/error.h"
#include "ops/memory/memory_roots.h"
#include "runtime/backward/passed_histories.h"
#include "runtime/call/list_actions.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

namespace tandem::runtime {
namespace {

// Who owns memory of the call: a result by its number, a base by its number from here on, or
// nobody whose version could be checked.
constexpr int64_t kFirstBase = int64_t{1} << 32;
constexpr int64_t kNobody = -1;

/// Those of the result, if a tangent can have them: elements of an expanded result lie on top of
/// each other. Dense ones in the same order allow every view that those allow.
std::vector<int64_t> tangent_strides(const ir::TensorType& type) {
  const std::vector<int64_t> sizes = type.static_sizes(), strides = type.static_strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] == 0 && sizes[i] > 1) return at::infer_dense_strides(sizes, strides);
  }
  return strides;
}

class Planner {
 public:
  explicit Planner(const Split& split)
      : split_(split), forward_(split.forward), roots_(ops::memory_roots(split.forward)) {
    for (size_t i = 0; i < forward_.inputs().size(); ++i) {
      input_position_[forward_.inputs()[i]] = static_cast<int64_t>(i);
      // Beyond the inputs come the bases of groups, whose memory is written through the members.
      if (i >= split.signature.inputs.size() || split.signature.inputs[i].data_written)
        written_.insert(forward_.inputs()[i]);
    }
    for (const ir::Output& output : forward_.outputs()) {
      if (output.role.role == ir::Role::Mutated)
        note_written(output.value, output.value, output.role.index);
    }
    note_writes_in_graph();
  }

  CallPlan plan() {
    plan_.first_saved = static_cast<int64_t>(forward_.outputs().size());
    for (size_t i = 0; i < forward_.outputs().size(); ++i) {
      const ir::Output& output = forward_.outputs()[i];
      const auto position = static_cast<int64_t>(i);
      switch (output.role.role) {
        case ir::Role::Mutated:
          protect(needs_copy_to_write(output), position);
          break;
        case ir::Role::Output:
          protect(needs_copy_to_return(output, output.role.index), position);
          break;
        case ir::Role::Base:
          protect(needs_copy_to_return(output, kFirstBase + output.role.index), position);
          break;
        case ir::Role::Saved:
          plan_.first_saved = std::min(plan_.first_saved, position);
          add_saved(output);
          break;
        default:
          TANDEM_CHECK(false, "lower", "unexpected forward output ", ir::to_string(output.role));
      }
    }
    for (size_t i = 0; i < plan_.saved.size(); ++i) {
      const SavedSlot& slot = plan_.saved[i];
      const int64_t position = plan_.first_saved + static_cast<int64_t>(i);
      protect(slot.copy, position);
      if (slot.shallow && slot.written < 0)
        plan_.actions.push_back({.what = Action::Do::HoldOutput, .number = position});
    }
    for (size_t i = 0; i < split_.signature.inputs.size(); ++i) {
      // The trace has asked for members of a group, whose stand-ins are the same kind of views.
      const ir::InputFacts& input = split_.signature.inputs[i];
      if (input.duplicate_of < 0 && input.history_changed && !split_.signature.is_view_of_group(i))
        plan_.checked.push_back(i);
    }
    add_parts();
    for (const ir::TangentFacts& tangent : split_.signature.tangents) {
      plan_.tangent_strides.push_back(tangent_strides(*tangent.type));
    }
    list_actions(split_, plan_);
    return std::move(plan_);
  }

 private:
  void protect(bool needs_copy, int64_t position) {
    if (needs_copy) plan_.actions.push_back({.what = Action::Do::CopyOutput, .number = position});
  }

  ir::ValueId root(ir::ValueId value) const { return roots_[static_cast<size_t>(value)]; }
  bool is_written(ir::ValueId value) const { return written_.contains(root(value)); }

  /// What a `copy_` to an input returns is the input.
  void note_writes_in_graph() {
    forward_.for_each_node([&](const ir::Node& node) {
      if (node.kind() != ir::NodeKind::Op || node.op().schema().name() != "aten::copy_") return;
      const auto input = input_position_.find(*node.operands()[0].get_if<ir::ValueId>());
      if (input != input_position_.end())
        note_written(node.results()[0], *node.operands()[1].get_if<ir::ValueId>(), input->second);
    });
  }

  void note_written(ir::ValueId value, ir::ValueId data, int64_t input) {
    written_value_.try_emplace(value, input);
    if (!forward_.value(root(data)).is_input()) written_root_.try_emplace(root(data), input);
  }

  bool needs_copy_to_write(const ir::Output& output) {
    // set_() hands the memory itself to the input.
    if (facts(output.role.index).storage == ir::StorageChange::Replaced)
      return needs_copy_to_return(output, kNobody);
    // Its own memory is a no-op copy; another written input's would be gone when its turn comes.
    const bool own =
        root(output.value) == forward_.inputs()[static_cast<size_t>(output.role.index)];
    return is_written(output.value) && !own;
  }

  bool needs_copy_to_return(const ir::Output& output, int64_t owner) {
    const ir::ValueId memory = root(output.value);
    const ir::Value& maker = forward_.value(memory);
    const bool foreign =
        maker.is_input() || forward_.node(maker.producer()).kind() == ir::NodeKind::Constant;
    const bool taken = !fresh_of_root_.try_emplace(memory, owner).second;
    return foreign || taken;
  }

  void add_saved(const ir::Output& output) {
    SavedSlot slot;
    const auto input = input_position_.find(output.value);
    const auto written = written_value_.find(output.value);
    const auto fresh = fresh_of_root_.find(root(output.value));
    if (written != written_value_.end() && shows(written->second, output.value)) {
      // What eager keeps is the input itself, and no second copy of it.
      slot.shallow = true;
      slot.written = written->second;
    } else if (const auto data = written_root_.find(root(output.value));
               data != written_root_.end() && !changes_geometry(data->second)) {
      slot.watched = data->second;
      slot.copy = is_written(output.value);
    } else if (is_written(output.value)) {
      slot.copy = true;
    } else if (input != input_position_.end() && input->second < input_count()) {
      slot.shallow = changes_geometry(input->second);
      if (!slot.shallow) slot.input = input->second;
    } else if (fresh != fresh_of_root_.end() && fresh->second != kNobody &&
               !forward_.value(root(output.value)).is_input()) {
      if (fresh->second < kFirstBase) slot.output = fresh->second;
      if (fresh->second >= kFirstBase) slot.base = fresh->second - kFirstBase;
    }
    plan_.saved.push_back(slot);
  }

  int64_t input_count() const { return static_cast<int64_t>(split_.signature.inputs.size()); }
  const ir::InputFacts& facts(int64_t input) const {
    return split_.signature.inputs[static_cast<size_t>(input)];
  }
  bool changes_geometry(int64_t input) const {
    return facts(input).metadata_changed || facts(input).storage != ir::StorageChange::None;
  }
  /// Whether an input that was given a new value has the strides which readers of it expect.
  bool shows(int64_t input, ir::ValueId value) const {
    return !changes_geometry(input) && *facts(input).type == *forward_.value(value).tensor_type();
  }

  size_t target_of(ir::History history) {
    if (!split_.signature.is_new_last(history)) history.number = 0;
    const auto known = std::ranges::find(plan_.targets, history);
    const auto index = static_cast<size_t>(known - plan_.targets.begin());
    if (known == plan_.targets.end()) plan_.targets.push_back(history);
    return index;
  }

  void add_parts() {
    const ir::Signature& signature = split_.signature;
    plan_.parts.resize(1);
    for (size_t i = 0; i < signature.tangents.size(); ++i) {
      if (signature.tangents[i].part < 0) continue;
      const auto part = static_cast<size_t>(signature.tangents[i].part);
      if (plan_.parts.size() <= part) plan_.parts.resize(part + 1);
      plan_.parts[part].tangents.push_back(i);
    }
    // Eager's results have no connection with what no gradient flows to. Where the backward raises,
    // it must get as far as it does in eager.
    const bool raises = std::ranges::any_of(
        signature.tangents, [](const ir::TangentFacts& one) { return !one.raises.empty(); });
    for (size_t i = 0; i < signature.gradients.size(); ++i) {
      const ir::GradientFacts& gradient = signature.gradients[i];
      if (!raises && split_.backward.outputs()[i].value == ir::kNoValue) continue;
      plan_.parts[static_cast<size_t>(gradient.part)].edges.push_back(
          {target_of(gradient.of), static_cast<int64_t>(i)});
    }
    put_leaves_last();
    put_taken_targets_first();
    for (CallPlan::Part& part : plan_.parts) part.passed = passed_histories(signature, part);
  }

  /// A closed-over leaf that the call leaves alone as autograd sees it: its accumulator is the end
  /// of the way in every call.
  bool leads_to_leaf(const CallPlan::Part::Edge& edge) const {
    const ir::History& target = plan_.targets[edge.target];
    if (target.number > 0 || !target.tensor.is_input()) return false;
    const ir::InputFacts& input = facts(target.tensor.index);
    return target.tensor.index < split_.signature.lifted_count && input.is_leaf &&
           !input.history_changed && input.requires_grad == input.requires_grad_after;
  }

  void put_leaves_last() {
    CallPlan::Part& part = plan_.parts[0];
    const auto leaves = std::ranges::stable_partition(
        part.edges, [&](const CallPlan::Part::Edge& edge) { return !leads_to_leaf(edge); });
    for (const CallPlan::Part::Edge& edge : leaves)
      part.leaves.push_back(static_cast<size_t>(plan_.targets[edge.target].tensor.index));
  }

  void put_taken_targets_first() {
    std::vector<bool> taken(plan_.targets.size(), false);
    for (const CallPlan::Part& part : plan_.parts) {
      for (size_t i = 0; i + part.leaves.size() < part.edges.size(); ++i)
        taken[part.edges[i].target] = true;
    }
    std::vector<size_t> order(plan_.targets.size()), position_of(plan_.targets.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_partition(order, [&](size_t target) { return taken[target]; });
    std::vector<ir::History> targets;
    for (size_t target : order) {
      position_of[target] = targets.size();
      targets.push_back(plan_.targets[target]);
    }
    plan_.targets = std::move(targets);
    plan_.taken_targets = static_cast<size_t>(std::ranges::count(taken, true));
    for (CallPlan::Part& part : plan_.parts) {
      for (CallPlan::Part::Edge& edge : part.edges) edge.target = position_of[edge.target];
    }
  }

  const Split& split_;
  const ir::Graph& forward_;
  std::vector<ir::ValueId> roots_;
  std::unordered_map<ir::ValueId, int64_t> input_position_;
  std::set<ir::ValueId> written_;
  std::unordered_map<ir::ValueId, int64_t> written_value_;  // new data -> the input it is for
  std::unordered_map<ir::ValueId, int64_t> written_root_;   // memory of new data -> the same
  std::unordered_map<ir::ValueId, int64_t> fresh_of_root_;  // memory -> the result that owns it
  CallPlan plan_;
};

}  // namespace

CallPlan make_call_plan(const Split& split) { return Planner(split).plan(); }

}  // namespace tandem::runtime
