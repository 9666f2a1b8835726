#include "runtime/entry_state.h"

#include "base/error.h"
#include "ops/own/check_not_equal.h"
#include "partition/saved_values.h"

#include <algorithm>
#include <ostream>

namespace tandem::runtime {

EntryState::EntryState(Artifact artifact, Connections connections)
    : artifact_(std::move(artifact)),
      lifted_(std::move(connections.lifted)),
      first_gradients_(signature(), lifted_),
      plan_(make_call_plan(artifact_.split)),
      guards_(std::move(connections.guards)),
      has_checks_(ops::has_run_time_checks(artifact_.split.forward)),
      moves_generators_(connections.moves_generators),
      places_(std::move(connections.places)),
      gradients_(signature().training ? connections.compiler : nullptr, guards_.were_loaded()) {
  if (!signature().training) return;
  backward_ = std::make_unique<BackwardKernels>(artifact_, std::move(connections.compiler));
  if (gradients_.can_make()) {
    primals_ = make_primal_plan(joint(), split(), plan_);
    keeps_primals_ = true;
    takes_snapshot_ = primals_.needs_snapshot();
  }
  plan_notes();
}

/// What the backward reads, or a backward that traces the function again.
void EntryState::plan_notes() {
  std::vector<bool> noted(lifted_.size(), false);
  const auto note = [&](size_t input) {
    if (input < noted.size()) noted[input] = true;
  };
  for (size_t input : plan_.lifted_as_found) note(input);
  for (size_t input = 0; input < signature().inputs.size(); ++input) {
    const partition::ReadAs how = after_exchange(input);
    reads_in_several_ways_ |= how == partition::ReadAs::Several;
    if (how != partition::ReadAs::Found) note(input);
  }
  for (size_t input : primals_.read_lifted) note(input);
  note_of_.assign(lifted_.size(), -1);
  for (size_t input = 0; input < noted.size(); ++input) {
    if (!noted[input]) continue;
    note_of_[input] = static_cast<int64_t>(noted_lifted_.size());
    noted_lifted_.push_back(input);
  }
}

Artifact EntryState::artifact_by_now() const {
  Artifact artifact = artifact_;
  if (!backward_) return artifact;
  for (Backward& further : backward_->further()) artifact.backwards.push_back(std::move(further));
  return artifact;
}

std::vector<size_t> replaced_lifted(const EntryState& entry, const std::vector<size_t>& exchanged) {
  std::vector<size_t> replaced = entry.primals().replaced;
  for (size_t input : exchanged) {
    if (input < entry.lifted().size() && std::ranges::count(replaced, input) == 0)
      replaced.push_back(input);
  }
  return replaced;
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
  if (stats.variants > stats.entries) out << ", " << stats.variants << " variants";
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
