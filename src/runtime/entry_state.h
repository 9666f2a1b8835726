#pragma once

#include "runtime/artifact.h"
#include "runtime/backward/backward_compiler.h"
#include "runtime/backward/backward_kernels.h"
#include "runtime/backward/found_memory.h"
#include "runtime/backward/gradient_functions.h"
#include "runtime/backward/primals.h"
#include "runtime/call/call_plan.h"
#include "runtime/call/pool.h"
#include "runtime/first_gradients.h"
#include "runtime/guards/guards.h"
#include "runtime/guards/memory_pattern.h"
#include "runtime/peak_meter.h"
#include "tandem/entry.h"
#include "tandem/stages.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace tandem::runtime {

/// What ties an entry to its process.
struct Connections {
  Guards guards;
  std::vector<at::Tensor> lifted{};
  std::shared_ptr<BackwardCompiler> compiler{};  // null: no backward but those of the artifact
  bool moves_generators = false;                 // host code of the function seeds or sets them
  ArgumentPlaces places{};                       // of the call that compiled
};

/// One variant of an entry: graphs, kernels, plan and guards for one set of sizes. Immutable once
/// built, but for the lists that it keeps between calls; lives as long as an autograd node of one
/// of its calls.
class EntryState {
 public:
  /// By bind(): everything in the artifact is ready to run.
  EntryState(Artifact artifact, Connections connections);

  const Artifact& artifact() const { return artifact_; }
  /// With the backwards that calls have met since: what to store.
  Artifact artifact_by_now() const;
  const ir::Graph& joint() const { return artifact_.joint; }
  const Split& split() const { return artifact_.split; }
  const ir::Signature& signature() const { return artifact_.split.signature; }
  const CallPlan& plan() const { return plan_; }
  const Guards& guards() const { return guards_; }
  const std::vector<at::Tensor>& lifted() const { return lifted_; }
  const std::vector<detail::Constant>& result_constants() const {
    return artifact_.result_constants;
  }
  /// The forward may raise ops::CheckFailed.
  bool has_checks() const { return has_checks_; }
  const std::string& backend_name() const { return artifact_.backend; }

  bool moves_generators() const { return moves_generators_; }
  /// Whether a trace on these arguments must record what was compiled: no guard asks for it.
  bool was_made_for(const detail::Flat& arguments) const {
    return places_ == ArgumentPlaces(lifted_, arguments.tensors);
  }

  FirstGradients& first_gradients() const { return first_gradients_; }

  bool keeps_primals() const { return keeps_primals_; }
  /// There is something to take before the kernels run.
  bool takes_snapshot() const { return takes_snapshot_; }
  const PrimalPlan& primals() const { return primals_; }
  GradientFunctions& gradients() const { return gradients_; }
  size_t argument_count() const { return guards_.argument_count(); }
  const std::vector<detail::Constant>& argument_constants() const { return guards_.constants(); }
  /// How the backward reads an input to which set_data() has given other memory.
  partition::ReadAs after_exchange(size_t input) const {
    return artifact_.after_exchange.empty() ? partition::ReadAs::Found
                                            : artifact_.after_exchange[input];
  }
  /// Whether there is an input that it reads in several ways.
  bool reads_in_several_ways() const { return reads_in_several_ways_; }
  /// Closed-over inputs of which each call notes where they lie, by position.
  const std::vector<size_t>& noted_lifted() const { return noted_lifted_; }
  /// The position of one of those in that list.
  size_t note_of(size_t input) const { return static_cast<size_t>(note_of_[input]); }
  /// A backward with create_graph has missed what an input held before its call wrote it: from now
  /// on calls keep copies of such inputs.
  void keep_copies() const { keeps_copies_.store(true, std::memory_order_relaxed); }
  bool keeps_copies() const { return keeps_copies_.load(std::memory_order_relaxed); }

  Executable& forward() const { return *artifact_.forward.ready; }
  BackwardKernels& backward() const { return *backward_; }
  EdgePool& edge_pool() const { return edge_pool_; }
  Pool<FoundMemories>& memory_pool() const { return memory_pool_; }
  /// Of the first forward and the first backward.
  PeakMeter& peak_meter() const { return peak_meter_; }

 private:
  const Artifact artifact_;
  std::vector<at::Tensor> lifted_;
  mutable FirstGradients first_gradients_;
  CallPlan plan_;
  Guards guards_;
  bool has_checks_ = false;
  std::unique_ptr<BackwardKernels> backward_;  // null in an inference entry
  bool moves_generators_ = false;
  ArgumentPlaces places_;
  mutable EdgePool edge_pool_;
  mutable Pool<FoundMemories> memory_pool_;
  mutable PeakMeter peak_meter_;
  PrimalPlan primals_;
  mutable GradientFunctions gradients_;
  std::vector<size_t> noted_lifted_;
  std::vector<int64_t> note_of_;  // by closed-over input; -1: nobody asks
  bool reads_in_several_ways_ = false;
  bool keeps_primals_ = false;
  bool takes_snapshot_ = false;
  mutable std::atomic<bool> keeps_copies_{false};
  void plan_notes();
};

/// Closed-over inputs in whose place the function of a call's gradients takes another tensor:
/// those that the call changes, and those that set_data() has given other data since.
std::vector<size_t> replaced_lifted(const EntryState& entry, const std::vector<size_t>& exchanged);

}  // namespace tandem::runtime
