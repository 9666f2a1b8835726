#include "runtime/call_node.h"

#include "base/error.h"
#include "ops/libtorch_version.h"
#include "ops/private_members.h"
#include "runtime/version_check.h"

#include <ATen/SavedTensorHooks.h>
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

/// The backward was recorded for a tangent with the strides of its result; a recorded `view` may
/// need them.
at::Tensor with_strides(const at::Tensor& tangent, at::IntArrayRef strides) {
  if (tangent.strides() == strides) return tangent;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::empty_strided(tangent.sizes(), strides, tangent.options()).copy_(tangent);
}

const autograd::AutogradMeta& meta_of(const at::Tensor& leaf) {
  return *static_cast<const autograd::AutogradMeta*>(
      libtorch::autograd_meta(*leaf.unsafeGetTensorImpl()));
}

/// Whether a kept list still leads to the accumulators that the leaves have now: set_data() with
/// another dtype takes them away.
bool leads_to_parameters(const autograd::edge_list& edges, const CallPlan& plan,
                         std::span<const at::Tensor> inputs) {
  if (edges.size() != plan.edges.size()) return false;
  for (size_t i = plan.first_parameter_edge; i < edges.size(); ++i) {
    const at::Tensor& leaf = inputs[static_cast<size_t>(plan.edges[i].input)];
    if (!libtorch::is_same_node(meta_of(leaf).grad_accumulator_, edges[i].function)) return false;
  }
  return true;
}

}  // namespace

void CallNode::connect_inputs(std::span<const at::Tensor> inputs) {
  const CallPlan& plan = entry_->plan();
  const auto edge_to = [&](size_t i) {
    return autograd::impl::gradient_edge(inputs[static_cast<size_t>(plan.edges[i].input)]);
  };
  const bool kept = plan.first_parameter_edge < plan.edges.size() &&
                    entry_->edge_pool().take(next_edges_) &&
                    leads_to_parameters(next_edges_, plan, inputs);
  if (!kept) {
    next_edges_.clear();
    next_edges_.resize(plan.edges.size());
    for (size_t i = plan.first_parameter_edge; i < plan.edges.size(); ++i) {
      next_edges_[i] = edge_to(i);
      next_edges_[i].function->topological_nr();  // tells the accumulator that it has a parent
    }
  }
  // Accumulators count 0: they are the end of every graph.
  if (plan.first_parameter_edge < plan.edges.size()) topological_nr_ = 1;
  for (size_t i = 0; i < plan.first_parameter_edge; ++i) set_next_edge(i, edge_to(i));
}

void CallNode::keep_parameter_edges() {
  const CallPlan& plan = entry_->plan();
  if (plan.first_parameter_edge == plan.edges.size() || next_edges_.size() != plan.edges.size()) {
    return;
  }
  autograd::edge_list kept = std::move(next_edges_);
  next_edges_.clear();
  // The base class frees a long chain of nodes one after the other, not one inside the other: it
  // must still find the edges that lead on. Nor may the pool keep the caller's graph alive.
  next_edges_.reserve(plan.first_parameter_edge);
  for (size_t i = 0; i < plan.first_parameter_edge; ++i) {
    next_edges_.push_back(std::exchange(kept[i], {}));
  }
  entry_->edge_pool().give(std::move(kept));
}

void CallNode::connect_results(std::span<at::Tensor> results) {
  const auto self = getptr();
  for (const ir::TangentFacts& tangent : entry_->signature().tangents) {
    at::Tensor& result = results[static_cast<size_t>(tangent.output)];
    const uint32_t number = add_input_metadata(result);
    autograd::impl::set_gradient_edge(result, autograd::Edge(self, number));
  }
}

void CallNode::save(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs,
                    std::span<const at::Tensor> results) {
  if (!at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) [[unlikely]] {
    return save_with_hooks(inputs, outputs);
  }
  const CallPlan& plan = entry_->plan();
  const int64_t lifted = entry_->signature().lifted_count;
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const SavedSlot& slot = plan.saved[i];
    if (slot.input >= 0) {
      const at::Tensor& input = inputs[static_cast<size_t>(slot.input)];
      const uint32_t version = version_to_save(input);
      if (slot.input < lifted) {
        lifted_versions_.push_back(version);
      } else {
        arguments_.push_back({input, version});
      }
      continue;
    }
    at::Tensor& value = outputs[static_cast<size_t>(plan.first_saved) + i];
    if (slot.output >= 0) {
      const at::Tensor& result = results[static_cast<size_t>(slot.output)];
      results_.push_back({result.unsafeGetTensorImpl()->version_counter(), version_to_save(result),
                          static_cast<uint32_t>(result.output_nr())});
      values_.push_back(value.tensor_data());
    } else {
      values_.push_back(std::move(value));
    }
  }
}

void CallNode::save_with_hooks(std::span<const at::Tensor> inputs, std::span<at::Tensor> outputs) {
  const CallPlan& plan = entry_->plan();
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const SavedSlot& slot = plan.saved[i];
    const at::Tensor& tensor = slot.input >= 0 ? inputs[static_cast<size_t>(slot.input)]
                                               : outputs[static_cast<size_t>(plan.first_saved) + i];
    hooked_.emplace_back(slot.output >= 0 ? tensor.tensor_data() : tensor, /*is_output=*/false);
  }
}

