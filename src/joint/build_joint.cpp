#include "joint/build_joint.h"

#include "base/error.h"
#include "joint/gradients/backward_writes.h"
#include "joint/gradients/endpoints.h"
#include "joint/gradients/gradient_origins.h"
#include "joint/gradients/gradients.h"
#include "joint/gradients/release_groups.h"
#include "joint/inputs_read.h"
#include "joint/written_versions.h"
#include "tandem/ir/text.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

namespace tandem::joint {
namespace {

class Builder {
 public:
  Builder(tracing::Trace& trace, signature::Reading reading)
      : trace_(trace),
        recording_(trace.recording()),
        graph_(trace.recording().graph()),
        reading_(std::move(reading)),
        signature_(reading_.signature),
        order_(signature::calling_order(trace)),
        endpoints_(trace, reading_) {
    // Values of the forward, before the backward can write anything.
    for (const at::Tensor& result : trace.results().tensors) {
      results_.push_back(result.defined() ? tracing::current_value(result) : ir::kNoValue);
    }
  }

  Joint run(std::string name) && {
    recording_.set_phase(ir::Phase::Backward);
    add_forward_outputs();
    add_tangents();
    signature_.training = !signature_.tangents.empty();
    if (signature_.training) {
      const size_t inputs_before = trace_.stand_ins().size();
      writes_.emplace(trace_);
      for (int64_t part = 0; part < endpoints_.parts(); ++part) differentiate_part(part);
      check_nothing_lifted(trace_, inputs_before);
    }
    if (writes_) writes_->record(signature_, formulas_);
    signature_.effects = formulas_.effects(graph_);
    graph_.set_outputs(std::move(outputs_));
    release_groups(trace_, reading_.groups);
    order_inputs();
    graph_.set_name(std::move(name));

    Joint joint{.graph = std::move(graph_), .signature = std::move(signature_)};
    for (size_t i = trace_.argument_count(); i < trace_.stand_ins().size(); ++i)
      joint.lifted.push_back(trace_.stand_ins()[i].real);
    note_inputs_read(joint);
    formulas_.note_reads(joint.graph);
    joint.signature.formulas = formulas_.facts();
    return joint;
  }

 private:
  /// New data of written inputs, fresh results, hidden bases.
  void add_forward_outputs() {
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const ir::InputFacts& facts = signature_.inputs[i];
      if (!facts.data_written || facts.duplicate_of >= 0) continue;
      outputs_.push_back({reading_.new_data[i], ir::Descriptor::mutated(static_cast<int64_t>(i))});
    }
    for (size_t i = 0; i < signature_.outputs.size(); ++i) {
      if (signature_.outputs[i].kind != ir::OutputKind::Fresh) continue;
      outputs_.push_back({results_[i], ir::Descriptor::output(static_cast<int64_t>(i))});
    }
    for (size_t i = 0; i < signature_.bases.size(); ++i) {
      if (signature_.bases[i].output >= 0) continue;
      outputs_.push_back({reading_.bases[i].value, ir::Descriptor::base(static_cast<int64_t>(i))});
    }
  }

  void add_tangents() {
    for (const Root& root : endpoints_.roots()) {
      const auto index = static_cast<int64_t>(signature_.tangents.size());
      tangents_.push_back(tracing::make_tangent(recording_, root.tensor, index));
      const ir::ValueId value = graph_.inputs().back();
      tangent_values_.push_back(value);
      signature_.tangents.push_back(
          {.of = root.of, .type = graph_.value(value).tensor_type(), .part = root.part});
    }
  }

  /// The gradients of one autograd node of the call.
  void differentiate_part(int64_t part) {
    Differentiation task;
    std::vector<size_t> tangents;
    for (size_t i = 0; i < tangents_.size(); ++i) {
      if (endpoints_.roots()[i].part != part) continue;
      tangents.push_back(i);
      task.roots.push_back(endpoints_.roots()[i].edge);
      task.tangents.push_back(tangents_[i]);
    }
    if (tangents.empty()) return;
    const std::vector<const Target*> wanted = endpoints_.prepare(part);
    std::vector<torch::autograd::Edge> stops;
    for (const Target* target : wanted) {
      task.wanted.push_back(target->edge);
      if (target->stop && target->stop->is_closed()) stops.push_back(target->edge);
    }
    std::vector<torch::autograd::Edge> passed;
    for (const tracing::StandIn& one : trace_.stand_ins()) {
      if (one.history_only) passed.push_back(one.histories.front());
    }
    std::vector<ir::ValueId> tangents_here;
    for (size_t i : tangents) tangents_here.push_back(tangent_values_[i]);
    GradientOrigins origins(trace_,
                            {.part = part,
                             .parts = endpoints_.parts(),
                             .roots = task.roots,
                             .tangents = tangents_here,
                             .stops = stops,
                             .passed = std::move(passed)},
                            users_formulas_);
    task.origins = &origins;
    FormulaWatch watch(trace_,
                       {.part = part,
                        .roots = task.roots,
                        .tangents = tangents,
                        .wanted = task.wanted,
                        .stops = stops},
                       formulas_, *writes_);
    task.formulas = &watch;
    const WrittenVersions versions(trace_);
    const Gradients gradients = differentiate(recording_, task);
    for (size_t i = 0; i < tangents.size(); ++i)
      signature_.tangents[tangents[i]].raises = gradients.raises[i];
    std::vector<ir::ValueId> values;
    for (const at::Tensor& gradient : gradients.values)
      values.push_back(gradient.defined() ? tracing::current_value(gradient) : ir::kNoValue);
    if (endpoints_.parts() > 1) drop_independent(graph_, tangent_values_, values);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = origins.marked(values[i], gradients.origins[i]);
    // Where eager's backward raises, the compiled one must get as far. So gradients without a value
    // are listed, too.
    const bool raises = std::ranges::any_of(gradients.raises,
                                            [](const std::string& text) { return !text.empty(); });
    std::vector<int64_t> positions;  // of the gradients
    const size_t first_gradient = signature_.gradients.size();
    for (size_t i = 0; i < wanted.size(); ++i) {
      positions.push_back(add_gradient(*wanted[i], part, values[i], raises));
      if (!raises) continue;
      for (size_t k = 0; k < tangents.size(); ++k) {
        if (gradients.raises_in[k][i])
          signature_.tangents[tangents[k]].raises_in.push_back(
              static_cast<int64_t>(signature_.gradients.size()) - 1);
      }
    }
    watch.finish(positions);
    refuse_run_twice(origins.run_twice(), tangents, first_gradient);
  }

