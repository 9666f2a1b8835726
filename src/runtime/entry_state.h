#pragma once

#include "runtime/backward_kernels.h"
#include "runtime/call_plan.h"
#include "runtime/edge_pool.h"
#include "runtime/guards.h"
#include "tandem/entry.h"
#include "tandem/stages.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace tandem::runtime {

/// One specialisation: graphs, kernels, plan and guards. Immutable once built, but for a counter
/// and the edges that it keeps between calls; lives as long as an autograd node of one of its
/// calls.
class EntryState {
 public:
  /// Lowers both graphs through the backend.
  EntryState(Joint joint, Split split, std::shared_ptr<Backend> backend, Guards guards,
             std::vector<detail::Constant> result_constants);

  const ir::Graph& joint() const { return joint_; }
  const Split& split() const { return split_; }
  const ir::Signature& signature() const { return split_.signature; }
  const CallPlan& plan() const { return plan_; }
  const Guards& guards() const { return guards_; }
  const std::vector<at::Tensor>& lifted() const { return lifted_; }
  const std::vector<detail::Constant>& result_constants() const { return result_constants_; }
  /// The forward may raise ops::CheckFailed.
  bool has_checks() const { return has_checks_; }
  const std::string& backend_name() const { return backend_name_; }

  /// For verify_every: how many calls have been counted, this one included.
  int64_t count_call() const { return calls_.fetch_add(1, std::memory_order_relaxed) + 1; }

  Executable& forward() const { return *forward_; }
  BackwardKernels& backward() const { return *backward_; }
  EdgePool& edge_pool() const { return edge_pool_; }

 private:
  void compile_parts();

  ir::Graph joint_;
  Split split_;
  std::vector<at::Tensor> lifted_;
  CallPlan plan_;
  Guards guards_;
  std::vector<detail::Constant> result_constants_;
  std::string backend_name_;
  bool has_checks_ = false;
  std::unique_ptr<Executable> forward_;
  std::unique_ptr<BackwardKernels> backward_;  // null in an inference entry
  mutable std::atomic<int64_t> calls_{0};
  mutable EdgePool edge_pool_;
};

}  // namespace tandem::runtime