void CallNode::check_versions(const Backward& backward) {
  const CallPlan& plan = entry_->plan();
  size_t argument = 0, version = 0, value = 0, result = 0;
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const SavedSlot& slot = plan.saved[i];
    if (slot.input >= 0) {
      const auto input = static_cast<size_t>(slot.input);
      const bool lifted = input < entry_->lifted().size();
      const at::Tensor& tensor = lifted ? entry_->lifted()[input] : arguments_[argument].tensor;
      const uint32_t saved = lifted ? lifted_versions_[version++] : arguments_[argument++].version;
      if (backward.reads[i]) check_saved(tensor, saved, !entry_->signature().inputs[input].is_leaf);
      continue;
    }
    const at::Tensor& kept = values_[value++];
    if (slot.output < 0) continue;
    const WatchedResult& watched = results_[result++];
    const uint32_t now = watched.counter.current_version();
    if (backward.reads[i] && now != watched.version) {
      throw_modified(kept, autograd::Edge(getptr(), watched.number), now, watched.version);
    }
  }
}

void CallNode::require_unspent(const std::vector<bool>& defined, const Backward& backward) const {
  bool spent = released_;
  for (size_t i = 0; i < spent_.size(); ++i) {
    if (!spent_[i]) continue;
    const std::vector<bool>& shared = entry_->backward().tangent_use().shared[i];
    for (size_t j = 0; j < defined.size(); ++j) spent |= defined[j] && (i == j || shared[j]);
  }
  for (size_t i = 0; i < taken_.size(); ++i) spent |= taken_[i] && backward.reads[i];
  TORCH_CHECK(!spent, autograd::ERR_BACKWARD_TWICE);
}

/// Notes what a backward without a kept graph uses up. Eager's graph can be walked again where it
/// has saved nothing.
void CallNode::spend(const std::vector<bool>& defined, const Backward& backward) {
  const auto all = [](const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), false) == flags.end();
  };
  const bool reads =
      std::find(backward.reads.begin(), backward.reads.end(), true) != backward.reads.end();
  if (reads && spent_.empty() && all(defined)) {
    released_ = true;
  } else if (reads) {
    spent_.resize(defined.size());
    for (size_t i = 0; i < defined.size(); ++i) spent_[i] = spent_[i] || defined[i];
    released_ = all(spent_);
    taken_.clear();
    for (const std::vector<bool>& readers : entry_->backward().tangent_use().readers) {
      bool taken = true;
      for (size_t i = 0; i < readers.size(); ++i) taken = taken && (!readers[i] || spent_[i]);
      taken_.push_back(taken);
    }
  }
  spared_ = !released_;
}

std::vector<at::Tensor> CallNode::take_saved(const std::vector<bool>& defined,
                                             const Backward& backward) {
  std::lock_guard lock(mutex_);
  require_unspent(defined, backward);
  // First every check, then the hand-over: a backward that raises leaves all in place.
  if (hooked_.empty()) check_versions(backward);
  const CallPlan& plan = entry_->plan();
  std::vector<at::Tensor> saved;
  saved.reserve(plan.saved.size() + entry_->signature().tangents.size());
  if (!hooked_.empty()) {
    for (size_t i = 0; i < plan.saved.size(); ++i) {
      saved.push_back(backward.reads[i] ? hooked_[i].unpack() : at::Tensor());
    }
  }
  const bool keep = autograd::get_current_graph_task_keep_graph();
  if (!keep) spend(defined, backward);
  if (!hooked_.empty()) return saved;
  size_t argument = 0, value = 0;
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const int64_t input = plan.saved[i].input;
    if (input >= 0 && static_cast<size_t>(input) < entry_->lifted().size()) {
      saved.push_back(entry_->lifted()[static_cast<size_t>(input)]);
      continue;
    }
    // The kernels may free a value at its last use if nobody will ask for it again.
    at::Tensor& kept = input >= 0 ? arguments_[argument++].tensor : values_[value++];
    const bool last = !keep && (released_ || (!taken_.empty() && taken_[i]));
    saved.push_back(last ? std::move(kept) : kept);
  }
  return saved;
}

autograd::variable_list CallNode::apply(autograd::variable_list&& tangents) {
  const ir::Signature& signature = entry_->signature();
  const CallPlan& plan = entry_->plan();
  if (c10::GradMode::is_enabled()) {
    TANDEM_UNSUPPORTED("call", "backward with create_graph=true through a compiled function",
                       "\n  remedy: compute the inner gradient inside the compiled function with "
                       "torch::autograd::grad(..., /*retain_graph=*/true, /*create_graph=*/true)");
  }
  std::vector<bool> defined;
  bool any = false;
  for (size_t i = 0; i < tangents.size(); ++i) {
    defined.push_back(tangents[i].defined());
    any |= tangents[i].defined();
    TORCH_CHECK(!tangents[i].defined() || signature.tangents[i].raises.empty(),
                signature.tangents[i].raises);
  }
  if (!any) return autograd::variable_list(num_outputs());

  const Backward& backward = entry_->backward().get(defined);
  std::vector<at::Tensor> inputs = take_saved(defined, backward);
  for (size_t i = 0; i < tangents.size(); ++i) {
    inputs.push_back(defined[i] ? with_strides(tangents[i], plan.tangent_strides[i])
                                : at::Tensor());
  }
  tangents.clear();
  std::vector<at::Tensor> gradients;
  {
    RECORD_FUNCTION("tandem::backward", c10::ArrayRef<const c10::IValue>{});
    gradients = backward.kernels->run(inputs);
  }
  autograd::variable_list ordered(plan.edges.size());
  for (size_t i = 0; i < plan.edges.size(); ++i) {
    ordered[i] = std::move(gradients[static_cast<size_t>(plan.edges[i].position)]);
  }
  return ordered;
}

void CallNode::release_variables() {
  std::lock_guard lock(mutex_);
  if (std::exchange(spared_, false)) return;
  released_ = true;
  arguments_.clear();
  results_.clear();
  values_.clear();
  hooked_.clear();
}

}  // namespace tandem::runtime
