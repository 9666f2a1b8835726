#pragma once

#include "runtime/entry_state.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <vector>

namespace tandem::runtime {

/// The autograd node of one call: holds what the forward saved and runs the compiled backward.
///
/// Written by hand rather than as a torch::autograd::Function, so that aliased results and written
/// arguments stay out of it.
class CallNode : public torch::autograd::Node {
 public:
  explicit CallNode(std::shared_ptr<const EntryState> entry) : entry_(std::move(entry)) {}

  /// Keeps the saved values. `outputs` are the forward graph's, `results` the function's, with
  /// their history.
  void save(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs,
            std::span<const at::Tensor> results);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;
  void release_variables() override;
  std::string name() const override { return "TandemBackward"; }

 private:
  std::vector<at::Tensor> take_saved(bool keep);

  std::shared_ptr<const EntryState> entry_;
  std::vector<torch::autograd::SavedVariable> inputs_;   // by reference, in slot order
  std::vector<torch::autograd::SavedVariable> results_;  // for their version only, in slot order
  std::vector<at::Tensor> values_;                       // one per slot; undefined for inputs
  bool released_ = false;
  std::mutex mutex_;
};

}  // namespace tandem::runtime
