#include "runtime/call/epilogue.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/memory/view_replay.h"
#include "runtime/call/write_back.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;
using ir::CallTensor;

/// Between a rewritten view and the node of its new data. libtorch asks the history of a written
/// view for the gradient of what the view showed before: zeros, since all of it was overwritten. An
/// undefined one would drop the gradient of the whole base.
struct OverwrittenView : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    return {gradients[0].defined() ? at::zeros_like(gradients[0]) : at::Tensor(), gradients[0]};
  }
  std::string name() const override { return "TandemOverwrittenView"; }
};

/// By exactly so much, whatever libtorch has counted on the way.
void move_version(const at::Tensor& tensor, int64_t by) {
  if (tensor.is_inference() || by == 0) return;
  c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(counter.current_version() + by);
}

/// A view makes a new grad_fn when its version has moved since it was last asked for one. In a
/// group the version moves once, for all writes, and members are asked in between.
void renew_when_asked(const at::Tensor& view) {
  if (!view.is_view() || view.is_inference()) return;
  auto* meta = autograd::impl::get_view_autograd_meta(view);
  if (meta != nullptr && meta->has_bw_view()) meta->set_attr_version(view._version() - 1);
}

/// Hands on the gradient of one result.
struct ViewResult : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "TandemBackward"; }
};

}  // namespace

void check_rewrites(const EntryState& entry, std::span<const at::Tensor> inputs) {
  for (const CallPlan::Change& change : entry.plan().changes) {
    if (!change.tensor.is_input()) continue;
    const auto i = static_cast<size_t>(change.tensor.index);
    // The trace has asked for members of a group, whose stand-ins are the same kind of views.
    if (!entry.signature().inputs[i].history_changed || entry.signature().is_view_of_group(i))
      continue;
    at::AutoGradMode grad_mode(true);
    autograd::check_inplace(inputs[i], /*requires_grad=*/true);
  }
}

Epilogue::Epilogue(std::shared_ptr<const EntryState> entry, std::span<const at::Tensor> inputs,
                   std::span<at::Tensor> outputs, std::span<at::Tensor> results,
                   std::optional<Snapshot> snapshot)
    : entry_(std::move(entry)),
      signature_(entry_->signature()),
      plan_(entry_->plan()),
      inputs_(inputs),
      outputs_(outputs),
      results_(results),
      bases_(signature_.bases.size()),
      targets_(plan_.targets.size()),
      snapshot_(std::move(snapshot)) {}

const at::Tensor& Epilogue::real(const CallTensor& tensor) const {
  const auto index = static_cast<size_t>(tensor.index);
  switch (tensor.kind) {
    case CallTensor::Kind::Input:
      return inputs_[index];
    case CallTensor::Kind::Group:
      return inputs_[signature_.inputs.size() + index];
    case CallTensor::Kind::Base:
      return bases_[index];
    case CallTensor::Kind::Output:
      return results_[index];
  }
  TANDEM_CHECK(false, "call", "no such tensor");
}

void Epilogue::run() {
  place_new_memory();
  switch_on_gradients();
  replay_early();
  if (signature_.training) make_nodes();
  for (size_t i = 0; i < plan_.targets.size(); ++i) {
    if (plan_.targets[i].number == 0)
      targets_[i] = autograd::impl::gradient_edge(real(plan_.targets[i].tensor));
  }
  for (const CallPlan::Change& one : plan_.changes) change(one);
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (!targets_[i].is_valid()) settle(plan_.targets[i].tensor);
  }
  finish_results();
  replay_views();
  renew_views();
}

/// A view that was written has its grad_fn in eager; otherwise it would be made when first asked
/// for, and is_leaf() does not ask.
void Epilogue::renew_views() const {
  for (const CallPlan::Change& change : plan_.changes) {
    if (change.tensor.is_input() && real(change.tensor).is_view()) real(change.tensor).grad_fn();
    if (change.part <= 0) continue;
    const auto part = static_cast<size_t>(change.part);
    for (const CallPlan::PassedHistory& one : plan_.parts[part].passed) {
      if (one.from == CallPlan::PassedHistory::From::Kept)
        static_cast<CallNode&>(*nodes_[part]).keep_history(real(one.of.tensor));
    }
  }
}

