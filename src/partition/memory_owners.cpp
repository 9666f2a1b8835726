#include "partition/memory_owners.h"

#include "ops/memory/memory_roots.h"
#include "ops/reads.h"

#include <algorithm>
#include <numeric>

namespace tandem::partition {
namespace {

/// Whether a copy has the same strides: each element has its own place, and there are no gaps.
bool is_dense(const ir::TensorType& type) {
  if (type.layout != c10::kStrided) return false;
  if (!type.is_static()) return type.is_contiguous();
  const std::vector<int64_t> sizes = type.static_sizes(), strides = type.static_strides();
  std::vector<size_t> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::erase_if(dims, [&](size_t dim) { return sizes[dim] == 1; });
  std::ranges::sort(dims, {}, [&](size_t dim) { return strides[dim]; });
  int64_t expected = 1;
  for (size_t dim : dims) {
    if (sizes[dim] == 0) return type.is_contiguous();
    if (strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  // Sizes of 1 have strides too, which a copy keeps only where it may keep all.
  return true;
}

}  // namespace

MemoryOwners::MemoryOwners(const ir::Graph& joint, const ir::Signature& signature)
    : joint_(joint),
      roots_(ops::memory_roots(joint)),
      read_(joint.value_limit(), false),
      visible_(joint.value_limit(), false),
      lasting_(joint.value_limit(), false),
      parameter_(joint.value_limit(), false) {
  for (size_t i = 0; i < joint.inputs().size(); ++i) {
    const auto input = static_cast<size_t>(joint.inputs()[i]);
    const ir::Role role = joint.input_role(joint.inputs()[i]).role;
    const ir::InputFacts* facts = i < signature.inputs.size() ? &signature.inputs[i] : nullptr;
    visible_[input] = true;
    lasting_[input] =
        role == ir::Role::Param || role == ir::Role::Buffer || role == ir::Role::Lifted;
    // What has a history is nobody's parameter: a caller may write it before the backward.
    parameter_[input] = role == ir::Role::Param || (role == ir::Role::Lifted && facts != nullptr &&
                                                    facts->requires_grad && facts->is_leaf);
    read_[input] = facts != nullptr && facts->read_by_backward;
  }
  ops::for_each_backward_read(joint, [&](ir::ValueId id) { read_[root(id)] = true; });
  for (const ir::Output& output : joint.outputs()) {
    if (output.role.role != ir::Role::Grad && output.value != ir::kNoValue)
      visible_[root(output.value)] = true;
  }
}

Keep MemoryOwners::how_to_keep(ir::ValueId value) const {
  const size_t owner = root(value);
  if (!visible_[owner]) return Keep::AsItIs;
  const bool is_input = joint_.value(static_cast<ir::ValueId>(owner)).is_input();
  if (is_input && lasting_[owner] && (read_[owner] || parameter_[owner])) return Keep::ForFree;
  if (read_[owner]) return is_input ? Keep::ByReference : Keep::AsItIs;
  return is_dense(*joint_.value(value).tensor_type()) ? Keep::AsCopy : Keep::NotAtAll;
}

}  // namespace tandem::partition
