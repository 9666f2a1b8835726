#include "runtime/backward/call_node.h"

#include "base/error.h"
#include "ir/gradient_arguments.h"
#include "libtorch/private_members.h"
#include "libtorch/version.h"
#include "runtime/backward/gradient_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

/// The backward was recorded for a tangent with the strides of its result, neither a lazy conjugate
/// nor a lazy negation: a recorded `view` or `view_as_real` may need that.
at::Tensor with_strides(const at::Tensor& tangent, at::IntArrayRef strides) {
  const bool lazy = tangent.is_conj() || tangent.is_neg();
  if (tangent.strides() == strides && !lazy) return tangent;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty_strided(tangent.sizes(), strides, tangent.options()).copy_(tangent);
}

const autograd::AutogradMeta& meta_of(const at::Tensor& leaf) {
  return *static_cast<const autograd::AutogradMeta*>(
      libtorch::autograd_meta(*leaf.unsafeGetTensorImpl()));
}

/// Where the gradient of a leaf goes. After set_data() with other sizes its accumulator may still
/// be the old one, which the entry for the old sizes keeps: no gradient of the new sizes fits it.
autograd::Edge leaf_edge(const at::Tensor& leaf) {
  autograd::Edge edge = autograd::impl::gradient_edge(leaf);
  if (!edge.function || edge.function->input_metadata(0).is_same_shape(leaf)) return edge;
  using Weak = decltype(autograd::AutogradMeta::grad_accumulator_);
  autograd::impl::set_grad_accumulator(leaf, Weak(autograd::Edge().function));
  return autograd::impl::gradient_edge(leaf);
}

/// Whether a kept list still leads to the accumulators that the leaves have now. set_data() with
/// another dtype gives a leaf a new one.
bool leads_to_leaves(const autograd::edge_list& edges, const CallPlan::Part& part,
                     std::span<const at::Tensor> inputs) {
  if (edges.size() != part.edges.size()) return false;
  const size_t first = edges.size() - part.leaves.size();
  for (size_t i = 0; i < part.leaves.size(); ++i) {
    const at::Tensor& leaf = inputs[part.leaves[i]];
    if (!libtorch::is_same_node(meta_of(leaf).grad_accumulator_, edges[first + i].function))
      return false;
  }
  return true;
}

}  // namespace

autograd::Edge dead_end_of(const at::Tensor& result) {
  auto node = libtorch::make_node<DeadEnd>();
  const uint32_t number = node->add_input_metadata(result);
  return autograd::Edge(std::move(node), number);
}

void CallNode::connect(std::span<autograd::Edge> targets, std::span<const at::Tensor> inputs) {
  const CallPlan::Part& part = entry_->plan().parts[part_];
  const size_t first_leaf = part.edges.size() - part.leaves.size();
  const bool kept = !part.leaves.empty() && entry_->edge_pool().take(next_edges_) &&
                    leads_to_leaves(next_edges_, part, inputs);
  if (!kept) {
    next_edges_.clear();
    next_edges_.resize(part.edges.size());
    for (size_t i = 0; i < part.leaves.size(); ++i) {
      autograd::Edge& edge = next_edges_[first_leaf + i];
      edge = leaf_edge(inputs[part.leaves[i]]);
      // Tells the accumulator that it has a parent. A view made without grad has none.
      if (edge.function) edge.function->topological_nr();
    }
  }
  // Accumulators count 0: they are the end of every graph.
  if (!part.leaves.empty()) topological_nr_ = 1;
  for (size_t i = 0; i < first_leaf; ++i) {
    autograd::Edge& target = targets[part.edges[i].target];
    set_next_edge(i, part.edges[i].last_use ? std::move(target) : target);
  }
}

void CallNode::keep_leaf_edges() {
  const CallPlan::Part& part = entry_->plan().parts[part_];
  if (part.leaves.empty() || next_edges_.size() != part.edges.size()) return;
  const size_t first_leaf = part.edges.size() - part.leaves.size();
  autograd::edge_list kept = std::move(next_edges_);
  next_edges_.clear();
  // The base class must still find the edges that lead on: it frees a long chain of nodes one after
  // the other instead of recursively. And the pool must not keep the caller's graph alive.
  next_edges_.reserve(first_leaf);
  for (size_t i = 0; i < first_leaf; ++i) next_edges_.push_back(std::exchange(kept[i], {}));
  entry_->edge_pool().give(std::move(kept));
}

void CallNode::keep_history(const at::Tensor& input) {
  const auto& history = input.grad_fn();
  auto& kept = kept_.emplace_back();
  if (history.get() != this) kept.emplace(history);
}

autograd::Edge CallNode::edge_of(const CallPlan::PassedHistory& passed) {
  switch (passed.from) {
    case CallPlan::PassedHistory::From::Edge:
      return next_edge(passed.index);
    case CallPlan::PassedHistory::From::Slot:
      return autograd::Edge(getptr(), static_cast<uint32_t>(passed.index));
    case CallPlan::PassedHistory::From::Kept: {
      const auto& kept = kept_[passed.index];
      return autograd::Edge(kept ? kept->lock() : getptr(), 0);
    }
  }
  TANDEM_CHECK(false, "call", "no such history");
}