/// Fresh results and bases, so far without a history.
void Epilogue::place_new_memory() {
  for (const FreshResult& fresh : plan_.fresh) {
    at::Tensor& result = results_[static_cast<size_t>(fresh.output)];
    result = std::move(outputs_[static_cast<size_t>(fresh.position)]);
    if (signature_.outputs[static_cast<size_t>(fresh.output)].made_leaf)
      result.set_requires_grad(true);
  }
  for (const FreshResult& base : plan_.bases) {
    bases_[static_cast<size_t>(base.output)] =
        std::move(outputs_[static_cast<size_t>(base.position)]);
  }
  for (size_t i = 0; i < bases_.size(); ++i) {
    if (const int64_t output = signature_.bases[i].output; output >= 0)
      bases_[i] = results_[static_cast<size_t>(output)];
  }
}

void Epilogue::switch_on_gradients() {
  for (const CallPlan::Change& change : plan_.changes) {
    if (!change.tensor.is_input()) continue;
    const ir::InputFacts& facts = signature_.inputs[static_cast<size_t>(change.tensor.index)];
    if (!facts.requires_grad && facts.requires_grad_after && facts.is_leaf_after)
      real(change.tensor).set_requires_grad(true);
  }
}

void Epilogue::make_nodes() {
  if (plan_.parts.size() == 1) {
    nodes_.push_back(libtorch::make_node<CallNode>(entry_));
  } else {
    const auto kept = std::make_shared<KeptValues>();
    for (size_t part = 0; part < plan_.parts.size(); ++part)
      nodes_.push_back(libtorch::make_node<CallNode>(entry_, part, kept));
  }
  for (size_t part = 0; part < nodes_.size(); ++part) {
    for (size_t tangent : plan_.parts[part].tangents) {
      const CallTensor& of = signature_.tangents[tangent].of.tensor;
      const auto write = std::ranges::find_if(plan_.write_backs, [&](const WriteBack& one) {
        return of.is_input() && one.input == of.index;
      });
      if (write != plan_.write_backs.end()) {
        nodes_[part]->add_input_metadata(outputs_[static_cast<size_t>(write->position)]);
      } else if (of.kind == CallTensor::Kind::Output && !real(of).defined()) {
        nodes_[part]->add_input_metadata(sample_of(of.index));
      } else {
        nodes_[part]->add_input_metadata(real(of));
      }
    }
  }
}

void Epilogue::change(const CallPlan::Change& change) {
  const at::Tensor& tensor = real(change.tensor);
  if (change.part > 0) {
    static_cast<CallNode&>(*nodes_[static_cast<size_t>(change.part)]).connect_targets(targets_);
  }
  if (change.tensor.is_group()) {
    const ir::GroupFacts& group = signature_.groups[static_cast<size_t>(change.tensor.index)];
    for (const WriteBack& write : plan_.write_backs) {
      const ir::InputFacts& member = signature_.inputs[static_cast<size_t>(write.input)];
      if (member.group == change.tensor.index && !member.metadata_changed)
        copy_below_autograd(inputs_[static_cast<size_t>(write.input)],
                            outputs_[static_cast<size_t>(write.position)]);
    }
    if (group.history_changed) attach(tensor, change);
    // Before their edges are taken: views renew their grad_fn when the version has moved.
    for (int64_t member : group.members) {
      const ir::InputFacts& facts = signature_.inputs[static_cast<size_t>(member)];
      if (facts.counter_of < 0)
        move_version(inputs_[static_cast<size_t>(member)], facts.version_delta);
    }
    settle(change.tensor);
    for (int64_t member : group.members) {
      // One that is reshaped, too, has its turn later.
      if (!signature_.inputs[static_cast<size_t>(member)].metadata_changed)
        settle(CallTensor::input(member));
    }
    return;
  }
  const ir::InputFacts& facts = signature_.inputs[static_cast<size_t>(change.tensor.index)];
  const uint32_t version = tensor.is_inference() ? 0 : tensor._version();
  write_input(change, tensor, facts);
  if (!tensor.is_inference()) move_version(tensor, version + change.delta - tensor._version());
  if (facts.history_changed || facts.metadata_changed) settle(change.tensor);
}

