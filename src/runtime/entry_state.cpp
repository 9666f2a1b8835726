#include "runtime/entry_state.h"

#include "base/error.h"
#include "ops/own/check_not_equal.h"
#include "partition/saved_values.h"

#include <ostream>

namespace tandem::runtime {

EntryState::EntryState(Artifact artifact, Connections connections)
    : artifact_(std::move(artifact)),
      lifted_(std::move(connections.lifted)),
      first_gradients_(signature(), lifted_),
      plan_(make_call_plan(artifact_.split)),
      guards_(std::move(connections.guards)),
      has_checks_(ops::has_run_time_checks(artifact_.split.forward)),
      checks_(connections.verify_every),
      moves_generators_(connections.moves_generators),
      places_(std::move(connections.places)),
      gradients_(signature().training ? connections.compiler : nullptr, guards_.were_loaded()) {
  if (!signature().training) return;
  backward_ = std::make_unique<BackwardKernels>(artifact_, std::move(connections.compiler));
  if (!gradients_.can_make()) return;
  primals_ = make_primal_plan(joint(), split(), plan_);
  keeps_primals_ = true;
  takes_snapshot_ = primals_.needs_snapshot();
}

Artifact EntryState::artifact_by_now() const {
  Artifact artifact = artifact_;
  if (!backward_) return artifact;
  for (Backward& further : backward_->further()) artifact.backwards.push_back(std::move(further));
  return artifact;
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
  if (stats.checks) out << ", " << stats.checks << " checks";
  if (stats.evictions) out << ", " << stats.evictions << " evictions";
  if (stats.eager_calls) out << ", " << stats.eager_calls << " eager calls";
  if (stats.backend_fallbacks) out << ", " << stats.backend_fallbacks << " backend fallbacks";
  if (stats.zero_fallbacks) out << ", " << stats.zero_fallbacks << " metadata runs on zeros";
  for (const auto& [stage, seconds] : stats.seconds)
    out << "\n  " << stage << ": " << seconds * 1e3 << " ms";
  for (const Miss& miss : stats.misses) out << "\n  miss: " << miss.reason;
  return out;
}

}  // namespace tandem
