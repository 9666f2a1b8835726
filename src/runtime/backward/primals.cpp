#include "runtime/backward/primals.h"

#include "libtorch/version.h"
#include "ops/memory/flat_memory.h"
#include "ops/op_table.h"
#include "ops/reads.h"
#include "shapes/reach.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

std::vector<std::optional<at::Generator>> generators_of(const ir::Graph& forward) {
  bool any = false;
  forward.for_each_node([&](const ir::Node& node) {
    any = any || (node.kind() == ir::NodeKind::Op && ops::info(node.op()).random);
  });
  std::vector<std::optional<at::Generator>> generators;
  if (!any) return generators;
  generators.emplace_back();
  for (const at::Generator& named : forward.generators()) generators.emplace_back(named);
  std::vector<c10::Device> devices;
  for (ir::ValueId input : forward.inputs()) {
    const ir::TypePtr& type = forward.value(input).tensor_type();
    if (!type || type->device.is_cpu() || std::ranges::count(devices, type->device)) continue;
    devices.push_back(type->device);
    generators.emplace_back(at::globalContext().defaultGenerator(type->device));
  }
  return generators;
}

struct Geometry {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
};

/// New memory in which a tensor of this geometry lies at the same offset: ops that count from the
/// start of the storage must find it there.
at::Tensor empty_like_in_storage(const Geometry& geometry, const at::TensorOptions& options) {
  const int64_t end =
      geometry.offset + std::max<int64_t>(shapes::reach(geometry.sizes, geometry.strides), 1);
  at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor memory = at::empty({end}, options);
  return at::empty({0}, options)
      .set_(memory.storage(), geometry.offset, geometry.sizes, geometry.strides);
}

/// The function decides by these what it does.
void set_lazy(const at::Tensor& tensor, c10::DispatchKeySet keys) {
  if (keys.has(c10::DispatchKey::Conjugate)) tensor._set_conj(true);
  if (keys.has(c10::DispatchKey::Negative)) tensor._set_neg(true);
}

at::Tensor copy_of_data(const at::Tensor& tensor) {
  at::Tensor copy =
      empty_like_in_storage({tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()},
                            tensor.options().requires_grad(std::nullopt));
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor memory = tensor;
  if (tensor.is_neg()) memory = at::_neg_view(memory);
  if (tensor.is_conj()) memory = at::_conj(memory);
  copy.copy_(memory);
  set_lazy(copy, tensor.key_set());
  return copy;
}

/// A copy with the data and the history that a tensor has now. It is no leaf, so that the function
/// may write it, and no view if autograd sees that write.
at::Tensor copy_as_found(const at::Tensor& tensor, bool is_rewritten) {
  at::Tensor copy = copy_of_data(tensor);
  if (!tensor.requires_grad()) return copy;
  // The history of a leaf is never renewed.
  return with_history(copy, autograd::impl::gradient_edge(tensor),
                      tensor.is_view() && !tensor.is_leaf() && !is_rewritten);
}

/// A leaf of which what arrives at another one is the gradient.
at::Tensor as_leaf(const at::Tensor& copy, const at::Tensor& leaf,
                   autograd::edge_list& accumulators) {
  using Weak = decltype(autograd::AutogradMeta::grad_accumulator_);
  copy.set_requires_grad(true);
  accumulators.push_back(autograd::impl::gradient_edge(leaf));
  autograd::impl::set_grad_accumulator(copy, Weak(accumulators.back().function));
  return copy;
}

at::Tensor view_of(const at::Tensor& tensor) {
  at::AutoGradMode grad_mode(true);
  return tensor.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

/// The copy of a leaf that stands apart does so, too.
at::Tensor copy_of_leaf(const at::Tensor& leaf, autograd::edge_list& accumulators) {
  const at::Tensor copy = copy_of_data(leaf);
  return as_leaf(stands_apart(leaf) ? view_of(copy) : copy, leaf, accumulators);
}

}  // namespace

at::Tensor input_with(const at::Tensor& data, const at::Tensor& input,
                      autograd::edge_list& accumulators) {
  if (!input.requires_grad()) return data;
  if (input.is_leaf()) return as_leaf(data, input, accumulators);
  return with_history(data, autograd::impl::gradient_edge(input), input.is_view());
}