void Epilogue::write_input(const CallPlan::Change& change, const at::Tensor& input,
                           const ir::InputFacts& facts) {
  if (facts.requires_grad && !facts.requires_grad_after) {
    if (facts.is_leaf) {
      input.set_requires_grad(false);
    } else {
      input.detach_();
    }
  }
  if (facts.metadata_changed || facts.storage != ir::StorageChange::None) {
    change_metadata(input, facts);
  }
  const bool by_group = facts.group >= 0 && !facts.metadata_changed;
  if (change.write >= 0 && !by_group) {
    const WriteBack& write = plan_.write_backs[static_cast<size_t>(change.write)];
    const at::Tensor& data = outputs_[static_cast<size_t>(write.position)];
    if (facts.storage == ir::StorageChange::Replaced) {
      at::AutoDispatchBelowADInplaceOrView below;
      input.set_(data.storage(), data.storage_offset(), data.sizes(), data.strides());
    } else {
      copy_below_autograd(input, data);
    }
  }
  if (change.part > 0) attach(input, change);
}

void Epilogue::change_metadata(const at::Tensor& input, const ir::InputFacts& facts) {
  const std::vector<int64_t> sizes = facts.type_after->static_sizes();
  const std::vector<int64_t> strides = facts.type_after->static_strides();
  if (facts.storage == ir::StorageChange::Resized) {
    at::native::resize_bytes_cpu(input.storage().unsafeGetStorageImpl(),
                                 static_cast<size_t>(facts.bytes_after));
    return;
  }
  // A view by itself has a gradient formula; together with new data the node of the call has it.
  if (facts.history_changed && !facts.data_written) {
    at::AutoGradMode grad_mode(true);
    input.as_strided_(sizes, strides, facts.offset_after);
    return;
  }
  at::AutoDispatchBelowADInplaceOrView below;
  if (facts.storage == ir::StorageChange::Grown) {
    input.resize_(sizes);
  } else if (facts.set_to >= 0) {
    const at::Tensor& source = inputs_[static_cast<size_t>(facts.set_to)];
    input.set_(source.storage(), facts.offset_after, sizes, strides);
  } else if (facts.storage == ir::StorageChange::None) {
    input.as_strided_(sizes, strides, facts.offset_after);
  }
}

/// Makes the node of a rewritten input or group its history.
void Epilogue::attach(const at::Tensor& tensor, const CallPlan::Change& change) {
  Edge to(nodes_[static_cast<size_t>(change.part)], 0);
  if (tensor.is_view()) {
    auto between = libtorch::make_node<OverwrittenView>();
    between->add_next_edge(tensor.requires_grad() ? autograd::impl::gradient_edge(tensor) : Edge());
    between->add_next_edge(std::move(to));
    between->add_input_metadata(tensor);
    to = Edge(std::move(between), 0);
  }
  autograd::impl::rebase_history(tensor, std::move(to));
  if (!change.tensor.is_input()) return;
  const int64_t group = signature_.inputs[static_cast<size_t>(change.tensor.index)].group;
  if (group < 0) return;
  for (int64_t member : signature_.groups[static_cast<size_t>(group)].members)
    renew_when_asked(inputs_[static_cast<size_t>(member)]);
}

/// Takes the edges of an input or group as the call leaves it.
void Epilogue::settle(const CallTensor& tensor) {
  for (size_t i = 0; i < plan_.targets.size(); ++i) {
    if (plan_.targets[i].number > 0 && plan_.targets[i].tensor == tensor)
      targets_[i] = autograd::impl::gradient_edge(real(tensor));
  }
}

/// The node of the results, which leads to everything else.
void Epilogue::finish_results() {
  if (!signature_.training) return;
  auto& node = static_cast<CallNode&>(*nodes_[0]);
  if (plan_.has_plain_edges) {
    node.connect_inputs(inputs_);
  } else {
    node.connect_targets(targets_);
  }
  const CallPlan::Part& part = plan_.parts[0];
  for (size_t slot = 0; slot < part.tangents.size(); ++slot) {
    const at::Tensor& tensor = real(signature_.tangents[part.tangents[slot]].of.tensor);
    const Edge edge(nodes_[0], static_cast<uint32_t>(slot));
    if (tensor.defined()) autograd::impl::set_gradient_edge(tensor, edge);
  }
  for (const ir::TangentFacts& tangent : signature_.tangents) {
    const at::Tensor& tensor = real(tangent.of.tensor);
    if (tangent.part < 0 && tensor.defined())
      autograd::impl::set_gradient_edge(tensor, dead_end_of(tensor));
  }
  keep_written_handles(plan_, inputs_, outputs_);
  if (snapshot_) node.kept().keep(*std::move(snapshot_));
  node.kept().save(*entry_, inputs_.first(signature_.inputs.size()), outputs_, results_, bases_);
}

