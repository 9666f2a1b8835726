#pragma once

#include "joint/gradients/root_set.h"
#include "tandem/ir/graph.h"
#include "tracing/trace.h"

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::joint {

/// A formula that sees which of its gradients are there, and may compute something else then.
struct FormulaBranches {
  tracing::Trace& trace;
  torch::autograd::Node& node;
  bool is_custom = false;
  std::span<const ir::ValueId> tangents;
  const RootSet& reached;
  const std::vector<RootSet>& entered;  // by gradient: from which roots it comes
  ir::NodeId before = ir::kNoNode;      // the last node before the formula ran
  uint64_t writes_before = 0;           // of a custom function: to inputs, by then
};

/// Runs the formula again without some of its gradients, once for each choice that a backward from
/// some of the roots can meet, and makes each result a choice between these branches.
///
/// `outputs` are those of the run with all gradients. `from` becomes the roots from which each
/// arrives. False, and nothing is changed, if a formula of libtorch has too many branches: then it
/// is taken to be linear. A custom function's that cannot be recorded is an UnsupportedError.
bool record_branches(const FormulaBranches& formula,
                     const torch::autograd::variable_list& gradients,
                     torch::autograd::variable_list& outputs, std::vector<RootSet>& from);

}  // namespace tandem::joint