namespace {

struct Member {
  const at::Tensor& tensor;
  const at::Tensor& base;
  bool is_root = false;            // of the base
  const at::Tensor* counter_of{};  // an earlier one that has the same version counter
};

/// A member of a group as it was, on the copy of the group's memory.
at::Tensor member_of(const at::Tensor& copy, const Member& one, autograd::edge_list& accumulators) {
  const at::Tensor& tensor = one.tensor;
  if (tensor.is_same(one.base)) return copy;
  const bool is_leaf = tensor.requires_grad() && tensor.is_leaf();
  if (one.is_root) {
    at::AutoGradMode grad_mode(true);
    const at::Tensor view = ops::take_view(copy, {.member = tensor, .base = one.base});
    return is_leaf && !one.base.requires_grad() ? as_leaf(view, tensor, accumulators) : view;
  }
  // Autograd knows nothing of the memory that they share.
  at::Tensor member;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    member = at::empty({0}, copy.options());
    member.set_(copy.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  }
  // A view stays a view, so that its history is renewed where that of the tensor was.
  if (tensor.requires_grad() && tensor.is_view() && !is_leaf) {
    const at::NoGradGuard no_grad;
    member = member.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  if (one.counter_of) {
    member.unsafeGetTensorImpl()->set_version_counter(
        one.counter_of->unsafeGetTensorImpl()->version_counter());
  }
  if (is_leaf) return as_leaf(member, tensor, accumulators);
  if (tensor.requires_grad())
    autograd::impl::set_gradient_edge(member, autograd::impl::gradient_edge(tensor));
  return member;
}

/// A handle on the same memory, with the sizes and the place in autograd's graph that the tensor
/// has now.
at::Tensor handle_as_found(const at::Tensor& tensor) {
  const at::Tensor root = ops::root_of(tensor);
  if (tensor.is_view() && tensor.requires_grad() == root.requires_grad() &&
      ops::can_be_taken_of(root, tensor)) {
    at::AutoGradMode grad_mode(true);
    return ops::take_view(root, {.member = tensor, .base = root});
  }
  at::Tensor handle = tensor.variable_data();
  if (tensor.requires_grad())
    autograd::impl::set_gradient_edge(handle, autograd::impl::gradient_edge(tensor));
  return handle;
}

/// A node that only says that a tensor has a history. No backward ever runs it.
struct NoHistory : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&&) override { return {}; }
};

}  // namespace

at::Tensor with_history(const at::Tensor& data, const autograd::Edge& history, bool is_view) {
  at::Tensor tensor = data;
  if (is_view) {
    const at::NoGradGuard no_grad;
    tensor = data.as_strided(data.sizes(), data.strides(), data.storage_offset());
  }
  autograd::impl::set_gradient_edge(tensor, history);
  return tensor;
}

namespace {

void hold(size_t input, const CallPlan& call, int64_t lifted_count, PrimalPlan& plan) {
  size_t argument = 0;
  for (size_t slot = 0; slot < call.saved.size(); ++slot) {
    const Saved::How& how = call.saved[slot];
    if (how == Saved::How{Saved::As::Input, static_cast<int64_t>(input)}) {
      plan.saved.push_back({input, slot, argument});
      return;
    }
    argument += how.as == Saved::As::Input && how.of >= lifted_count;
  }
  plan.held.push_back(input);
}

}  // namespace