template <class Put>
void Epilogue::replay(const ir::ViewReplay& replay, Put&& put) {
  at::Tensor source = real(replay.source);
  if (replay.detached) source = source.variable_data();
  std::vector<bool> grad_modes;
  for (const ir::Output& output : replay.graph.outputs()) {
    // A view made without grad is a leaf, even if it says that it requires grad: its base does.
    grad_modes.push_back(!signature_.outputs[static_cast<size_t>(output.role.index)].is_leaf);
  }
  const std::vector<at::Tensor> views = ops::replay_views(replay, source, grad_modes);
  for (size_t i = 0; i < views.size(); ++i)
    put(static_cast<size_t>(replay.graph.outputs()[i].role.index), views[i]);
}

/// Whether an alias is made before the inputs change: views that were taken of an input before it
/// was reshaped or detached in place, and aliases that requires_grad_() made leaves, which
/// histories of others lead to.
bool Epilogue::is_early(const ir::ViewReplay& replay, size_t output) const {
  if (replay.as_found || signature_.outputs[output].made_leaf) return true;
  if (!replay.source.is_input() || !signature_.outputs[output].requires_grad) {
    return false;
  }
  const ir::InputFacts& source = signature_.inputs[static_cast<size_t>(replay.source.index)];
  return source.requires_grad && !source.requires_grad_after;
}

void Epilogue::replay_early() {
  for (const ir::ViewReplay& one : signature_.replays) {
    const auto early = [&](const ir::Output& output) {
      return is_early(one, static_cast<size_t>(output.role.index));
    };
    if (std::ranges::none_of(one.graph.outputs(), early)) continue;
    replay(one, [&](size_t output, const at::Tensor& view) {
      if (!is_early(one, output)) return;
      results_[output] = view;
      if (signature_.outputs[output].made_leaf) results_[output].set_requires_grad(true);
    });
  }
}

/// A tensor like a result that is not there yet.
at::Tensor Epilogue::sample_of(int64_t output) {
  const ir::TensorType& type = *signature_.outputs[static_cast<size_t>(output)].type;
  return at::empty({}, at::TensorOptions().dtype(type.dtype).device(type.device))
      .expand(type.static_sizes());
}

/// Views of inputs, groups and bases, now that every history is in place.
void Epilogue::replay_views() {
  for (const ir::ViewReplay& one : signature_.replays) {
    if (one.as_found) continue;
    replay(one, [&](size_t output, const at::Tensor& view) {
      const ir::OutputFacts& facts = signature_.outputs[output];
      if (is_early(one, output)) return;
      results_[output] = view;
      if (facts.own_history) give_own_history(static_cast<int64_t>(output));
    });
  }
}

/// The slot of the results' node that is a result's, or an end of its own.
Epilogue::Edge Epilogue::history_of(int64_t output) const {
  const CallTensor result = CallTensor::output(output);
  const std::vector<size_t>& tangents = plan_.parts[0].tangents;
  for (size_t slot = 0; slot < tangents.size(); ++slot) {
    if (signature_.tangents[tangents[slot]].of.tensor == result)
      return Edge(nodes_[0], static_cast<uint32_t>(slot));
  }
  const bool leads_nowhere =
      std::ranges::any_of(signature_.tangents, [&](const ir::TangentFacts& tangent) {
        return tangent.of.tensor == result;
      });
  return leads_nowhere ? dead_end_of(real(result)) : Edge();
}

/// What a custom function made of an input is a view of it, but has the function's history, and
/// eager refuses to write it for that reason.
void Epilogue::give_own_history(int64_t output) {
  at::Tensor& result = results_[static_cast<size_t>(output)];
  Edge edge = history_of(output);
  if (!edge.is_valid()) return;
  if (signature_.outputs[static_cast<size_t>(output)].of_custom_function) {
    if (result.is_view()) {
      autograd::impl::get_view_autograd_meta(result)->set_creation_meta(
          autograd::CreationMeta::IN_CUSTOM_FUNCTION);
    }
  } else {
    // A view that may be written has to be the only result of its node.
    auto only = libtorch::make_node<ViewResult>();
    only->add_next_edge(std::move(edge));
    only->add_input_metadata(result);
    edge = Edge(std::move(only), 0);
  }
  autograd::impl::set_gradient_edge(result, std::move(edge));
}

}  // namespace tandem::runtime
