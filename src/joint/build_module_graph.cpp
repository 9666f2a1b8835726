#include "joint/build_module_graph.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "joint/gradients/gradient_stop.h"
#include "joint/gradients/gradients.h"
#include "joint/gradients/release_groups.h"
#include "signature/read_signature.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <deque>
#include <unordered_map>

namespace tandem::joint {
namespace {

using tracing::StandIn;

/// One input of the graph: a stand-in, or a tensor of the module that the forward never touched.
struct Input {
  const StandIn* stand_in = nullptr;
  const ModuleTensor* unused = nullptr;
  bool written = false;
  ir::ValueId new_data = ir::kNoValue;
};

std::vector<Input> inputs_in_order(const tracing::Trace& trace, const ir::Signature& signature,
                                   const ModuleForm& form) {
  const std::vector<size_t> order = signature::calling_order(trace);
  std::unordered_map<const c10::TensorImpl*, Input> lifted;
  std::vector<Input> arguments;
  for (size_t i = 0; i < order.size(); ++i) {
    const StandIn& stand_in = trace.stand_ins()[order[i]];
    const Input input{.stand_in = &stand_in,
                      .written = signature.inputs[i].data_written,
                      .new_data = tracing::current_value(stand_in.tensor)};
    if (order[i] < trace.argument_count()) {
      arguments.push_back(input);
    } else {
      lifted.emplace(stand_in.real.unsafeGetTensorImpl(), input);
    }
  }
  std::vector<Input> inputs;
  for (const ModuleTensor& one : form.state) {
    const auto found = lifted.find(one.tensor.unsafeGetTensorImpl());
    inputs.push_back(found == lifted.end() ? Input{.unused = &one} : found->second);
  }
  inputs.insert(inputs.end(), arguments.begin(), arguments.end());
  return inputs;
}

/// Of the loss, per input; undefined where nothing flows.
std::vector<at::Tensor> gradients_of(tracing::Trace& trace, const std::vector<Input>& inputs,
                                     int64_t loss_output) {
  tracing::Recording& recording = trace.recording();
  recording.set_phase(ir::Phase::Backward);
  const at::Tensor& loss = trace.results().tensors[static_cast<size_t>(loss_output)];
  Differentiation task;
  std::deque<GradientStop> stops;
  task.roots.push_back(torch::autograd::impl::gradient_edge(loss));
  task.tangents.push_back(at::ones_like(loss.detach()));
  for (const Input& input : inputs) {
    if (!input.stand_in || !wants_gradient(*input.stand_in)) continue;
    const torch::autograd::Edge& edge = input.stand_in->histories.front();
    task.wanted.push_back(edge);
    // Inputs of a graph are independent of each other: a view does not lead to its base.
    if (is_view_member(trace, *input.stand_in)) stops.emplace_back(edge).close();
  }
  const size_t inputs_before = trace.stand_ins().size();
  const Gradients found = differentiate(recording, task);
  check_nothing_lifted(trace, inputs_before);
  TANDEM_REQUIRE(found.raises.front().empty(), "export", "the backward of output ", loss_output,
                 " raises in eager\n  libtorch: ", found.raises.front(),
                 "\n  remedy:   do not overwrite what the backward needs");
  std::vector<at::Tensor> gradients(inputs.size());
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].stand_in && wants_gradient(*inputs[i].stand_in))
      gradients[i] = found.values[next++];
  }
  return gradients;
}

bool requires_grad(const Input& input) {
  return input.stand_in ? input.stand_in->requires_grad : input.unused->tensor.requires_grad();
}

}  // namespace

ir::Graph build_module_graph(tracing::Trace& trace, const ir::Signature& signature,
                             const ModuleForm& form, std::string name) {
  // Values of the forward, before the backward can write anything.
  const std::vector<Input> inputs = inputs_in_order(trace, signature, form);
  std::vector<ir::ValueId> results;
  for (const at::Tensor& result : trace.results().tensors) {
    results.push_back(result.defined() ? tracing::current_value(result) : ir::kNoValue);
  }
  std::vector<at::Tensor> gradients;
  if (form.loss_output) gradients = gradients_of(trace, inputs, *form.loss_output);

  ir::Graph& graph = trace.recording().graph();
  std::vector<ir::ValueId> order;
  std::vector<ir::Output> outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    if (input.unused) {
      const ir::Descriptor& role = input.unused->role;
      order.push_back(
          graph.add_input(ir::type_of(input.unused->tensor), role, tracing::value_name(role)).id());
      continue;
    }
    order.push_back(input.stand_in->input);
    if (input.written)
      outputs.push_back({input.new_data, ir::Descriptor::mutated(static_cast<int64_t>(i))});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.push_back({results[i], ir::Descriptor::output(static_cast<int64_t>(i))});
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!requires_grad(inputs[i])) continue;
    const std::string& of = graph.input_role(order[i]).name;
    outputs.push_back({gradients[i].defined() ? tracing::current_value(gradients[i]) : ir::kNoValue,
                       ir::Descriptor::grad(static_cast<int64_t>(i), of)});
  }
  graph.set_outputs(std::move(outputs));
  release_groups(trace, {});
  graph.reorder_inputs(std::move(order));
  graph.set_name(std::move(name));
  return std::move(graph);
}

}  // namespace tandem::joint
