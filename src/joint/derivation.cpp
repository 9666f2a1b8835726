#include "joint/derivation.h"

#include "base/error.h"
#include "joint/gradients/backward_writes.h"
#include "joint/gradients/endpoints.h"
#include "joint/gradients/gradient_origins.h"
#include "joint/gradients/gradients.h"
#include "signature/storage_of.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <ranges>

namespace tandem::joint {
namespace {

using ir::CallTensor;
using ir::History;

[[noreturn]] void report_difference(const std::string& what) {
  throw UserError(
      "call",
      base::str(ir::name_of_backward(), " traces the function again, and now ", what,
                "\n  cause:  host code depends on something that has changed since the call",
                "\n  remedy: run the call and its backward in the same state of modules "
                "and variables"));
}

/// What stands for an input of the call in the trace, among all that does.
std::optional<size_t> find_input(const tracing::Trace& trace, const Derivation& derivation,
                                 size_t input) {
  return input < derivation.lifted.size() ? trace.inputs().find(derivation.lifted[input])
                                          : trace.inputs().find_argument(static_cast<size_t>(
                                                derivation.of.inputs[input].role.index));
}

/// Maps histories of the call to those of the trace, which has more inputs, in another order.
class HistoryMap {
 public:
  HistoryMap(const tracing::Trace& trace, const signature::Reading& reading,
             const Derivation& derivation)
      : reading_(reading), derivation_(derivation) {
    const std::vector<size_t> order = signature::calling_order(trace);
    std::vector<int64_t> position(order.size());
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int64_t>(i);
    for (size_t i = 0; i < derivation.of.inputs.size(); ++i) {
      const std::optional<size_t> stand_in = find_input(trace, derivation, i);
      inputs_.push_back(stand_in ? position[*stand_in] : -1);
    }
  }

  /// The index is -1 if the trace does not have the tensor. An input that nobody reads is passed
  /// apart from the inputs that are views of the same tensor. Writes to those give it no history,
  /// so it may have fewer histories here than in the call. Its first and its last history stay what
  /// they are.
  History operator()(const History& history) const {
    const CallTensor tensor = here(history.tensor);
    if (tensor.index < 0 || history.number == 0) return {tensor, 0};
    const int64_t last = reading_.signature.histories(tensor) - 1;
    if (derivation_.of.is_new_last(history)) return {tensor, last};
    return {tensor, std::min(history.number, std::max<int64_t>(last - 1, 0))};
  }

 private:
  CallTensor here(const CallTensor& tensor) const {
    const auto index = static_cast<size_t>(tensor.index);
    if (tensor.is_input()) return CallTensor::input(inputs_[index]);
    if (!tensor.is_group()) return tensor;
    const int64_t input =
        inputs_[static_cast<size_t>(derivation_.of.groups[index].members.front())];
    if (input < 0) return CallTensor::group(-1);
    const int64_t group = reading_.signature.inputs[static_cast<size_t>(input)].group;
    // Otherwise the gradients that end at the base would be left out without a word.
    TANDEM_CHECK(group >= 0, "joint", "what a call writes as a view of a base stands by itself in ",
                 "the trace of its gradients");
    return CallTensor::group(group);
  }

