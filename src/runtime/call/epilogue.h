#pragma once

#include "runtime/backward/call_node.h"
#include "runtime/entry_state.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

namespace tandem::runtime {

/// Raises eager's own errors for inputs that the call is going to rewrite and that must not be
/// written in place: results of split, views of leaves, views made without grad. Before any effect.
void check_rewrites(const EntryState& entry, std::span<const at::Tensor> inputs);

/// What follows the kernels of a call that changes more than the data of its inputs: histories,
/// sizes and storages of inputs, views of memory that the call made, results that are leaves.
///
/// The order matters. A node's edges must be complete before anything points to it, and results
/// depend on inputs as the call leaves them: so rewritten inputs come first, each after those that
/// its history leads to, and the node of the results last.
class Epilogue {
 public:
  /// `inputs` are those of the forward graph: the function's, then the bases of groups.
  Epilogue(std::shared_ptr<const EntryState> entry, std::span<const at::Tensor> inputs,
           std::span<at::Tensor> outputs, std::span<at::Tensor> results,
           std::optional<Snapshot> snapshot);
  void run();

 private:
  using Edge = torch::autograd::Edge;
  using NodePtr = decltype(Edge::function);

  const at::Tensor& real(const ir::CallTensor& tensor) const;
  void place_new_memory();
  void switch_on_gradients();
  void make_nodes();
  template <class Put>
  void replay(const ir::ViewReplay& replay, Put&& put);
  bool is_early(const ir::ViewReplay& replay, size_t output) const;
  at::Tensor sample_of(int64_t output);
  void replay_early();
  void replay_views();
  void renew_views() const;
  Edge history_of(int64_t output) const;
  void give_own_history(int64_t output);
  void change(const CallPlan::Change& change);
  void write_input(const CallPlan::Change& change, const at::Tensor& input,
                   const ir::InputFacts& facts);
  void change_metadata(const at::Tensor& input, const ir::InputFacts& facts);
  void attach(const at::Tensor& input, const CallPlan::Change& change);
  void settle(const ir::CallTensor& tensor);
  void finish_results();

  const std::shared_ptr<const EntryState> entry_;
  const ir::Signature& signature_;
  const CallPlan& plan_;
  std::span<const at::Tensor> inputs_;
  std::span<at::Tensor> outputs_;
  std::span<at::Tensor> results_;
  std::vector<at::Tensor> bases_;  // by base of the signature
  std::vector<NodePtr> nodes_;     // by part
  std::vector<Edge> targets_;      // by target of the plan
  std::optional<Snapshot> snapshot_;
};

}  // namespace tandem::runtime
