#pragma once

#include "runtime/backward/kept_values.h"
#include "runtime/entry_state.h"

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tandem::runtime {

/// The history of a result from which no gradient reaches an input.
struct DeadEnd : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
  std::string name() const override { return "TandemBackward"; }
};
/// An edge to a new one.
torch::autograd::Edge dead_end_of(const at::Tensor& result);

/// An autograd node of one call: holds what the forward saved and runs the compiled backward. One
/// for the results, and one for each argument or group that the call rewrites.
///
/// Written by hand rather than as a torch::autograd::Function, so that aliased results and written
/// arguments stay out of it, and so that a call costs less than an eager addition.
class CallNode : public torch::autograd::Node {
 public:
  /// The only node of its call.
  explicit CallNode(std::shared_ptr<const EntryState> entry) : entry_(std::move(entry)) {}
  /// One of several, which share what is kept.
  CallNode(std::shared_ptr<const EntryState> entry, size_t part, std::shared_ptr<KeptValues> kept)
      : entry_(std::move(entry)), part_(part), shared_(std::move(kept)) {}
  ~CallNode() override { keep_leaf_edges(); }
  /// Where the deleter empties the edges before the destructor runs (libtorch 2.11).
  void before_delete() { keep_leaf_edges(); }

  /// The edges to everything that gets a gradient, complete before anything points to the node.
  /// `targets`: those of the plan that are taken in each call; moved from at their last use.
  void connect(std::span<torch::autograd::Edge> targets, std::span<const at::Tensor> inputs);
  /// Keeps the history, now that it is made, of an input that the node rewrites: its own or, of a
  /// view, one that leads to it. Weakly for that reason.
  void keep_history(const at::Tensor& input);
  /// The edge of a history that the part's gradients depend on; invalid where a view has gone or
  /// got another one.
  torch::autograd::Edge edge_of(const CallPlan::PassedHistory& passed);
  KeptValues& kept() { return shared_ ? *shared_ : own_; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;
  void release_variables() override {
    if (shared_) return shared_->release_if_spent();
    own_.release();
  }
  std::string name() const override { return "TandemBackward"; }

 private:
  void keep_leaf_edges();
  bool is_wanted(std::span<const int64_t> gradients) const;
  bool wants_all() const;
  std::vector<bool> wanted_gradients() const;
  void drop_idle(torch::autograd::variable_list& tangents, const std::vector<bool>& wanted) const;
  torch::autograd::variable_list apply_traced(const Backward& backward,
                                              torch::autograd::variable_list&& tangents);

  std::shared_ptr<const EntryState> entry_;
  size_t part_ = 0;
  std::shared_ptr<KeptValues> shared_;
  /// None: this node. It must not watch itself: libtorch 2.13 destroys a node when nobody watches
  /// it any more, and what the node holds with it.
  std::vector<std::optional<decltype(torch::autograd::AutogradMeta::grad_accumulator_)>> kept_;
  KeptValues own_;
};

}  // namespace tandem::runtime