/// Whether the backward that is running asks for one of these gradients, or for something behind
/// it.
bool CallNode::is_wanted(std::span<const int64_t> gradients) const {
  const auto& edges = entry_->plan().parts[part_].edges;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (std::ranges::count(gradients, edges[i].position) > 0 && task_should_compute_output(i))
      return true;
  }
  return false;
}

/// Whether the backward under way asks for all gradients.
bool CallNode::wants_all() const {
  const auto* needed = autograd::get_current_graph_task_exec_info();
  if (needed == nullptr || needed->empty()) return true;  // backward(): whatever there is
  for (size_t i = 0; i < num_outputs(); ++i) {
    if (next_edge(i).is_valid() && !task_should_compute_output(i)) return false;
  }
  return true;
}

/// By gradient of the signature: whether the backward under way asks for it.
std::vector<bool> CallNode::wanted_gradients() const {
  std::vector<bool> wanted(entry_->signature().gradients.size());
  const auto& edges = entry_->plan().parts[part_].edges;
  for (size_t i = 0; i < edges.size(); ++i)
    wanted[static_cast<size_t>(edges[i].position)] = task_should_compute_output(i);
  return wanted;
}

/// Drops the tangents of results from which nothing leads to what is asked for. Eager runs no node
/// for such a result: it neither looks at what that node has saved nor frees it.
void CallNode::drop_idle(autograd::variable_list& tangents, const std::vector<bool>& wanted) const {
  const CallPlan::Part& part = entry_->plan().parts[part_];
  const std::vector<bool> leading = entry_->backward().leading_to(wanted);
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!leading[part.tangents[i]]) tangents[i].reset();
  }
}

autograd::variable_list CallNode::apply(autograd::variable_list&& tangents) {
  const ir::Signature& signature = entry_->signature();
  const CallPlan& plan = entry_->plan();
  const CallPlan::Part& part = plan.parts[part_];
  partition::Asked asked{.defined = std::vector<bool>(signature.tangents.size())};
  // A backward that was lowered by itself is run as a whole.
  if (!wants_all() && !signature.formulas.empty()) [[unlikely]] {
    asked.wanted = wanted_gradients();
    drop_idle(tangents, asked.wanted);
  }
  bool any = false;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    const ir::TangentFacts& facts = signature.tangents[part.tangents[i]];
    TORCH_CHECK(facts.raises.empty() || !is_wanted(facts.raises_in), facts.raises);
    asked.defined[part.tangents[i]] = any = true;
  }
  if (!any) return autograd::variable_list(num_outputs());

  const Backward& backward = entry_->backward().get(asked);
  if (c10::GradMode::is_enabled() || kept().must_trace(*entry_)) [[unlikely]]
    return apply_traced(backward, std::move(tangents));
  std::vector<at::Tensor> inputs = kept().take(*entry_, backward, *this);
  const size_t first_tangent = inputs.size();
  inputs.resize(first_tangent + signature.tangents.size());
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    const size_t tangent = part.tangents[i];
    if (!plan.sized_tangents.empty() && plan.sized_tangents[tangent]) [[unlikely]] {
      const ir::TensorType& type = *signature.tangents[tangent].type;
      inputs[first_tangent + tangent] =
          with_strides(tangents[i], tangent_strides(type, tangents[i].sizes()));
      continue;
    }
    inputs[first_tangent + tangent] = with_strides(tangents[i], plan.tangent_strides[tangent]);
  }
  tangents.clear();
  std::vector<at::Tensor> gradients;
  {
    RECORD_FUNCTION("tandem::backward", c10::ArrayRef<const c10::IValue>{});
    PeakMeter& meter = entry_->peak_meter();
    gradients = meter.wants(PeakMeter::Half::Backward)
                    ? meter.measure(PeakMeter::Half::Backward,
                                    [&] { return backward.kernels.ready->run(inputs); })
                    : backward.kernels.ready->run(inputs);
  }
  autograd::variable_list ordered(part.edges.size());
  for (size_t i = 0; i < part.edges.size(); ++i) {
    ordered[i] = std::move(gradients[static_cast<size_t>(part.edges[i].position)]);
  }
  return ordered;
}

/// With create_graph the gradients are results of another call: of a function that computes them
/// from the inputs of this call and the tangents. So they are where set_data() has given an input
/// other memory which the backward reads, and the old memory, too.
autograd::variable_list CallNode::apply_traced(const Backward& backward,
                                               autograd::variable_list&& tangents) {
  entry_->gradients().require_function();
  if (!entry_->split().forward.symbols().empty()) {
    TANDEM_UNSUPPORTED("call", ir::name_of_backward(),
                       " of a function with sizes that depend on data",
                       "\n  remedy: call the function itself where gradients of gradients are "
                       "needed");
  }
  const Primals primals = kept().take_primals(*entry_, backward, *this);
  const CallPlan::Part& part = entry_->plan().parts[part_];
  std::vector<at::Tensor> gradients =
      call_gradients(*entry_, part_, backward.asked, primals, tangents, getptr());
  autograd::variable_list ordered;
  for (const CallPlan::Part::Edge& edge : part.edges) {
    size_t position = 0;  // among the gradients of this part
    for (int64_t i = 0; i < edge.position; ++i)
      position += entry_->signature().gradients[static_cast<size_t>(i)].part == part.of;
    ordered.push_back(std::move(gradients[position]));
  }
  return ordered;
}

}  // namespace tandem::runtime
