#include "tracing/gradients/trace_engine.h"

#include "base/error.h"
#include "tracing/inputs/inputs.h"
#include "tracing/inputs/redirect_edges.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>
#include <utility>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;
using Nodes = std::unordered_set<autograd::Node*>;

/// The recording of a function, or of its backward, that runs in this thread; null: none does.
Recording* running() {
  Recording* const recording = current_recording();
  return recording != nullptr && recording->has_inputs() ? recording : nullptr;
}

/// Gradients that the function asks for, in terms of the trace.
class Request {
 public:
  Request(Recording& recording, const EntryFrame& entry)
      : inputs_(recording.inputs()), recording_(recording), entry_(entry) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    std::string line;
    {
      const OpLine here(recording_.lines(), entry_, recording_.phase());
      line = ir::to_string(recording_.lines().current());
    }
    inputs_.refuse(base::str(what, base::detail_line("at", line), "\n  remedy: ", remedy));
  }

  autograd::edge_list roots(autograd::edge_list edges) const {
    for (autograd::Edge& edge : edges) {
      if (!edge.is_valid()) continue;
      if (const StandIn* stand_in = stand_in_at(edge)) {
        edge = autograd::impl::gradient_edge(stand_in->tensor);
      } else if (!is_inside(inputs_, edge)) {
        refuse("the compiled function asks for gradients of a tensor that was computed outside",
               "compute it inside, or ask for the gradients outside the compiled function");
      }
    }
    return edges;
  }

  /// `reached` are the nodes behind the roots.
  autograd::edge_list wanted(const autograd::edge_list& edges, const Nodes& reached) const {
    autograd::edge_list inside;
    Nodes outside;  // what is asked for, as the program knows it
    Nodes bases;    // of these, what the trace knows by its views only
    for (const autograd::Edge& edge : edges) {
      inside.push_back(edge);
      if (!edge.is_valid()) continue;
      autograd::Node* known = edge.function.get();
      if (const StandIn* stand_in = stand_in_at(edge)) {
        refuse_hooks(stand_in->real);
        inside.back() = autograd::impl::gradient_edge(stand_in->tensor);
        known = noted_edge(stand_in->real).function.get();
      } else if (const Group* group = group_at(edge)) {
        refuse_hooks(group->real);
        inside.back() = autograd::impl::gradient_edge(group->tensor);
        bases.insert(known);
      }
      outside.insert(known);
    }
    for (const StandIn& stand_in : inputs_.stand_ins()) {
      if (stand_in.real.is_leaf() || stand_in.duplicate_of >= 0) continue;
      for (const autograd::Edge& history : stand_in.histories) {
        // The way from a view to its base lies in the trace.
        if (reached.contains(history.function.get()))
          refuse_way_through(stand_in.real, outside, is_view_in_trace(stand_in) ? bases : Nodes());
      }
    }
    for (const Group& group : inputs_.groups()) {
      if (!group.is_leaf && group.edge.is_valid() && reached.contains(group.edge.function.get()))
        refuse_way_through(group.real, outside, {});
    }
    return inside;
  }

 private:
  /// By the history of the real tensor, or by its own.
  const StandIn* stand_in_at(const autograd::Edge& edge) const {
    for (const StandIn& stand_in : inputs_.stand_ins()) {
      if (!stand_in.requires_grad || stand_in.duplicate_of >= 0) continue;
      if (noted_edge(stand_in.real) == edge ||
          autograd::impl::gradient_edge(stand_in.tensor) == edge) {
        return &stand_in;
      }
    }
    return nullptr;
  }

  const Group* group_at(const autograd::Edge& edge) const {
    for (const Group& group : inputs_.groups()) {
      if (group.is_root && group.requires_grad && noted_edge(group.real) == edge) return &group;
    }
    return nullptr;
  }

  bool is_view_in_trace(const StandIn& stand_in) const {
    return stand_in.group >= 0 && !stand_in.apart &&
           inputs_.groups()[static_cast<size_t>(stand_in.group)].is_root;
  }

  void refuse_hooks(const at::Tensor& real) const {
    const autograd::Edge edge = noted_edge(real);
    const bool none = autograd::impl::hooks(real).empty() &&
                      edge.function->tensor_pre_hooks().empty() &&
                      edge.function->retains_grad_hooks().empty();
    if (none) return;
    refuse(base::str("the compiled function asks for the gradient of ", inputs_.name_of(real),
                     ", which has a hook that was registered outside"),
           "ask for the gradient outside the compiled function, or apply the hook inside it");
  }

  /// The engine would go on outside, from what a tensor was computed with.
  void refuse_way_through(const at::Tensor& real, const Nodes& wanted, const Nodes& except) const {
    Nodes seen;
    std::vector<autograd::Node*> pending{noted_edge(real).function.get()};
    while (!pending.empty()) {
      autograd::Node* const node = pending.back();
      pending.pop_back();
      for (const autograd::Edge& edge : node->next_edges()) {
        autograd::Node* const next = edge.function.get();
        if (next == nullptr || !seen.insert(next).second) continue;
        if (wanted.contains(next) && !except.contains(next)) {
          refuse(base::str("the compiled function asks for a gradient that passes through ",
                           inputs_.name_of(real), ", which was computed outside"),
                 "compute it inside, or ask for the gradient outside the compiled function");
        }
        pending.push_back(next);
      }
    }
  }

  Inputs& inputs_;
  Recording& recording_;
  const EntryFrame entry_;
};

