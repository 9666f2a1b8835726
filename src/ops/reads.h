#pragma once

#include "tandem/ir/graph.h"

#include <vector>

namespace tandem::ops {

/// `fn` gets every value that the backward of a joint graph reads or returns.
template <class Fn>
void for_each_backward_read(const ir::Graph& joint, const Fn& fn) {
  const auto present = [&](ir::ValueId id) {
    if (id != ir::kNoValue) fn(id);
  };
  joint.for_each_node([&](const ir::Node& node) {
    if (node.phase() != ir::Phase::Backward) return;
    for (const ir::Operand& operand : node.operands()) operand.for_each_value(present);
  });
  for (const ir::Output& output : joint.outputs()) {
    if (output.role.role == ir::Role::Grad) present(output.value);
  }
}

/// Draws are made again whether a gradient depends on them or not: others come after them.
enum class Draws : uint8_t { Count, DoNotCount };

/// Inputs of a joint graph that computing its gradients again will read, by position.
std::vector<bool> read_by_gradients(const ir::Graph& joint, Draws draws);

/// Whether anybody reads a result of a node.
bool is_read(const ir::Graph& graph, const ir::Node& node);

/// Whether the caller may see that a node of the forward ran although nobody reads its results: its
/// kernel may refuse what the operands hold, an index out of range, and eager raises then. The
/// backward has no such nodes: eager does not run there what no gradient needs.
bool may_raise(const ir::Graph& graph, const ir::Node& node);

/// Whether an op addresses memory from the start of its storage; so does the op's gradient.
bool counts_from_storage_start(const ir::Graph& graph);

}  // namespace tandem::ops