PrimalPlan make_primal_plan(const ir::Graph& joint, const Split& split, const CallPlan& call) {
  using How = PrimalPlan::How;
  const ir::Signature& signature = split.signature;
  const std::vector<partition::KeptPrimal> kept = partition::kept_primals(joint, signature);
  std::vector<bool> saved(signature.inputs.size(), false);
  for (const Saved::How& how : call.saved) {
    if (how.as == Saved::As::Input) saved[static_cast<size_t>(how.of)] = true;
  }
  PrimalPlan plan;
  for (size_t i = 0; i < signature.groups.size(); ++i) {
    const bool is_kept = std::ranges::any_of(signature.groups[i].members, [&](int64_t member) {
      return kept[static_cast<size_t>(member)].as == How::InGroup;
    });
    if (is_kept) plan.groups.push_back(i);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    const How how = kept[i].as;
    const bool lifted = i < static_cast<size_t>(signature.lifted_count);
    plan.how.push_back(how);
    if (lifted && how != How::Lifted) plan.replaced.push_back(i);
    if (how == How::Copied) plan.copied.push_back(i);
    const ir::InputFacts& facts = signature.inputs[i];
    const bool is_leaf = facts.requires_grad && facts.is_leaf && facts.duplicate_of < 0;
    if (how == How::Unread && is_leaf) plan.unread_leaves.push_back(i);
    if (how == How::Reshaped) plan.reshaped.push_back(i);
    if (how == How::Held) hold(i, call, signature.lifted_count, plan);
    if (how == How::Lifted && kept[i].is_read && !saved[i]) plan.watched.push_back(i);
    if (lifted && kept[i].is_read) plan.read_lifted.push_back(i);
    if (!lifted && how == How::Copied && facts.is_leaf && facts.is_leaf_after &&
        facts.duplicate_of < 0)
      plan.rewritten.push_back(i);
  }
  plan.generators = generators_of(split.forward);
  plan.counts_offsets = ops::counts_from_storage_start(joint);
  return plan;
}

const at::Tensor* Snapshot::copy_of(size_t input) const {
  for (const auto& [position, tensor] : copies) {
    if (position == input) return &tensor;
  }
  return nullptr;
}

Snapshot take_snapshot(const PrimalPlan& plan, const ir::Signature& signature,
                       std::span<const at::Tensor> inputs, bool with_copies) {
  Snapshot snapshot;
  for (const std::optional<at::Generator>& named : plan.generators) {
    at::Generator generator = named ? *named : at::globalContext().defaultGenerator(at::kCPU);
    std::lock_guard<std::mutex> lock(generator.mutex());
    snapshot.states.push_back(generator.get_state());
  }
  for (size_t i : plan.reshaped) snapshot.copies.emplace_back(i, handle_as_found(inputs[i]));
  if (!with_copies) return snapshot;
  snapshot.has_copies = true;
  for (size_t i : plan.copied) {
    const ir::InputFacts& facts = signature.inputs[i];
    const bool gives_up = facts.is_leaf && facts.requires_grad && !facts.requires_grad_after;
    // Only of a leaf may the function switch the flag.
    snapshot.copies.emplace_back(i, gives_up || stands_apart(inputs[i])
                                        ? copy_of_leaf(inputs[i], snapshot.accumulators)
                                        : copy_as_found(inputs[i], facts.history_changed));
  }
  for (size_t i : plan.groups) {
    const at::Tensor& base = inputs[signature.inputs.size() + i];
    const at::Tensor copy = copy_as_found(base, signature.groups[i].history_changed);
    for (int64_t member : signature.groups[i].members) {
      const auto position = static_cast<size_t>(member);
      const int64_t counter = signature.inputs[position].counter_of;
      const Member one{
          .tensor = inputs[position],
          .base = base,
          .is_root = signature.groups[i].is_root,
          .counter_of = counter < 0 ? nullptr : snapshot.copy_of(static_cast<size_t>(counter))};
      snapshot.copies.emplace_back(position, member_of(copy, one, snapshot.accumulators));
    }
  }
  return snapshot;
}

bool stands_apart(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf() && !ops::root_of(tensor).requires_grad();
}

at::Tensor like_unread(const ir::InputFacts& facts, c10::DispatchKeySet keys, int64_t offset,
                       bool apart) {
  at::Tensor tensor = empty_like_in_storage(
      {facts.type->static_sizes(), facts.type->static_strides(), offset},
      at::TensorOptions().dtype(facts.type->dtype).device(facts.type->device));
  if (apart) tensor = view_of(tensor);
  set_lazy(tensor, keys);
  if (facts.requires_grad && facts.is_leaf) tensor.set_requires_grad(true);
  if (facts.requires_grad && !facts.is_leaf) {
    auto node = libtorch::make_node<NoHistory>();
    node->add_input_metadata(tensor);
    const bool is_view = facts.histories > 1 + facts.history_changed;
    return with_history(tensor, autograd::Edge(std::move(node), 0), is_view);
  }
  return tensor;
}

}  // namespace tandem::runtime
