#include "runtime/call/call_plan.h"

#include "base/error.h"
#include "ir/sized_type.h"
#include "partition/tangents/parted_results.h"
#include "runtime/backward/passed_histories.h"
#include "runtime/call/list_actions.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>
#include <span>

namespace tandem::runtime {
namespace {

/// The strides of the result, if a tangent can have them. Elements of an expanded result lie on top
/// of each other, so its tangent has dense strides in the same order. They allow every view that
/// the result's strides allow.
std::vector<int64_t> tangent_strides(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& strides) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] == 0 && sizes[i] > 1) return at::infer_dense_strides(sizes, strides);
  }
  return strides;
}

class Planner {
 public:
  explicit Planner(const Split& split) : split_(split) {}

  CallPlan plan() {
    add_saved();
    for (size_t i = 0; i < split_.signature.inputs.size(); ++i) {
      // Members of a group were checked in the trace, whose stand-ins are the same kind of views.
      const ir::InputFacts& input = split_.signature.inputs[i];
      if (input.duplicate_of < 0 && input.history_changed && !split_.signature.is_view_of_group(i))
        plan_.checked.push_back(i);
    }
    add_parts();
    for (const ir::TangentFacts& tangent : split_.signature.tangents) {
      const bool is_static = tangent.type->is_static();
      plan_.tangent_strides.emplace_back();
      if (is_static) {
        plan_.tangent_strides.back() =
            tangent_strides(tangent.type->static_sizes(), tangent.type->static_strides());
      } else if (plan_.sized_tangents.empty()) {
        plan_.sized_tangents.resize(split_.signature.tangents.size());
      }
      if (!is_static) plan_.sized_tangents[plan_.tangent_strides.size() - 1] = true;
    }
    list_actions(split_, plan_);
    return std::move(plan_);
  }

 private:
  void add_saved() {
    const std::span<const ir::Output> outputs = split_.forward.outputs();
    plan_.first_saved = static_cast<int64_t>(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].role.role != ir::Role::Saved) continue;
      plan_.first_saved = std::min(plan_.first_saved, static_cast<int64_t>(i));
      const Saved& saved = split_.saved[static_cast<size_t>(outputs[i].role.index)];
      TANDEM_CHECK(saved.how.as != Saved::As::Undecided, "lower",
                   "nobody has decided how a value is saved\n  value:  %", saved.name);
      plan_.saved.push_back(saved.how);
      if (saved.how.as == Saved::As::Input) add_saved_input(saved.how.of);
      if (saved.how.as == Saved::As::Itself) plan_.written_later.push_back(described(saved.how.of));
    }
  }

  CallPlan::SavedInput described(int64_t input) const {
    const ir::InputFacts& found = facts(input);
    return {.input = static_cast<size_t>(input),
            .sizes = found.type->static_sizes(),
            .strides = found.type->static_strides(),
            .dtype = found.type->dtype};
  }

  void add_saved_input(int64_t input) {
    const ir::InputFacts& found = facts(input);
    const bool as_found = found.viewed_by_backward || !found.read_by_backward;
    plan_.saved_inputs.push_back(described(input));
    plan_.saved_inputs.back().as_found = as_found;
    if (as_found && input < split_.signature.lifted_count)
      plan_.lifted_as_found.push_back(static_cast<size_t>(input));
  }

  const ir::InputFacts& facts(int64_t input) const {
    return split_.signature.inputs[static_cast<size_t>(input)];
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
    for (size_t part = 0; part < plan_.parts.size(); ++part)
      plan_.parts[part].of = static_cast<int64_t>(part);
    const partition::PartedResults results = partition::parted_results(signature);
    const size_t first_further = plan_.parts.size();
    for (size_t node = 0; node < results.tangents.size(); ++node) {
      if (node > 0) plan_.parts.emplace_back();
      (node == 0 ? plan_.parts[0] : plan_.parts.back()).tangents = results.tangents[node];
    }
    // As in eager, results are not connected with inputs to which no gradient flows. But where the
    // backward raises on the way there, it must get as far as it does in eager.
    const auto raises_in = [&](size_t gradient) {
      return std::ranges::any_of(signature.tangents, [&](const ir::TangentFacts& one) {
        return std::ranges::count(one.raises_in, static_cast<int64_t>(gradient)) > 0;
      });
    };
    for (size_t i = 0; i < signature.gradients.size(); ++i) {
      const ir::GradientFacts& gradient = signature.gradients[i];
      if (split_.backward.outputs()[i].value == ir::kNoValue && !raises_in(i)) continue;
      const size_t node = results.node_of_gradient[i];
      const size_t part = node == 0 ? static_cast<size_t>(gradient.part) : first_further + node - 1;
      plan_.parts[part].edges.push_back({target_of(gradient.of), static_cast<int64_t>(i)});
    }
    put_leaves_last();
    put_taken_targets_first();
    if (plan_.parts.size() == 1) mark_last_uses();
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

  void mark_last_uses() {
    std::vector<bool> used(plan_.targets.size(), false);
    std::vector<CallPlan::Part::Edge>& edges = plan_.parts[0].edges;
    for (size_t i = edges.size(); i-- > 0;) {
      edges[i].last_use = !used[edges[i].target];
      used[edges[i].target] = true;
    }
  }

  const Split& split_;
  CallPlan plan_;
};

}  // namespace

std::vector<int64_t> tangent_strides(const ir::TensorType& type, at::IntArrayRef sizes) {
  const auto strides = ir::strides_at(type, sizes.vec());
  TANDEM_CHECK(strides.has_value(), "call", "a tangent of type ", ir::to_string(type),
               " has sizes that its strides do not follow from");
  return tangent_strides(sizes.vec(), *strides);
}

CallPlan make_call_plan(const Split& split) { return Planner(split).plan(); }

}  // namespace tandem::runtime
