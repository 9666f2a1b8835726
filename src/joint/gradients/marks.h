#pragma once

#include "tandem/ir/graph.h"
#include "tracing/trace.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace tandem::joint {

/// The marks of ops/own/arrives.h, added at the end of the recording.
ir::ValueId add_arrives(ir::Graph& graph, ir::ValueId gradient, ir::Operand::Values tangents);
ir::ValueId add_either(ir::Graph& graph, ir::ValueId gradient, ir::ValueId otherwise,
                       ir::Operand::Values tangents);
ir::ValueId add_raises(ir::Graph& graph, ir::ValueId like, std::string text);

/// The gradient, or a stand-in for memory that a custom backward has made and filled by itself.
at::Tensor as_traced_tensor(tracing::Trace& trace, const at::Tensor& gradient);

/// The tensor in memory like another's: what reads a choice was recorded for the strides of its
/// first branch.
at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& tensor);

/// How often the function and its backward have written inputs so far.
uint64_t writes_to_inputs(const tracing::Trace& trace);

/// The node after this one, the first after none.
ir::NodeId following(const ir::Graph& graph, ir::NodeId node);

}  // namespace tandem::joint
