#include "tracing/inputs/group.h"

#include "ops/memory/flat_memory.h"
#include "ops/memory/shares_memory.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;
using ops::root_of;

/// Needs a gradient though what it is a view of does not: a leaf, or its base was detached since.
bool stands_apart(const at::Tensor& tensor) {
  return tensor.requires_grad() && !root_of(tensor).requires_grad();
}

/// Whether stand-ins can be views of what autograd knows them all to be views of. A history that
/// does not come from the base would be renewed from the base when that is written.
bool have_one_root(std::span<const at::Tensor> members) {
  const at::Tensor root = root_of(members[0]);
  return std::ranges::all_of(members, [&](const at::Tensor& member) {
    return root_of(member).is_same(root) && !(stands_apart(member) && !member.is_leaf());
  });
}

c10::DispatchKeySet without_lazy_keys(const at::Tensor& tensor) {
  return tensor.key_set() -
         c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
}

/// Not of a base with gaps or another order of dimensions: as_strided_scatter, by which a write to
/// the view is recorded, refuses it.
bool can_be_member(const at::Tensor& tensor, const at::Tensor& root) {
  return !root.is_same(tensor) && without_lazy_keys(root) == without_lazy_keys(tensor) &&
         ops::can_be_taken_of(root, tensor) && root.is_contiguous();
}

}  // namespace

bool is_differentiable_view(const at::Tensor& tensor) {
  if (!tensor.requires_grad()) return false;
  const at::Tensor root = root_of(tensor);
  // Not of a tensor without grad, of which a view can have a history of its own only.
  return root.requires_grad() && can_be_member(tensor, root);
}

bool is_conjugate(const at::Tensor& tensor) {
  const at::Tensor root = root_of(tensor);
  return tensor.is_conj() != root.is_conj() && can_be_member(tensor, root) &&
         cannot_be_group({&tensor, 1}).empty();
}

bool are_related(const at::Tensor& a, const at::Tensor& b, RelatedViews views) {
  if (!a.storage().is_alias_of(b.storage())) return false;
  // Of a tensor that needs no gradient, views that do are leaves: a write to one gives the others
  // no history.
  const at::Tensor root = root_of(a);
  const bool counts = views == RelatedViews::OfAll ||
                      (views == RelatedViews::OfTensorsWithGrad && root.requires_grad());
  return (counts && root.is_same(root_of(b))) || ops::shares_memory(a, b);
}

std::vector<std::vector<size_t>> related(std::span<const at::Tensor> tensors, RelatedViews views) {
  std::vector<size_t> component(tensors.size());
  bool any = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    component[i] = i;
    for (size_t j = 0; j < i; ++j) {
      if (component[j] == component[i] || !are_related(tensors[i], tensors[j], views)) continue;
      any = true;
      const size_t from = component[i], to = component[j];
      std::ranges::replace(component, from, to);
    }
  }
  if (!any) return {};
  std::vector<std::vector<size_t>> found(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) found[component[i]].push_back(i);
  std::erase_if(found, [](const std::vector<size_t>& members) { return members.size() < 2; });
  return found;
}

std::string cannot_be_group(std::span<const at::Tensor> members) {
  for (const at::Tensor& member : members) {
    if (member.scalar_type() != members[0].scalar_type()) return "they see it as different dtypes";
  }
  if (have_one_root(members)) return {};
  // Members are strided views of the memory: they read it as it is.
  for (const at::Tensor& member : members) {
    if (member.is_conj() || member.is_neg())
      return "one of them is a lazy conjugate or negation of it";
  }
  // Without a common root each member stands for itself: that is what autograd sees outside, too.
  // Views of one another would need both, unless no write can give one of them a history.
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!members[i].requires_grad() && !members[j].requires_grad()) continue;
      if (!root_of(members[i]).is_same(root_of(members[j]))) continue;
      if (stands_apart(members[i]) && stands_apart(members[j])) continue;
      return root_of(members[i]).requires_grad()
                 ? "two of them are views of one tensor that requires grad, and another is not"
                 : "two of them are views of one tensor, and only one of them requires grad";
    }
  }
  return {};
}

Group make_group(Recording& recording, std::span<const at::Tensor> members, int64_t index,
                 bool caller_in_inference_mode) {
  Group group;
  group.is_root = have_one_root(members);
  if (group.is_root) {
    group.real = root_of(members[0]);
  } else {
    OutsideTrace outside;
    group.real = ops::flat_memory(members);
  }
  StandIn base = make_stand_in(recording, group.real, ir::Descriptor::base(index),
                               "base" + std::to_string(index), caller_in_inference_mode);
  group.tensor = std::move(base.tensor);
  group.input = base.input;
  group.edge = unwritten_history(base);
  group.requires_grad = base.requires_grad;
  group.is_leaf = base.is_leaf;
  return group;
}

StandIn make_member(Recording& recording, const Group& group, const at::Tensor& real,
                    size_t equal_members, ir::Descriptor role, std::string name,
                    bool caller_in_inference_mode) {
  require_plain(real);
  c10::InferenceMode mode(real.is_inference() && !caller_in_inference_mode);
  StandIn member;
  member.real = real;
  {
    OutsideTrace outside;
    at::AutoDispatchBelowADInplaceOrView below;
    recording.add_input(real, std::move(role), std::move(name));
  }
  member.input = recording.graph().inputs().back();
  const auto as_member = [&] {
    at::Tensor member =
        ops::take_view(group.tensor, {.member = real, .base = group.real, .keeps_offset = false});
    // Views of one member must not be taken for views of another that shows the same.
    for (size_t i = 0; i < equal_members; ++i) member = member.alias();
    return member;
  };
  if (group.is_root) {
    // A view made without grad could not be written in grad mode. But if it has no history though
    // the base has one, it was made so.
    const bool made_without = group.requires_grad && real.is_leaf() && !real.is_same(group.real);
    at::AutoGradMode grad_mode(!real.is_inference() && !made_without);
    member.tensor = real.is_same(group.real) ? group.tensor : as_member();
    member.apart = real.requires_grad() && !group.requires_grad;
    if (member.apart) {
      take_autograd_state(member, real);
    } else if (real.requires_grad()) {
      member.histories = {autograd::impl::gradient_edge(member.tensor)};
    }
  } else {
    {
      at::AutoDispatchBelowADInplaceOrView below;
      member.tensor = as_member();
    }
    if (!member.tensor.is_inference())
      member.tensor.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
    take_autograd_state(member, real);
  }
  note_first_state(member);
  return member;
}

}  // namespace tandem::tracing
