#include "tracing/group.h"

#include "base/error.h"
#include "ops/flat_memory.h"
#include "ops/shares_memory.h"
#include "tracing/ambient.h"
#include "tracing/operand_text.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;
using ops::root_of;

void require_one_dtype(std::span<const at::Tensor> members, std::span<const std::string> names) {
  for (size_t i = 1; i < members.size(); ++i) {
    if (members[i].scalar_type() == members[0].scalar_type()) continue;
    TANDEM_UNSUPPORTED("trace", names[0], " and ", names[i],
                       " share memory and see it as different dtypes",
                       "\n  value:  ", names[0], " is ", tensor_text(members[0]), ", ", names[i],
                       " is ", tensor_text(members[i]),
                       "\n  remedy: pass one of them only, and make the other inside with "
                       "view(dtype), view_as_real or view_as_complex");
  }
}

bool have_one_root(std::span<const at::Tensor> members) {
  const at::Tensor root = root_of(members[0]);
  return std::ranges::all_of(members,
                             [&](const at::Tensor& member) { return root_of(member).is_same(root); });
}

/// Without a common root each member stands for itself: that is what autograd sees outside, too.
/// Views of one another would need both.
void require_unrelated(std::span<const at::Tensor> members, std::span<const std::string> names) {
  for (size_t i = 0; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!members[i].requires_grad() && !members[j].requires_grad()) continue;
      if (!root_of(members[i]).is_same(root_of(members[j]))) continue;
      TANDEM_UNSUPPORTED(
          "trace", names[j], " and ", names[i],
          " are views of one tensor that requires grad, and share memory with an input that is not",
          "\n  remedy: clone() one of them, or make the views inside the compiled function");
    }
  }
}

}  // namespace

std::vector<std::vector<size_t>> overlapping(std::span<const at::Tensor> tensors) {
  std::vector<size_t> component(tensors.size());
  bool any = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    component[i] = i;
    for (size_t j = 0; j < i; ++j) {
      if (!ops::shares_memory(tensors[i], tensors[j]) || component[j] == component[i]) continue;
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

Group make_group(Recording& recording, std::span<const at::Tensor> members,
                 std::span<const std::string> names, int64_t index,
                 bool caller_in_inference_mode) {
  require_one_dtype(members, names);
  Group group;
  group.is_root = have_one_root(members);
  if (group.is_root) {
    group.real = root_of(members[0]);
  } else {
    require_unrelated(members, names);
    OutsideTrace outside;
    group.real = ops::flat_memory(members);
  }
  StandIn base = make_stand_in(recording, group.real, ir::Descriptor::base(index),
                               "base" + std::to_string(index), caller_in_inference_mode);
  group.tensor = std::move(base.tensor);
  group.input = base.input;
  group.edge = base.edge;
  group.requires_grad = base.requires_grad;
  group.is_leaf = base.is_leaf;
  return group;
}

StandIn make_member(Recording& recording, const Group& group, const at::Tensor& real,
                    ir::Descriptor role, std::string name, bool caller_in_inference_mode) {
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
    return group.tensor.as_strided(real.sizes(), real.strides(), real.storage_offset());
  };
  if (group.is_root) {
    // A view made without grad could not be written in grad mode.
    at::AutoGradMode grad_mode(!real.is_inference());
    member.tensor = real.is_same(group.real) ? group.tensor : as_member();
    if (real.requires_grad()) member.edge = autograd::impl::gradient_edge(member.tensor);
  } else {
    {
      at::AutoDispatchBelowADInplaceOrView below;
      member.tensor = as_member();
    }
    member.tensor.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
    take_autograd_state(member, real);
  }
  note_entry_state(member);
  return member;
}

}  // namespace tandem::tracing
