#include "joint/build_joint.h"

#include "joint/gradients.h"
#include "signature/read_signature.h"
#include "tandem/ir/text.h"
#include "tracing/traced_tensor.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::joint {
namespace {

using tracing::StandIn;

bool needs_tangent(const ir::OutputFacts& output) {
  return output.kind == ir::OutputKind::Fresh && output.requires_grad;
}

/// One output per written input, one per fresh result, one gradient per input that requires grad.
std::vector<ir::Output> outputs_in_calling_order(const tracing::Trace& trace,
                                                 const ir::Signature& signature,
                                                 const std::vector<size_t>& order,
                                                 const std::vector<ir::ValueId>& result_values,
                                                 const std::vector<ir::ValueId>& new_data,
                                                 const std::vector<at::Tensor>& gradients) {
  std::vector<ir::Output> outputs;
  for (size_t i = 0; i < order.size(); ++i) {
    if (!signature.inputs[i].data_written || signature.inputs[i].duplicate_of >= 0) continue;
    outputs.push_back({new_data[i], ir::Descriptor::mutated(static_cast<int64_t>(i))});
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (signature.outputs[i].kind != ir::OutputKind::Fresh) continue;
    outputs.push_back({result_values[i], ir::Descriptor::output(static_cast<int64_t>(i))});
  }
  if (!signature.training) return outputs;
  size_t next = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (!wants_gradient(trace.stand_ins()[order[i]])) continue;
    const at::Tensor& gradient = gradients[next++];
    outputs.push_back(
        {gradient.defined() ? tracing::current_value(gradient) : ir::kNoValue,
         ir::Descriptor::grad(static_cast<int64_t>(i), signature.inputs[i].role.name)});
  }
  return outputs;
}

}  // namespace

Joint build_joint(tracing::Trace& trace, ir::Signature signature, std::string name) {
  tracing::Recording& recording = trace.recording();
  const std::vector<size_t> order = signature::calling_order(trace);

  // Values of the forward, before the backward can write anything.
  std::vector<ir::ValueId> result_values, new_data;
  for (const at::Tensor& result : trace.results().tensors) {
    result_values.push_back(result.defined() ? tracing::current_value(result) : ir::kNoValue);
  }
  for (size_t position : order) {
    new_data.push_back(tracing::current_value(trace.stand_ins()[position].tensor));
  }

  recording.set_phase(ir::Phase::Backward);
  Differentiation task;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    if (!needs_tangent(signature.outputs[i])) continue;
    const at::Tensor& result = trace.results().tensors[i];
    const auto index = static_cast<int64_t>(signature.tangents.size());
    task.roots.push_back(torch::autograd::impl::gradient_edge(result));
    task.tangents.push_back(tracing::make_tangent(recording, result, index));
    const ir::ValueId input = recording.graph().inputs().back();
    signature.tangents.push_back(
        {.output = static_cast<int64_t>(i), .type = recording.graph().value(input).tensor_type()});
  }
  signature.training = !signature.tangents.empty();
  for (size_t position : order) {
    if (const StandIn& stand_in = trace.stand_ins()[position]; wants_gradient(stand_in)) {
      task.wanted.push_back(stand_in.edge);
    }
  }

  const size_t inputs_before = trace.stand_ins().size();
  const Gradients gradients = differentiate(recording, task);
  for (size_t i = 0; i < gradients.raises.size(); ++i)
    signature.tangents[i].raises = gradients.raises[i];
  check_nothing_lifted(trace, inputs_before);

  ir::Graph& graph = recording.graph();
  graph.set_outputs(
      outputs_in_calling_order(trace, signature, order, result_values, new_data, gradients.values));
  std::vector<ir::ValueId> inputs;
  for (size_t position : order) inputs.push_back(trace.stand_ins()[position].input);
  for (ir::ValueId input : graph.inputs()) {
    if (graph.input_role(input).role == ir::Role::Tangent) inputs.push_back(input);
  }
  graph.reorder_inputs(std::move(inputs));
  graph.set_name(std::move(name));

  Joint joint{.graph = std::move(graph), .signature = std::move(signature)};
  for (size_t i = trace.argument_count(); i < trace.stand_ins().size(); ++i) {
    joint.lifted.push_back(trace.stand_ins()[i].real);
  }
  return joint;
}

}  // namespace tandem::joint