  const signature::Reading& reading_;
  const Derivation& derivation_;
  std::vector<int64_t> inputs_;
};

/// A gradient must not leave as a view of an input that the function has written: the caller's
/// input will not have been written. So it is copied.
at::Tensor apart_from_written_inputs(const tracing::Trace& trace, const at::Tensor& gradient) {
  for (const tracing::StandIn& one : trace.stand_ins()) {
    auto* wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(one.tensor);
    if (!wrapper->has_data_mutation() && !wrapper->has_metadata_mutation()) continue;
    if (signature::storage_of(one.tensor) == signature::storage_of(gradient))
      return gradient.clone();
  }
  return gradient;
}

/// Whether eager raises on the way from a defined tangent to the target.
bool raises(const Derivation& derivation, const HistoryMap& here, const Target& target) {
  for (size_t i = 0; i < derivation.of.tangents.size(); ++i) {
    if (!derivation.defined[i]) continue;
    for (int64_t position : derivation.of.tangents[i].raises_in) {
      if (here(derivation.of.gradients[static_cast<size_t>(position)].of) == target.of) return true;
    }
  }
  return false;
}

/// Whether somebody asks for the gradient of the target.
bool is_wanted(const Derivation& derivation, const HistoryMap& here, const Target& target) {
  if (derivation.wanted.empty()) return true;
  for (size_t i = 0; i < derivation.wanted.size(); ++i) {
    const ir::GradientFacts& gradient = derivation.of.gradients[i];
    if (derivation.wanted[i] && gradient.part == static_cast<int64_t>(derivation.part) &&
        here(gradient.of) == target.of)
      return true;
  }
  return false;
}

/// Some arguments are passed for their histories only, and nobody reads them. Gives each its
/// history.
void pass_histories(tracing::Trace& trace, const Endpoints& endpoints, const HistoryMap& here,
                    const Derivation& derivation) {
  const std::vector<size_t> positions = derivation.positions().histories;
  std::vector<torch::autograd::Edge> passed;
  for (size_t i = 0; i < positions.size(); ++i) {
    const History& history = derivation.histories[i];
    const History mine = here(history);
    const bool is_gone = mine.tensor.index < 0 || (history.number > 0 && mine.number == 0);
    // Nobody can ask for the gradient of a view that has gone: what arrives there goes on to its
    // base.
    if (is_gone || !trace.argument(positions[i]).requires_grad()) continue;
    torch::autograd::Edge edge = endpoints.edge_of(mine);
    if (!edge.is_valid() || std::ranges::find(passed, edge) != passed.end()) continue;
    passed.push_back(edge);
    trace.inputs().pass_for_history(positions[i], std::move(edge));
  }
}

/// By gradient of the part: the position of its target among those that were differentiated; -1:
/// none. Where several histories of the call are one history here, the last takes what arrives.
std::vector<int64_t> targets_of_gradients(const std::vector<const Target*>& wanted,
                                          const HistoryMap& here, const Derivation& derivation) {
  std::vector<int64_t> targets;
  for (const ir::GradientFacts& facts : derivation.of.gradients) {
    if (facts.part != static_cast<int64_t>(derivation.part)) continue;
    const auto target = std::ranges::find(wanted, here(facts.of), &Target::of);
    if (target == wanted.end()) {
      targets.push_back(-1);
      continue;
    }
    const int64_t position = target - wanted.begin();
    std::ranges::replace(targets, position, -1);
    targets.push_back(position);
  }
  return targets;
}

}  // namespace

ExchangedData::ExchangedData(const tracing::Trace& trace, std::span<const Derivation> derivations) {
  for (const Derivation& derivation : derivations) {
    const std::vector<size_t> positions = derivation.positions().exchanged;
    for (size_t k = 0; k < positions.size(); ++k) {
      const std::optional<size_t> input = find_input(trace, derivation, derivation.exchanged[k]);
      if (!input) continue;  // the run does not get to it
      at::Tensor tensor = trace.stand_ins()[*input].tensor;
      c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
      before_.emplace_back(tensor,
                           impl.shallow_copy_and_detach(impl.version_counter(),
                                                        /*allow_tensor_metadata_change=*/true));
      // As set_data() does, but for what it asks the tensor before.
      impl.shallow_copy_from(trace.argument(positions[k]).getIntrusivePtr());
    }
  }
}

ExchangedData::~ExchangedData() {
  for (auto& [tensor, before] : before_ | std::views::reverse)
    tensor.unsafeGetTensorImpl()->shallow_copy_from(before);
}

ir::GradientArguments<size_t> Derivation::positions() const {
  return ir::unpack({.arguments = arguments,
                     .replaced = replaced.size(),
                     .exchanged = exchanged.size(),
                     .histories = histories.size(),
                     .states = generators.size(),
                     .tangents = static_cast<size_t>(std::ranges::count(defined, true))});
}

std::vector<at::Tensor> record_gradients(tracing::Trace& trace, const signature::Reading& reading,
                                         const Derivation& derivation) {
  const HistoryMap here(trace, reading, derivation);
  Endpoints endpoints(trace, reading);
  const auto root_of = [&](size_t tangent) {
    const History history = here(derivation.of.tangents[tangent].of);
    const auto root = std::ranges::find(endpoints.roots(), history, &Root::of);
    if (root == endpoints.roots().end())
      report_difference("a result or argument has no gradient that had one");
    return root;
  };
  Differentiation task;
  const std::vector<size_t> tangents = derivation.positions().tangents;
  int64_t part = 0;
  for (size_t i = 0; i < derivation.of.tangents.size(); ++i) {
    if (derivation.of.tangents[i].part != static_cast<int64_t>(derivation.part)) continue;
    const auto root = root_of(i);
    if (!derivation.defined[i]) continue;
    part = root->part;
    task.tangents.push_back(trace.argument(tangents[task.roots.size()]));
    task.roots.push_back(root->edge);
  }
  // A target on whose way eager raises was not asked for: the backward would have raised by now.
  std::vector<const Target*> wanted = endpoints.prepare(part);
  std::erase_if(wanted, [&](const Target* target) {
    return raises(derivation, here, *target) || !is_wanted(derivation, here, *target);
  });
  for (const Target* target : wanted) task.wanted.push_back(target->edge);
  const size_t inputs_before = trace.stand_ins().size();
  const BackwardWrites writes(trace);
  std::vector<torch::autograd::Edge> stops;
  for (const Target* target : wanted) {
    if (target->stop && target->stop->is_closed()) stops.push_back(target->edge);
  }
  std::vector<ir::ValueId> tangent_values;
  for (const at::Tensor& tangent : task.tangents)
    tangent_values.push_back(tracing::current_value(tangent));
  GradientOrigins::Parts parts;
  GradientOrigins origins(trace,
                          {.part = part,
                           .parts = endpoints.parts(),
                           .roots = task.roots,
                           .tangents = std::move(tangent_values),
                           .stops = std::move(stops),
                           .marks = false},
                          parts);
  task.origins = &origins;
  std::vector<at::Tensor> found = differentiate_in_backward(trace.recording(), task);
  check_nothing_lifted(trace, inputs_before);
  writes.check();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!any(origins.of(wanted[i]->edge))) found[i] = at::Tensor();
  }

  pass_histories(trace, endpoints, here, derivation);
  std::vector<at::Tensor> gradients;
  for (int64_t target : targets_of_gradients(wanted, here, derivation)) {
    at::Tensor& gradient = gradients.emplace_back();
    if (target < 0 || !found[static_cast<size_t>(target)].defined()) continue;
    gradient = apart_from_written_inputs(trace, found[static_cast<size_t>(target)]);
  }
  return gradients;
}

}  // namespace tandem::joint
