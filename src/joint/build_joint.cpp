#include "joint/build_joint.h"

#include "base/error.h"
#include "joint/cut.h"
#include "joint/gradients.h"
#include "joint/release_groups.h"
#include "tandem/ir/text.h"
#include "tracing/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <optional>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;
using ir::Place;
using tracing::StandIn;

/// Where the backward starts: the gradient of one tensor as the call leaves it.
struct Root {
  autograd::Edge edge;
  at::Tensor tangent;
};

/// Where it ends: the gradient of one tensor, at one place of autograd's graph.
struct Target {
  Place place;
  bool after = false;
  autograd::Edge edge;
  std::optional<Cut> cut{};  // nothing flows on, but for the part of what it cuts off
};

class Builder {
 public:
  Builder(tracing::Trace& trace, signature::Reading reading)
      : trace_(trace),
        recording_(trace.recording()),
        graph_(trace.recording().graph()),
        reading_(std::move(reading)),
        signature_(reading_.signature),
        order_(signature::calling_order(trace)) {
    // Values of the forward, before the backward can write anything.
    for (const at::Tensor& result : trace.results().tensors) {
      results_.push_back(result.defined() ? tracing::current_value(result) : ir::kNoValue);
    }
  }

  Joint run(std::string name) && {
    recording_.set_phase(ir::Phase::Backward);
    add_forward_outputs();
    add_tangents();
    add_targets();
    signature_.training = !signature_.tangents.empty();
    if (signature_.training) {
      const size_t inputs_before = trace_.stand_ins().size();
      const std::vector<uint64_t> writes = writes_so_far();
      for (int64_t part = 0; part < parts_; ++part) differentiate_part(part);
      check_nothing_lifted(trace_, inputs_before);
      check_nothing_written(writes);
    }
    graph_.set_outputs(std::move(outputs_));
    release_groups(trace_, reading_.groups);
    order_inputs();
    graph_.set_name(std::move(name));

    Joint joint{.graph = std::move(graph_), .signature = std::move(signature_)};
    for (size_t i = trace_.argument_count(); i < trace_.stand_ins().size(); ++i)
      joint.lifted.push_back(trace_.stand_ins()[i].real);
    return joint;
  }

 private:
  const StandIn& input(size_t i) const { return trace_.stand_ins()[order_[i]]; }
  const tracing::Group& group(size_t i) const { return trace_.groups()[reading_.groups[i]]; }

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

  void add_tangent(Place place, const at::Tensor& of, int64_t part) {
    const auto index = static_cast<int64_t>(signature_.tangents.size());
    roots_.push_back(
        {autograd::impl::gradient_edge(of), tracing::make_tangent(recording_, of, index)});
    const ir::ValueId value = graph_.inputs().back();
    signature_.tangents.push_back(
        {.place = place, .type = graph_.value(value).tensor_type(), .part = part});
  }

