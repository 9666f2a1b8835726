#include "pipeline/program.h"

#include "base/error.h"
#include "ops/own/exchange_generator_state.h"
#include "pipeline/fingerprint.h"
#include "signature/read_signature.h"

#include <algorithm>

namespace tandem::pipeline {
namespace {

detail::Flat own_arguments(const Program& program, const detail::Flat& arguments) {
  detail::Flat own = arguments;
  own.tensors.resize(program.own_tensors(arguments));
  return own;
}

/// Sets the generators to where they stood at a call. Returns where they stand.
std::vector<at::Tensor> exchange_states(const joint::Derivation& derivation,
                                        const std::vector<at::Tensor>& states) {
  static const auto exchange =
      ops::kExchangeGeneratorState.handle()
          .typed<at::Tensor(const at::Tensor&, const std::optional<at::Generator>&)>();
  std::vector<at::Tensor> before;
  for (size_t i = 0; i < states.size(); ++i)
    before.push_back(exchange.call(states[i], derivation.generators[i]));
  return before;
}

}  // namespace

void MetLeaves::note(const tracing::Trace& trace) {
  const std::lock_guard lock(mutex_);
  std::erase_if(leaves_, [](const tracing::WeakTensor& leaf) { return leaf.expired(); });
  for (size_t i = trace.argument_count(); i < trace.stand_ins().size(); ++i) {
    const tracing::StandIn& one = trace.stand_ins()[i];
    if (!one.requires_grad || !one.is_leaf) continue;
    const auto is_it = [&](const auto& known) {
      return known._unsafe_get_target() == one.real.unsafeGetTensorImpl();
    };
    if (std::ranges::none_of(leaves_, is_it)) leaves_.emplace_back(one.real.getIntrusivePtr());
  }
}

std::vector<tracing::WeakTensor> MetLeaves::all() const {
  const std::lock_guard lock(mutex_);
  return leaves_;
}

size_t Program::own_tensors(const detail::Flat& arguments) const {
  return is_derived() ? derivations.front().arguments : arguments.tensors.size();
}

std::vector<std::string> Program::tensor_names(const detail::Flat& arguments) const {
  std::vector<std::string> names = function.tensor_names(own_arguments(*this, arguments));
  for (size_t order = 0; order < derivations.size(); ++order) {
    const joint::Derivation& one = derivations[order];
    ir::GradientArguments<std::string> named{.arguments = std::move(names)};
    for (size_t i = 0; i < one.replaced.size(); ++i)
      named.replaced.push_back(
          base::str("written closed-over tensor ", i, " as it was before the call"));
    for (size_t input : one.exchanged)
      named.exchanged.push_back(
          base::str("what set_data() has given to ", ir::to_string(one.of.inputs[input].role)));
    for (size_t i = 0; i < one.histories.size(); ++i)
      named.histories.push_back(base::str("tensor ", i, " as the call leaves it"));
    for (size_t i = 0; i < one.generators.size(); ++i)
      named.states.push_back(base::str("state of generator ", i));
    for (size_t i = 0; i < one.defined.size(); ++i) {
      if (one.defined[i])
        named.tangents.push_back(base::str("tangent ", i, " of order ", order + 1));
    }
    names = ir::pack(std::move(named));
  }
  return names;
}

std::vector<tracing::Replacement> Program::replacements() const {
  std::vector<tracing::Replacement> all;
  for (const joint::Derivation& one : derivations) {
    const std::vector<size_t> positions = one.positions().replaced;
    for (size_t i = 0; i < one.replaced.size(); ++i) all.push_back({one.replaced[i], positions[i]});
  }
  return all;
}

ProgramRun run_program(const Program& program, tracing::Trace& trace) {
  // The outermost differentiation began first.
  std::vector<std::vector<at::Tensor>> states(program.derivations.size());
  for (size_t i = program.derivations.size(); i-- > 0;) {
    const joint::Derivation& one = program.derivations[i];
    for (size_t position : one.positions().states) states[i].push_back(trace.argument(position));
    states[i] = exchange_states(one, states[i]);
  }
  const ir::NodeId before = trace.recording().graph().last_node();
  trace.recording().forget_calls();
  {
    // The function runs in the state of the call. Everything after it runs in the state of the
    // backward.
    std::optional<libtorch::ThreadStateScope> state;
    if (program.is_derived()) state.emplace(program.thread);
    if (program.is_derived()) {
      trace.run(detail::FlatFunction(
          [&](const detail::Flat& all) { return program.function(own_arguments(program, all)); }));
    } else {
      trace.run(program.function);
    }
  }
  // First of all: what the function calls is recorded in another way where inputs belong together.
  if (std::optional<tracing::Retrace> retrace = trace.inputs().retrace())
    return {.retrace = std::move(retrace)};
  const uint64_t found = fingerprint(program, trace, before);
  TANDEM_REQUIRE(!program.is_derived() || found == program.fingerprint, "call",
                 ir::name_of_backward(),
                 " traces the function again, and now it calls "
                 "other ops than in the call, or the same on other operands",
                 "\n  cause:  host code depends on something that has changed since",
                 "\n  remedy: run the call and its backward in the same state of modules and "
                 "variables");
  ProgramRun run{.calls = trace.recording().user_calls(), .fingerprint = found};
  for (size_t i = 0; i < program.derivations.size(); ++i) {
    exchange_states(program.derivations[i], states[i]);
    const auto effects = i == 0 ? signature::Effects::Kept : signature::Effects::Dropped;
    const signature::Reading reading = signature::read_signature(trace, effects);
    run.happened = trace.recording().graph().last_node();
    const joint::ExchangedData exchanged(trace, std::span(program.derivations).first(i + 1));
    trace.set_results(joint::record_gradients(trace, reading, program.derivations[i]));
  }
  return run;
}

}  // namespace tandem::pipeline
