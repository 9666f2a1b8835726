#include "joint/derivation.h"

#include "base/error.h"
#include "joint/backward_writes.h"
#include "joint/ends.h"
#include "joint/gradients.h"
#include "signature/storage_of.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

namespace tandem::joint {
namespace {

using ir::Place;

[[noreturn]] void report_difference(const std::string& what) {
  throw UserError(
      "call",
      base::str("backward with create_graph=true traces the function again, and now ", what,
                "\n  cause:  host code depends on something that has changed since the call",
                "\n  remedy: run the call and its backward in the same state of modules "
                "and variables"));
}

/// From places of the call to places of the trace, whose inputs are more and in another order.
class PlaceMap {
 public:
  PlaceMap(const tracing::Trace& trace, const signature::Reading& reading,
           const Derivation& derivation)
      : reading_(reading), derivation_(derivation) {
    const std::vector<size_t> order = signature::calling_order(trace);
    std::vector<int64_t> position(order.size());
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int64_t>(i);
    for (size_t i = 0; i < derivation.of.inputs.size(); ++i) {
      const std::optional<size_t> stand_in = i < derivation.lifted.size()
                                                 ? trace.inputs().find(derivation.lifted[i])
                                                 : trace.inputs().find_argument(static_cast<size_t>(
                                                       derivation.of.inputs[i].role.index));
      inputs_.push_back(stand_in ? position[*stand_in] : -1);
    }
  }

  Place operator()(const Place& place) const {
    const auto index = static_cast<size_t>(place.index);
    if (place.of == Place::Of::Input) return {place.of, inputs_[index]};
    if (place.of == Place::Of::Group) {
      const int64_t member = derivation_.of.groups[index].members.front();
      return {place.of, group_of(inputs_[static_cast<size_t>(member)])};
    }
    return place;
  }

 private:
  int64_t group_of(int64_t input) const {
    return input < 0 ? -1 : reading_.signature.inputs[static_cast<size_t>(input)].group;
  }