  void add_tangents() {
    for (size_t i = 0; i < signature_.outputs.size(); ++i) {
      const ir::OutputFacts& facts = signature_.outputs[i];
      const bool own = facts.kind == ir::OutputKind::Fresh || facts.own_history;
      if (!own || !facts.requires_grad || facts.is_leaf) continue;
      add_tangent({Place::Of::Output, static_cast<int64_t>(i)}, trace_.results().tensors[i], 0);
    }
    for (size_t i = 0; i < signature_.bases.size(); ++i) {
      if (!reading_.bases[i].tensor.defined()) continue;
      add_tangent({Place::Of::Base, static_cast<int64_t>(i)}, reading_.bases[i].tensor, 0);
    }
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      if (signature_.is_rewritten(i))
        add_tangent({Place::Of::Input, static_cast<int64_t>(i)}, input(i).tensor, parts_++);
    }
    for (size_t i = 0; i < signature_.groups.size(); ++i) {
      if (signature_.groups[i].history_changed)
        add_tangent({Place::Of::Group, static_cast<int64_t>(i)}, group(i).tensor, parts_++);
    }
  }

  void add_target(Place::Of of, size_t index, bool after, const autograd::Edge& edge, bool cut) {
    // A view that says it requires grad, since its base has come to: no gradient ends at it.
    if (!edge.is_valid()) return;
    targets_.push_back({.place = {of, static_cast<int64_t>(index)}, .after = after, .edge = edge});
    if (cut) targets_.back().cut.emplace(edge);
  }

  void add_targets() {
    const auto now = [](const at::Tensor& tensor) { return autograd::impl::gradient_edge(tensor); };
    for (size_t i = 0; i < order_.size(); ++i) {
      const StandIn& one = input(i);
      const ir::InputFacts& facts = signature_.inputs[i];
      if (facts.duplicate_of >= 0 || signature_.is_view_of_group(i)) continue;
      if (one.edge.is_valid()) {
        const bool view = is_view_member(trace_, one);
        add_target(Place::Of::Input, i, false, one.edge, view);
        // A view renews its grad_fn when the version of its base moves: uses before and after then
        // end at two places.
        if (view && !facts.history_changed && facts.requires_grad_after &&
            !(now(one.tensor) == one.edge)) {
          add_target(Place::Of::Input, i, true, now(one.tensor), true);
        }
      } else if (facts.requires_grad_after && facts.is_leaf_after) {
        add_target(Place::Of::Input, i, false, now(one.tensor), false);  // requires_grad_() inside
      }
    }
    for (size_t i = 0; i < signature_.groups.size(); ++i) {
      if (group(i).edge.is_valid()) add_target(Place::Of::Group, i, false, group(i).edge, false);
    }
    for (size_t i = 0; i < signature_.outputs.size(); ++i) {
      if (signature_.outputs[i].made_leaf)
        add_target(Place::Of::Output, i, false, now(trace_.results().tensors[i]), false);
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      const ir::InputFacts& facts = signature_.inputs[i];
      if (facts.duplicate_of >= 0) continue;
      const bool view = signature_.is_view_of_group(i) && is_view_member(trace_, input(i));
      const bool rewritten = facts.history_changed && !signature_.is_view_of_group(i);
      if ((view && facts.requires_grad_after) || rewritten)
        add_target(Place::Of::Input, i, true, now(input(i).tensor), true);
    }
    for (size_t i = 0; i < signature_.groups.size(); ++i) {
      if (signature_.groups[i].history_changed)
        add_target(Place::Of::Group, i, true, now(group(i).tensor), true);
    }
  }

  std::vector<uint64_t> writes_so_far() const {
    std::vector<uint64_t> writes;
    for (const StandIn& one : trace_.stand_ins()) {
      writes.push_back(
          at::functionalization::impl::unsafeGetFunctionalWrapper(one.tensor)->mutation_counter());
    }
    return writes;
  }

  void check_nothing_written(const std::vector<uint64_t>& before) const {
    const std::vector<uint64_t> now = writes_so_far();
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == now[i]) continue;
      TANDEM_UNSUPPORTED("joint", "the backward (a hook or custom function) writes ",
                         trace_.name_of(trace_.stand_ins()[i]),
                         "\n  remedy: write it in the forward, or in a hook on a result of the "
                         "compiled function");
    }
  }

  /// The gradients of one autograd node of the call.
  void differentiate_part(int64_t part) {
    Differentiation task;
    std::vector<size_t> tangents;
    for (size_t i = 0; i < roots_.size(); ++i) {
      if (signature_.tangents[i].part != part) continue;
      tangents.push_back(i);
      task.roots.push_back(roots_[i].edge);
      task.tangents.push_back(roots_[i].tangent);
    }
    if (tangents.empty()) return;
    std::vector<const Target*> wanted;
    for (const Target& target : targets_) {
      const bool own =
          part > 0 && target.after && target.place == signature_.tangents[tangents[0]].place;
      if (target.cut) own ? target.cut->open() : target.cut->close();
      if (own) continue;
      wanted.push_back(&target);
      task.wanted.push_back(target.edge);
    }
    const Gradients gradients = differentiate(recording_, task);
    for (size_t i = 0; i < tangents.size(); ++i)
      signature_.tangents[tangents[i]].raises = gradients.raises[i];
    std::vector<ir::ValueId> values;
    for (const at::Tensor& gradient : gradients.values)
      values.push_back(gradient.defined() ? tracing::current_value(gradient) : ir::kNoValue);
    if (parts_ > 1) drop_independent(values);
    // Eager raises when the backward gets here, so it must get here.
    const bool raises = std::ranges::any_of(gradients.raises,
                                            [](const std::string& text) { return !text.empty(); });
    for (size_t i = 0; i < wanted.size(); ++i) add_gradient(*wanted[i], part, values[i], raises);
  }

  /// A custom function's node turns the missing gradient behind a closed cut into zeros.
  void drop_independent(std::vector<ir::ValueId>& gradients) const {
    std::vector<bool> depends(graph_.value_limit());
    for (ir::ValueId input : graph_.inputs()) {
      if (graph_.input_role(input).role == ir::Role::Tangent)
        depends[static_cast<size_t>(input)] = true;
    }
    graph_.for_each_node([&](const ir::Node& node) {
      bool any = false;
      for (const ir::Operand& operand : node.operands()) {
        operand.for_each_value([&](ir::ValueId id) {
          any = any || (id != ir::kNoValue && depends[static_cast<size_t>(id)]);
        });
      }
      for (ir::ValueId id : node.results()) {
        if (id != ir::kNoValue) depends[static_cast<size_t>(id)] = any;
      }
    });
    for (ir::ValueId& gradient : gradients) {
      if (gradient != ir::kNoValue && !depends[static_cast<size_t>(gradient)])
        gradient = ir::kNoValue;
    }
  }

  void add_gradient(const Target& target, int64_t part, ir::ValueId value, bool raises) {
    const ir::GradientFacts facts{.place = target.place, .after = target.after, .part = part};
    const bool of_input =
        facts.place.of == Place::Of::Input && !facts.after && part == 0 &&
        std::ranges::find(signature_.gradients, facts.place, &ir::GradientFacts::place) ==
            signature_.gradients.end();
    if (value == ir::kNoValue && !of_input && !raises) return;
    const auto inputs = static_cast<int64_t>(signature_.inputs.size());
    const int64_t index = of_input ? target.place.index : inputs + further_gradients_++;
    std::string name;
    if (target.place.of == Place::Of::Input)
      name = signature_.inputs[static_cast<size_t>(target.place.index)].role.name;
    outputs_.push_back({value, ir::Descriptor::grad(index, std::move(name))});
    signature_.gradients.push_back(facts);
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
  std::vector<Root> roots_;  // one per tangent
  std::deque<Target> targets_;
  int64_t parts_ = 1;
  int64_t further_gradients_ = 0;
};

}  // namespace

Joint build_joint(tracing::Trace& trace, signature::Reading reading, std::string name) {
  return Builder(trace, std::move(reading)).run(std::move(name));
}

}  // namespace tandem::joint