  /// Only a backward that gets there is refused, when it is run: the call has been made.
  void refuse_run_twice(const GradientOrigins::RunTwice& twice, const std::vector<size_t>& tangents,
                        size_t first_gradient) {
    if (twice.node == nullptr) return;
    for (size_t k = 0; k < tangents.size(); ++k) {
      ir::TangentFacts& tangent = signature_.tangents[tangents[k]];
      if (!twice.roots[k] || !tangent.raises.empty()) continue;
      tangent.raises = base::str(
          "joint: a gradient of a gradient leads to the formula of a custom function or hook (of ",
          twice.node->name(),
          ") twice, through a result or argument of the compiled function and past it, and the "
          "formula is not certainly linear",
          "\n  remedy: compute the gradients of gradients inside the compiled function, or call "
          "the "
          "custom function outside");
      const size_t first_output = outputs_.size() - signature_.gradients.size();
      for (size_t i = first_gradient; i < signature_.gradients.size(); ++i) {
        if (outputs_[first_output + i].value != ir::kNoValue)
          tangent.raises_in.push_back(static_cast<int64_t>(i));
      }
    }
  }

  /// Its position in the signature; -1: there is none.
  int64_t add_gradient(const Target& target, int64_t part, ir::ValueId value, bool raises) {
    const ir::CallTensor& tensor = target.of.tensor;
    const ir::InputFacts* input =
        tensor.is_input() ? &signature_.inputs[static_cast<size_t>(tensor.index)] : nullptr;
    const bool of_input = input && !input->history_only && target.of.number == 0 && part == 0;
    if (value == ir::kNoValue && !of_input && !raises) return -1;
    if (value != ir::kNoValue && of_input) refuse_other_sizes(static_cast<size_t>(tensor.index));
    const auto inputs = static_cast<int64_t>(signature_.inputs.size());
    const int64_t index = of_input ? tensor.index : inputs + further_gradients_++;
    outputs_.push_back(
        {value, ir::Descriptor::grad(index, input ? input->role.name : std::string())});
    signature_.gradients.push_back({.of = target.of, .part = part});
    return std::ssize(signature_.gradients) - 1;
  }

  /// Which sizes the gradient of such a leaf has depends in eager on whether the function read it
  /// before.
  void refuse_other_sizes(size_t index) const {
    const ir::InputFacts& facts = signature_.inputs[index];
    if (!facts.is_leaf || !facts.type_after || facts.type_after->sizes == facts.type->sizes) return;
    const tracing::StandIn& leaf = trace_.stand_ins()[order_[index]];
    TANDEM_UNSUPPORTED(
        "joint", trace_.name_of(leaf),
        " is a leaf that gets other sizes in place, and a gradient flows to it",
        base::detail_line("at", trace_.line_of(leaf.tensor)),
        "\n  sizes:  ", at::IntArrayRef(facts.type->static_sizes()), ", then ",
        at::IntArrayRef(facts.type_after->static_sizes()),
        "\n  remedy: reshape it outside, or out of place (unsqueeze for unsqueeze_)");
  }

  void order_inputs() {
    std::vector<ir::ValueId> inputs;
    for (size_t position : order_) inputs.push_back(trace_.stand_ins()[position].input);
    for (size_t i : reading_.groups) inputs.push_back(trace_.groups()[i].input);
    for (ir::ValueId input : graph_.inputs()) {
      if (graph_.input_role(input).role == ir::Role::Tangent) inputs.push_back(input);
    }
    graph_.reorder_inputs(std::move(inputs));
  }

  tracing::Trace& trace_;
  tracing::Recording& recording_;
  ir::Graph& graph_;
  signature::Reading reading_;
  ir::Signature& signature_;
  const std::vector<size_t> order_;
  std::vector<ir::ValueId> results_;
  std::vector<ir::Output> outputs_;
  Endpoints endpoints_;
  GradientOrigins::Parts users_formulas_;
  std::vector<at::Tensor> tangents_;  // one per root
  std::vector<ir::ValueId> tangent_values_;
  Formulas formulas_;
  std::optional<BackwardWrites> writes_;
  int64_t further_gradients_ = 0;
};

}  // namespace

Joint build_joint(tracing::Trace& trace, signature::Reading reading, std::string name) {
  return Builder(trace, std::move(reading)).run(std::move(name));
}

}  // namespace tandem::joint