  const signature::Reading& reading_;
  const Derivation& derivation_;
  std::vector<int64_t> inputs_;
};

/// Memory that the function has written must not leave it as a view of the input: the input will
/// not have been written.
at::Tensor apart_from_written_inputs(const tracing::Trace& trace, const at::Tensor& gradient) {
  for (const tracing::StandIn& one : trace.stand_ins()) {
    auto* wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(one.tensor);
    if (!wrapper->has_data_mutation() && !wrapper->has_metadata_mutation()) continue;
    if (signature::storage_of(one.tensor) == signature::storage_of(gradient))
      return gradient.clone();
  }
  return gradient;
}

void drop_unreached(const tracing::Trace& trace, const std::vector<at::Tensor>& tangents,
                    std::vector<at::Tensor>& gradients) {
  std::vector<ir::ValueId> sources, values;
  for (const at::Tensor& tangent : tangents) sources.push_back(tracing::current_value(tangent));
  for (const at::Tensor& gradient : gradients)
    values.push_back(gradient.defined() ? tracing::current_value(gradient) : ir::kNoValue);
  drop_independent(trace.recording().graph(), sources, values);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (values[i] == ir::kNoValue) gradients[i] = at::Tensor();
  }
}

/// Whether the way from a defined tangent to the target raises in eager.
bool raises(const Derivation& derivation, const PlaceMap& here, const Target& target) {
  for (size_t i = 0; i < derivation.of.tangents.size(); ++i) {
    if (!derivation.defined[i]) continue;
    for (int64_t position : derivation.of.tangents[i].raises_in) {
      const ir::GradientFacts& facts = derivation.of.gradients[static_cast<size_t>(position)];
      if (facts.after == target.after && here(facts.place) == target.place) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<at::Tensor> record_gradients(tracing::Trace& trace, const signature::Reading& reading,
                                         const Derivation& derivation) {
  const PlaceMap here(trace, reading, derivation);
  Ends ends(trace, reading);
  Differentiation task;
  size_t next = derivation.first_tangent();
  int64_t part = 0;
  for (size_t i = 0; i < derivation.of.tangents.size(); ++i) {
    if (!derivation.defined[i]) continue;
    const auto root =
        std::ranges::find(ends.roots(), here(derivation.of.tangents[i].place), &Root::place);
    if (root == ends.roots().end())
      report_difference("a result or argument has no gradient that had one");
    part = root->part;
    task.roots.push_back(root->edge);
    task.tangents.push_back(trace.argument(next++));
  }
  const std::vector<const Target*> all = ends.prepare(part);
  // What raises was not asked for, or the backward would have raised by now.
  std::vector<const Target*> wanted = all;
  std::erase_if(wanted, [&](const Target* target) { return raises(derivation, here, *target); });
  for (const Target* target : wanted) task.wanted.push_back(target->edge);
  const size_t inputs_before = trace.stand_ins().size();
  const BackwardWrites writes(trace);
  std::vector<at::Tensor> found = differentiate_with_history(trace.recording(), task);
  check_nothing_lifted(trace, inputs_before);
  writes.check();
  if (ends.parts() > 1) drop_unreached(trace, task.tangents, found);

  const auto find_in = [&](const std::vector<const Target*>& targets, const Place& place,
                           bool after) {
    return std::ranges::find_if(targets, [&](const Target* target) {
      return target->after == after && target->place == here(place);
    });
  };
  const auto find_target = [&](const Place& place, bool after) {
    return find_in(wanted, place, after);
  };
  // An input that nobody reads is passed apart from others that it was a view with: a change of
  // theirs does not renew its history, and what belongs to the new one arrives at the old one.
  const auto target_of = [&](const ir::GradientFacts& facts) {
    const bool moved = find_target(facts.place, true) == wanted.end() &&
                       std::ranges::any_of(derivation.beyond, [&](const ir::GradientFacts& other) {
                         return other.after && other.place == facts.place;
                       });
    if (!moved) return find_target(facts.place, facts.after);
    return facts.after ? find_target(facts.place, false) : wanted.end();
  };
  for (size_t i = 0; i < derivation.beyond.size(); ++i) {
    const auto target = find_in(all, derivation.beyond[i].place, derivation.beyond[i].after);
    if (target != all.end())
      trace.inputs().move_edge(derivation.first_beyond() + i, (*target)->edge);
  }
  for (size_t i = 0; i < derivation.roots.size(); ++i) {
    const Place place = here(derivation.of.tangents[derivation.roots[i]].place);
    const auto root = std::ranges::find(ends.roots(), place, &Root::place);
    if (root == ends.roots().end()) report_difference("a result has no gradient that had one");
    trace.inputs().move_edge(derivation.first_root() + i, root->edge);
  }
  for (size_t i = 0; i < derivation.views.size(); ++i) {
    const size_t n = derivation.first_view() + i;
    const Place place = here({Place::Of::Input, static_cast<int64_t>(derivation.views[i])});
    // Nobody can ask for it any more: what arrives there goes on to the base.
    if (place.index < 0 || !trace.argument(n).requires_grad()) continue;
    const size_t at = signature::calling_order(trace)[static_cast<size_t>(place.index)];
    const auto edge = torch::autograd::impl::gradient_edge(trace.stand_ins()[at].tensor);
    const bool is_base = std::ranges::find(ends.roots(), edge, &Root::edge) != ends.roots().end();
    if (!is_base) trace.inputs().move_edge(n, edge);
  }
  std::vector<at::Tensor> gradients;
  for (const ir::GradientFacts& facts : derivation.of.gradients) {
    if (facts.part != static_cast<int64_t>(derivation.part)) continue;
    at::Tensor& gradient = gradients.emplace_back();
    const auto target = target_of(facts);
    if (target == wanted.end()) continue;
    const at::Tensor& value = found[static_cast<size_t>(target - wanted.begin())];
    if (value.defined()) gradient = apart_from_written_inputs(trace, value);
  }
  return gradients;
}

}  // namespace tandem::joint
