#pragma once

#include "runtime/entry_state.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <vector>

namespace tandem::runtime {

/// The autograd node of one call: holds what the forward saved and runs the compiled backward.
///
/// Written by hand rather than as a torch::autograd::Function, so that aliased results and written
/// arguments stay out of it, and so that a call costs less than an eager addition.
class CallNode : public torch::autograd::Node {
 public:
  explicit CallNode(std::shared_ptr<const EntryState> entry) : entry_(std::move(entry)) {}
  ~CallNode() override { keep_parameter_edges(); }
  /// Where the deleter empties the edges before the destructor runs (libtorch 2.11).
  void before_delete() { keep_parameter_edges(); }

  /// The edges to every input that gets a gradient. A node's edges must be complete before anything
  /// points to it.
  void connect_inputs(std::span<const at::Tensor> inputs);
  /// Makes the node the history of the results that need one.
  void connect_results(std::span<at::Tensor> results);
  /// Keeps the saved values. `outputs` are the forward graph's, `results` the function's, with
  /// their history.
  void save(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs,
            std::span<const at::Tensor> results);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;
  void release_variables() override;
  std::string name() const override { return "TandemBackward"; }

 private:
  /// An argument kept by reference, with the version that it had.
  struct SavedArgument {
    at::Tensor tensor;
    uint32_t version;
  };
  /// A result whose memory the backward reads. Only its counter is kept: the result points to this
  /// node, and neither would ever die.
  struct WatchedResult {
    c10::VariableVersion counter;
    uint32_t version;
    uint32_t number;  // of the result among the node's
  };

  void save_with_hooks(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs);
  std::vector<at::Tensor> take_saved(const std::vector<bool>& defined, const Backward& backward);
  void require_unspent(const std::vector<bool>& defined, const Backward& backward) const;
  void spend(const std::vector<bool>& defined, const Backward& backward);
  void check_versions(const Backward& backward);
  void keep_parameter_edges();

  std::shared_ptr<const EntryState> entry_;
  // In the order of the plan's slots; each slot is in one of these three.
  c10::SmallVector<SavedArgument, 2> arguments_;
  c10::SmallVector<uint32_t, 8> lifted_versions_;  // the entry owns the tensors
  c10::SmallVector<at::Tensor, 2> values_;
  c10::SmallVector<WatchedResult, 1> results_;
  std::vector<torch::autograd::SavedVariable> hooked_;  // all of it, where the user's hooks pack it
  bool released_ = false;
  // Results may be differentiated one by one; what eager frees then is what the formulas of the
  // result read. Both lists are empty until that happens.
  std::vector<bool> spent_;  // by tangent
  std::vector<bool> taken_;  // by slot
  bool spared_ = false;      // the last backward has released what it may by itself
};

}  // namespace tandem::runtime
