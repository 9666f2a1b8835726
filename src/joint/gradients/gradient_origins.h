#pragma once

#include "joint/gradients/root_set.h"
#include "tandem/ir/graph.h"
#include "tracing/trace.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace tandem::joint {

/// From which roots of a backward a gradient arrives where, as eager's engine would bring it.
///
/// The data does not always tell, and no formula need be linear: a custom function's backward runs
/// as soon as the engine gets there, with zeros for what did not arrive. So the borders of nodes
/// are marked in the recording (ops/own/arrives.h) where data flow would say something else. Lives
/// while the engine runs and follows it from node to node.
class GradientOrigins {
 public:
  /// Nodes of the user's formulas, and in which part of the backward each has run.
  using Parts = std::unordered_map<const torch::autograd::Node*, int64_t>;
  struct Watched {
    int64_t part = 0;
    int64_t parts = 1;  // of the backward
    std::vector<torch::autograd::Edge> roots{};
    std::vector<ir::ValueId> tangents{};         // one per root
    std::vector<torch::autograd::Edge> stops{};  // where a gradient goes no further
    /// Whether borders are marked. Marks have no history of their own.
    bool marks = true;
    /// Histories that arguments are passed for: the backward of the call goes on from there.
    std::vector<torch::autograd::Edge> passed{};
  };
  /// `parts` is shared by all parts of a backward.
  GradientOrigins(tracing::Trace& trace, Watched watched, Parts& parts);
  ~GradientOrigins();
  GradientOrigins(const GradientOrigins&) = delete;
  GradientOrigins& operator=(const GradientOrigins&) = delete;

  /// The engine is about to run from some of the roots.
  void begin(std::span<const torch::autograd::Edge> roots);
  /// By root: whether the run that is over brought a gradient from it to the edge.
  RootSet of(const torch::autograd::Edge& edge) const;
  /// The value, with a mark if its data does not show that it arrives from these roots.
  ir::ValueId marked(ir::ValueId value, const RootSet& from);
  /// A formula that is not linear and the roots whose backward runs it here, where the backward of
  /// the call runs it once more: a gradient arrives at what is passed, and goes on there. Eager
  /// runs it once, on the sum.
  struct RunTwice {
    const torch::autograd::Node* node = nullptr;  // null: there is none
    RootSet roots{};
  };
  RunTwice run_twice() const;

 private:
  struct Enter;
  struct Leave;
  struct Visit {
    torch::autograd::Node* node = nullptr;
    bool is_custom = false, materializes = false;
    torch::autograd::FunctionPreHook* enter = nullptr;
    uintptr_t leave = 0;
    // of the run under way
    RootSet reached{};                // the engine gets here, with or without a gradient
    std::vector<RootSet> slots{};     // by gradient: what was brought
    std::vector<RootSet> entered{};   // what the formula is given; none: undefined
    ir::NodeId before = ir::kNoNode;  // the last node that was recorded before its formula
    uint64_t writes = 0;              // to inputs, by then; if it sees what is there
  };
  void watch(Visit& visit);
  torch::autograd::variable_list enter(Visit& visit,
                                       const torch::autograd::variable_list& gradients);
  torch::autograd::variable_list leave(Visit& visit, const torch::autograd::variable_list& outputs,
                                       const torch::autograd::variable_list& inputs);
  void show_hooks_what_is_missing(Visit& visit, torch::autograd::variable_list& passed);
  bool looks_at_what_is_defined(const Visit& visit) const;
  void pass_on(const Visit& visit, const torch::autograd::variable_list& found,
               const std::vector<RootSet>& from);
  void check_runs_once(const Visit& visit, ir::NodeId after,
                       const torch::autograd::variable_list& results);
  bool is_stop(const torch::autograd::Edge& edge) const;
  const RootSet& depends(ir::ValueId value);
  void catch_up();

  tracing::Trace& trace_;
  ir::Graph& graph_;
  const Watched watched_;
  const std::vector<torch::autograd::Edge>& roots_;
  const std::vector<ir::ValueId>& tangents_;
  Parts& parts_;
  const RootSet none_;
  std::unordered_map<torch::autograd::Node*, Visit> visits_;
  std::unordered_map<const torch::autograd::Node*, RootSet> not_linear_;  // if anything is passed
  std::unordered_map<ir::ValueId, RootSet> depends_;  // of values that depend on some tangent
  ir::NodeId caught_up_ = ir::kNoNode;
  ir::NodeId left_ = ir::kNoNode;  // the last node of the last formula that has run
};

/// Whether each of the values depends on one of the tangents.
std::vector<bool> depends_on(const ir::Graph& graph, std::span<const ir::ValueId> tangents,
                             std::span<const ir::ValueId> values);

}  // namespace tandem::joint