class TraceEngine final : public autograd::Engine {
 public:
  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& gradients, bool keep_graph,
                                  bool create_graph, bool accumulate,
                                  const autograd::edge_list& wanted) override {
    autograd::Engine& engine = autograd::Engine::get_base_engine();
    Recording* const recording = running();
    if (recording == nullptr)
      return engine.execute(roots, gradients, keep_graph, create_graph, accumulate, wanted);
    const Request request(*recording, {__builtin_frame_address(0), __builtin_return_address(0)});
    if (accumulate) {
      request.refuse("the compiled function calls backward()",
                     "return the loss and call backward() on it outside; inside, "
                     "tandem::grad(outputs, inputs) returns gradients");
    }
    const autograd::edge_list from = request.roots(roots);
    const autograd::edge_list to =
        request.wanted(wanted, redirect_edges(recording->inputs(), from));
    autograd::variable_list seen = gradients;
    for (at::Tensor& gradient : seen) {
      if (gradient.defined() && !is_traced(gradient))
        gradient = recording->inputs().stand_in(gradient);
    }
    return engine.execute(from, seen, keep_graph, create_graph, accumulate, to);
  }
};

TraceEngine& trace_engine() {
  static auto& engine = *new TraceEngine;
  return engine;
}

autograd::Engine& engine_of_thread() {
  if (running() == nullptr) return autograd::Engine::get_base_engine();
  return trace_engine();
}

/// Outside a trace, the tensors themselves.
std::vector<at::Tensor> as_seen_inside(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> seen = tensors;
  Recording* const recording = running();
  if (recording == nullptr) return seen;
  const Inputs& inputs = recording->inputs();
  for (at::Tensor& tensor : seen) {
    if (!tensor.defined() || is_traced(tensor)) continue;
    if (const std::optional<size_t> met = inputs.find(tensor))
      tensor = inputs.stand_ins()[*met].tensor;
  }
  return seen;
}

}  // namespace

void put_engine_before() {
  if (&autograd::Engine::get_default_engine() != &autograd::Engine::get_base_engine()) return;
  autograd::set_default_engine_stub(&engine_of_thread);
}

autograd::Engine& engine_behind() {
  autograd::Engine& engine = autograd::Engine::get_default_engine();
  return &engine == &trace_engine() ? autograd::Engine::get_base_engine() : engine;
}

std::vector<at::Tensor> gradients(const GradientRequest& request) {
  return autograd::grad(as_seen_inside(request.outputs), as_seen_inside(request.inputs),
                        request.grad_outputs, request.retain_graph, request.create_graph,
                        request.allow_unused);
}

}  // namespace tandem::tracing
