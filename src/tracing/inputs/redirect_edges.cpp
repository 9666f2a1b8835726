#include "tracing/inputs/redirect_edges.h"

#include "base/error.h"
#include "tracing/recording/traced_tensor.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;

class Walk {
 public:
  explicit Walk(Inputs& inputs) : inputs_(inputs), stand_ins_(inputs.stand_ins()) {}

  void run(std::span<const at::Tensor> results) {
    for (const at::Tensor& result : results) {
      if (result.defined() && result.grad_fn()) visit(result.grad_fn().get());
    }
    walk();
    // What was written has a history that need not lead to a result, nor be asked for.
    strict_ = false;
    for (const StandIn& stand_in : stand_ins_) {
      if (!stand_in.tensor.is_view() && stand_in.tensor.grad_fn())
        visit(stand_in.tensor.grad_fn().get());
    }
    // What was written through a view is the history of the base.
    for (const Group& group : inputs_.groups()) {
      if (group.tensor.grad_fn()) visit(group.tensor.grad_fn().get());
    }
    walk();
  }

  std::unordered_set<autograd::Node*> run(const autograd::edge_list& roots) {
    for (const autograd::Edge& root : roots) {
      if (root.is_valid()) visit(root.function.get());
    }
    walk();
    return std::move(seen_);
  }

 private:
  void walk() {
    while (!pending_.empty()) {
      autograd::Node* node = pending_.back();
      pending_.pop_back();
      // Not set_next_edge: it refuses nodes that have a parent, since depth could grow. Here it
      // cannot: what a stand-in's edge leads to has no edges of its own.
      for (autograd::Edge& edge : node->next_edges()) {
        if (!edge.is_valid()) continue;
        // First, since numbers count per thread: a tensor from elsewhere may have a higher one.
        if (!redirect(*node, edge) && !is_inside(inputs_, edge)) {
          if (!strict_) continue;
          lift_and_redirect(*node, edge);
        }
        visit(edge.function.get());
      }
    }
  }

  void visit(autograd::Node* node) {
    if (!seen_.insert(node).second) return;
    pending_.push_back(node);
    // The write itself, which looks at edges of its own.
    if (const auto* slices = dynamic_cast<autograd::CopySlices*>(node); slices && slices->fn)
      visit(slices->fn.get());
  }

  /// False: it leads to no real tensor that has a stand-in.
  bool redirect(const autograd::Node& node, autograd::Edge& edge) {
    for (; known_ < stand_ins_.size(); ++known_) {
      const StandIn& stand_in = stand_ins_[known_];
      if (!stand_in.requires_grad || stand_in.duplicate_of >= 0) continue;
      // A closed-over tensor that the call has written leads to the call by now. An argument that
      // is passed for that history is another input.
      const at::Tensor* held = inputs_.held_by_function(known_);
      if (held == nullptr) continue;
      const autograd::Edge real = noted_edge(*held);
      ends_.emplace(real.function.get(), std::pair(real, &stand_in));
    }
    const auto [begin, end] = ends_.equal_range(edge.function.get());
    for (auto it = begin; it != end; ++it) {
      if (!(it->second.first == edge)) continue;
      require_unwritten(node, *it->second.second);
      edge = edge_at(*it->second.second, node);
      return true;
    }
    return false;
  }

  /// The history that the stand-in had when the node was made.
  static autograd::Edge edge_at(const StandIn& stand_in, const autograd::Node& node) {
    autograd::Edge found = stand_in.histories.front();
    for (const autograd::Edge& edge : stand_in.histories) {
      if (edge.function->sequence_nr() < node.sequence_nr()) found = edge;
    }
    return found;
  }

  /// The real tensor, which the custom function was given, does not know what was written to its
  /// stand-in before.
  static void require_unwritten(const autograd::Node& node, const StandIn& stand_in) {
    // A view renews its history when it is asked for: its number says nothing about the write.
    const bool renewed = stand_in.tensor.is_view() && stand_in.tensor.grad_fn() &&
                         stand_in.tensor.grad_fn() != stand_in.histories.front().function;
    // Writes come first among the edges of what they write: back to the last one before the node.
    const autograd::Node* write = stand_in.tensor.grad_fn().get();
    while (!renewed && write && !is_history_of(stand_in, write) &&
           write->sequence_nr() > node.sequence_nr()) {
      write = write->num_outputs() > 0 ? write->next_edge(0).function.get() : nullptr;
    }
    if (!write || is_history_of(stand_in, write)) return;
    TANDEM_UNSUPPORTED("trace", "the custom autograd function ", node.name(),
                       " is given a closed-over tensor that the function has written before",
                       "\n  remedy: pass the tensor to the compiled function as an argument");
  }

  void lift_and_redirect(autograd::Node& node, autograd::Edge& edge) {
    if (auto* end = dynamic_cast<autograd::AccumulateGrad*>(edge.function.get())) {
      inputs_.stand_in(end->variable);  // it was passed on without ever meeting an op
    }
    if (redirect(node, edge)) return;
    TANDEM_UNSUPPORTED("trace", "the custom autograd function ", node.name(),
                       " is given a closed-over tensor that is no leaf and that no op has seen",
                       "\n  remedy: pass the tensor to the compiled function as an argument");
  }

  Inputs& inputs_;
  const std::deque<StandIn>& stand_ins_;
  bool strict_ = true;
  size_t known_ = 0;  // stand-ins whose real edges are in ends_
  std::unordered_multimap<autograd::Node*, std::pair<autograd::Edge, const StandIn*>> ends_;
  std::unordered_set<autograd::Node*> seen_;
  std::vector<autograd::Node*> pending_;
};

}  // namespace

void redirect_edges(Inputs& inputs, std::span<const at::Tensor> results) {
  Walk(inputs).run(results);
}

std::unordered_set<autograd::Node*> redirect_edges(Inputs& inputs,
                                                   const autograd::edge_list& roots) {
  return Walk(inputs).run(roots);
}

autograd::Edge noted_edge(const at::Tensor& real) {
  const auto* meta = autograd::impl::get_autograd_meta(real);
  return meta != nullptr && meta->grad_fn_ ? autograd::Edge(meta->grad_fn_, meta->output_nr_)
                                           : autograd::impl::gradient_edge(real);
}

bool is_inside(const Inputs& inputs, const autograd::Edge& edge) {
  if (auto* end = dynamic_cast<autograd::AccumulateGrad*>(edge.function.get()))
    return is_traced(end->variable);
  return edge.function->sequence_nr() >= inputs.first_sequence_number();
}

}  // namespace tandem::tracing
