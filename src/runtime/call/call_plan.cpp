#include "runtime/call/call_plan.h"

#include "base/error.h"
#include "ops/memory/memory_roots.h"
#include "runtime/backward/passed_histories.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
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
          add_write_back(output, position);
          break;
        case ir::Role::Output:
          plan_.fresh.push_back(fresh_result(output, position, output.role.index));
          break;
        case ir::Role::Base:
          plan_.bases.push_back(fresh_result(output, position, kFirstBase + output.role.index));
          break;
        case ir::Role::Saved:
          plan_.first_saved = std::min(plan_.first_saved, position);
          add_saved(output);
          break;
        default:
          TANDEM_CHECK(false, "lower", "unexpected forward output ", ir::to_string(output.role));
      }
    }
    add_parts();
    plan_.is_plain = is_plain() && (!split_.signature.training || plan_.has_plain_edges);
    if (plan_.is_plain) {
      add_version_bumps();
    } else {
      add_changes();
    }
    for (const ir::TangentFacts& tangent : split_.signature.tangents) {
      plan_.tangent_strides.push_back(tangent_strides(*tangent.type));
    }
    note_what_to_skip();
    return std::move(plan_);
  }

 private:
  /// Most calls copy and write nothing: they shall not look for it.
  void note_what_to_skip() {
    const auto copies = [](const auto& one) { return one.copy; };
    const auto protects = [](const SavedSlot& slot) {
      return slot.copy || (slot.shallow && slot.written < 0);
    };
    const auto is_handle = [](const SavedSlot& slot) { return slot.written >= 0; };
    plan_.needs_protection = std::ranges::any_of(plan_.write_backs, copies) ||
                             std::ranges::any_of(plan_.fresh, copies) ||
                             std::ranges::any_of(plan_.bases, copies) ||
                             std::ranges::any_of(plan_.saved, protects);
    plan_.writes = !plan_.write_backs.empty() || !plan_.version_bumps.empty() ||
                   std::ranges::any_of(plan_.saved, is_handle);
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

  void add_write_back(const ir::Output& output, int64_t position) {
    // Its own memory is a no-op copy; another written input's would be gone when its turn comes.
    const bool own =
        root(output.value) == forward_.inputs()[static_cast<size_t>(output.role.index)];
    bool copy = is_written(output.value) && !own;
    // set_() hands the memory itself to the input.
    if (facts(output.role.index).storage == ir::StorageChange::Replaced)
      copy = fresh_result(output, position, kNobody).copy;
    plan_.write_backs.push_back({output.role.index, position, copy});
  }

  FreshResult fresh_result(const ir::Output& output, int64_t position, int64_t owner) {
    const ir::ValueId memory = root(output.value);
    const ir::Value& maker = forward_.value(memory);
    const bool foreign =
        maker.is_input() || forward_.node(maker.producer()).kind() == ir::NodeKind::Constant;
    const bool taken = !fresh_of_root_.try_emplace(memory, owner).second;
    return {output.role.index, position, foreign || taken};
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

  void add_version_bumps() {
    for (size_t i = 0; i < split_.signature.inputs.size(); ++i) {
      const ir::InputFacts& facts = split_.signature.inputs[i];
      if (facts.duplicate_of >= 0 || facts.counter_of >= 0 || facts.version_delta == 0) continue;
      plan_.version_bumps.push_back({static_cast<int64_t>(i), facts.version_delta});
    }
  }

  /// Whether the call path may leave out everything that concerns rewritten and aliased memory.
  bool is_plain() const {
    const ir::Signature& signature = split_.signature;
    const auto plain_input = [&](const ir::InputFacts& input) {
      return !input.history_changed && !input.metadata_changed &&
             input.storage == ir::StorageChange::None &&
             input.requires_grad == input.requires_grad_after &&
             !(signature.training && input.histories > 1);
    };
    const auto plain_output = [](const ir::OutputFacts& output) {
      return !output.made_leaf && !output.own_history &&
             output.kind != ir::OutputKind::AliasOfOutput;
    };
    return signature.groups.empty() && signature.bases.empty() && !signature.grad_mode_after &&
           std::ranges::all_of(signature.inputs, plain_input) &&
           std::ranges::all_of(signature.outputs, plain_output);
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
    // Edges that are taken when the inputs have changed are those that the inputs came with only if
    // autograd has seen nothing.
    const auto keeps_edge = [](const ir::InputFacts& input) {
      return !input.history_changed && input.requires_grad == input.requires_grad_after &&
             input.histories == 1;
    };
    plan_.has_plain_edges = plan_.parts.size() == 1 &&
                            std::ranges::all_of(signature.inputs, keeps_edge) &&
                            std::ranges::all_of(plan_.targets, [](const ir::History& target) {
                              return target.tensor.is_input() && target.number == 0;
                            });
    if (plan_.has_plain_edges) add_plain_edges();
    for (CallPlan::Part& part : plan_.parts) part.passed = passed_histories(signature, part);
  }

  void add_plain_edges() {
    std::vector<CallPlan::Part::Edge>& edges = plan_.parts[0].edges;
    const auto input_of = [&](const CallPlan::Part::Edge& edge) {
      return plan_.targets[edge.target].tensor.index;
    };
    const auto parameters =
        std::stable_partition(edges.begin(), edges.end(), [&](const CallPlan::Part::Edge& edge) {
          return input_of(edge) >= split_.signature.lifted_count || !facts(input_of(edge)).is_leaf;
        });
    plan_.first_parameter_edge = static_cast<size_t>(parameters - edges.begin());
    for (const CallPlan::Part::Edge& edge : edges) plan_.edges.push_back({input_of(edge)});
  }

  /// Everything that happens to inputs and groups when the kernels are done.
  void add_changes() {
    const ir::Signature& signature = split_.signature;
    std::vector<CallPlan::Change> changes;
    for (size_t i = 0; i < signature.groups.size(); ++i)
      changes.push_back({ir::CallTensor::group(static_cast<int64_t>(i))});
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      const ir::InputFacts& input = signature.inputs[i];
      if (input.duplicate_of >= 0) continue;
      CallPlan::Change change{ir::CallTensor::input(static_cast<int64_t>(i))};
      for (size_t k = 0; k < plan_.write_backs.size(); ++k) {
        if (plan_.write_backs[k].input == change.tensor.index)
          change.write = static_cast<int64_t>(k);
      }
      if (input.counter_of < 0 && input.group < 0) change.delta = input.version_delta;
      if (change.write >= 0 || change.delta != 0 || input.history_changed ||
          input.metadata_changed || input.storage != ir::StorageChange::None ||
          input.requires_grad != input.requires_grad_after) {
        changes.push_back(change);
      }
    }
    for (CallPlan::Change& change : changes) {
      for (const ir::TangentFacts& tangent : signature.tangents) {
        if (tangent.part > 0 && tangent.of.tensor == change.tensor) change.part = tangent.part;
      }
    }
    // A storage that is given to another input comes before its memory is given back.
    std::ranges::stable_partition(changes, [&](const CallPlan::Change& change) {
      return !change.tensor.is_input() ||
             facts(change.tensor.index).storage != ir::StorageChange::Resized;
    });
    order(std::move(changes));
  }

  /// A node's edges must be complete before anything points to it, so a change comes after those
  /// whose outcome its node leads to. Histories have no cycles: one is always ready.
  void order(std::vector<CallPlan::Change> changes) {
    const auto waits_for = [&](const CallPlan::Change& change, const ir::CallTensor& other) {
      if (change.part < 0) return false;
      for (const auto& edge : plan_.parts[static_cast<size_t>(change.part)].edges) {
        const ir::History& target = plan_.targets[edge.target];
        if (target.number == 0) continue;
        if (target.tensor == other) return true;
        if (other.is_group() && target.tensor.is_input() &&
            facts(target.tensor.index).group == other.index) {
          return true;
        }
      }
      return false;
    };
    while (!changes.empty()) {
      const auto ready = std::ranges::find_if(changes, [&](const CallPlan::Change& change) {
        return std::ranges::none_of(changes, [&](const CallPlan::Change& other) {
          return &other != &change && waits_for(change, other.tensor);
        });
      });
      TANDEM_CHECK(ready != changes.end(), "lower", "rewritten inputs wait for each other");
      plan_.changes.push_back(*ready);
      changes.erase(ready);
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
