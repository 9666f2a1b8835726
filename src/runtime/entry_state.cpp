#include "runtime/entry_state.h"

#include "base/error.h"
#include "ops/own/check_not_equal.h"
#include "partition/saved_values.h"

#include <ostream>

namespace tandem::runtime {
namespace {

CompileContext forward_context(const Split& split, Liberties liberties) {
  CompileContext context;
  context.rounding = liberties.rounding;
  context.random = liberties.random;
  context.role = split.signature.training ? GraphRole::forward : GraphRole::inference;
  const size_t inputs = split.forward.inputs().size();
  for (size_t i = 0; i < inputs; ++i) {
    context.static_inputs.push_back(i < static_cast<size_t>(split.signature.lifted_count));
  }
  context.releasable_inputs.assign(inputs, false);
  return context;
}

CompileContext backward_context(const Split& split, Liberties liberties) {
  CompileContext context;
  context.rounding = liberties.rounding;
  context.random = liberties.random;
  context.role = GraphRole::backward;
  const size_t inputs = split.backward.inputs().size();
  context.static_inputs.assign(inputs, false);
  // The node hands over handles of its own: resetting them frees what nobody else holds.
  context.releasable_inputs.assign(inputs, true);
  return context;
}

}  // namespace

EntryState::EntryState(Joint joint, Split split, std::shared_ptr<Backend> backend, Guards guards,
                       std::vector<detail::Constant> result_constants, Higher higher,
                       Liberties liberties)
    : joint_(std::move(joint.graph)),
      split_(std::move(split)),
      lifted_(std::move(joint.lifted)),
      plan_(make_call_plan(split_)),
      guards_(std::move(guards)),
      result_constants_(std::move(result_constants)),
      backend_name_(backend->name()),
      has_checks_(ops::has_run_time_checks(split_.forward)),
      gradients_(std::move(higher.make)),
      argument_count_(higher.argument_count),
      argument_constants_(std::move(higher.argument_constants)) {
  forward_ = backend->compile(split_.forward, forward_context(split_, liberties));
  if (split_.signature.training) {
    backward_ =
        std::make_unique<BackwardKernels>(split_.backward, backward_context(split_, liberties),
                                          std::move(backend), split_.signature.effects);
    compile_parts();
    if (gradients_.can_make()) {
      primals_ = make_primal_plan(joint_, split_, plan_, higher.gradients_come_from);
      keeps_primals_ = true;
      takes_snapshot_ = primals_.needs_snapshot();
    }
  }
}

/// The backward never compiles for the first time when it runs: each node of a call meets its own
/// tangents first.
void EntryState::compile_parts() {
  if (plan_.parts[0].tangents.size() == split_.signature.tangents.size()) return;
  for (const CallPlan::Part& part : plan_.parts) {
    std::vector<bool> defined(split_.signature.tangents.size());
    for (size_t tangent : part.tangents) defined[tangent] = true;
    if (!part.tangents.empty()) backward_->get(defined);
  }
}

}  // namespace tandem::runtime

namespace tandem {
namespace {

void require_training(const runtime::EntryState& state, const char* what) {
  TANDEM_REQUIRE(state.signature().training, "call", "this entry is for inference and has no ",
                 what, " graph\n  remedy: ask for forward(), or look at kind() first");
}

}  // namespace

EntryKind Entry::kind() const {
  return state_->signature().training ? EntryKind::training : EntryKind::inference;
}

const ir::Signature& Entry::signature() const { return state_->signature(); }

const ir::Graph& Entry::joint() const {
  require_training(*state_, "joint");
  return state_->joint();
}

const ir::Graph& Entry::forward() const { return state_->split().forward; }

const ir::Graph& Entry::backward() const {
  require_training(*state_, "backward");
  return state_->split().backward;
}

std::vector<Guard> Entry::guards() const {
  std::vector<Guard> guards;
  for (std::string& text : state_->guards().texts()) guards.push_back({std::move(text)});
  return guards;
}

std::vector<Saved> Entry::saved() const { return partition::saved_with_lines(state_->split()); }

std::ostream& operator<<(std::ostream& out, const Entry& entry) {
  out << (entry.kind() == EntryKind::training ? "training" : "inference") << " entry, "
      << entry.forward().node_count() << " forward nodes";
  if (entry.kind() == EntryKind::training)
    out << ", " << entry.backward().node_count() << " backward nodes";
  return out << "\n" << entry.signature();
}

std::ostream& operator<<(std::ostream& out, const Miss& miss) { return out << miss.reason; }

std::ostream& operator<<(std::ostream& out, const Stats& stats) {
  out << stats.calls << " calls, " << stats.hits << " hits, " << stats.traces << " traces, "
      << stats.compiles << " compiles, " << stats.entries << " entries";
  if (stats.evictions) out << ", " << stats.evictions << " evictions";
  if (stats.eager_calls) out << ", " << stats.eager_calls << " eager calls";
  if (stats.zero_fallbacks) out << ", " << stats.zero_fallbacks << " metadata runs on zeros";
  for (const auto& [stage, seconds] : stats.seconds)
    out << "\n  " << stage << ": " << seconds * 1e3 << " ms";
  for (const Miss& miss : stats.misses) out << "\n  miss: " << miss.reason;
  return out;
}

}  // namespace tandem
