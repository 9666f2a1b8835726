#include "joint/gradients/marks.h"

#include "ops/own/arrives.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/empty_strided.h>

#include <utility>

namespace tandem::joint {
namespace {

/// A node of the backward whose result is like its first operand.
ir::ValueId add(ir::Graph& graph, const ops::OwnOp& op, std::vector<ir::Operand> operands) {
  const ir::Type type = graph.value(*operands[0].get_if<ir::ValueId>()).type();
  return graph
      .add_op({.op = op.handle(),
               .operands = std::move(operands),
               .results = {type},
               .phase = ir::Phase::Backward})
      .results()[0];
}

}  // namespace

ir::ValueId add_arrives(ir::Graph& graph, ir::ValueId gradient, ir::Operand::Values tangents) {
  return add(graph, ops::kArrives, {gradient, std::move(tangents)});
}

ir::ValueId add_either(ir::Graph& graph, ir::ValueId gradient, ir::ValueId otherwise,
                       ir::Operand::Values tangents) {
  ir::Operand other;
  if (otherwise != ir::kNoValue) other = otherwise;
  return add(graph, ops::kEither, {gradient, std::move(other), std::move(tangents)});
}

ir::ValueId add_raises(ir::Graph& graph, ir::ValueId like, std::string text) {
  return add(graph, ops::kRaises, {like, std::move(text)});
}

at::Tensor as_traced_tensor(tracing::Trace& trace, const at::Tensor& gradient) {
  return tracing::is_traced(gradient) ? gradient : trace.recording().inputs().stand_in(gradient);
}

at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& tensor) {
  if (tensor.strides() == like.strides()) return tensor;
  return at::empty_strided(like.sizes(), like.strides(), tensor.options()).copy_(tensor);
}

uint64_t writes_to_inputs(const tracing::Trace& trace) {
  uint64_t writes = 0;
  for (const tracing::StandIn& one : trace.stand_ins())
    writes +=
        at::functionalization::impl::unsafeGetFunctionalWrapper(one.tensor)->mutation_counter();
  return writes;
}

ir::NodeId following(const ir::Graph& graph, ir::NodeId node) {
  return node == ir::kNoNode ? graph.first_node() : graph.next(node);
}

}  // namespace tandem::joint
