#include "runtime/guards/alias_guard.h"

#include "base/error.h"
#include "libtorch/private_members.h"
#include "ops/memory/flat_memory.h"
#include "ops/memory/shares_memory.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

namespace autograd = torch::autograd;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

int64_t creation_of(const at::Tensor& tensor) {
  if (!tensor.is_view()) return -1;
  return static_cast<int64_t>(autograd::impl::get_view_autograd_meta(tensor)->get_creation_meta());
}

/// Whether the history with which the call leaves the input depends on its being a view. Of members
/// of a group the group knows.
bool view_counts(const ir::Signature& signature, size_t input) {
  const ir::InputFacts& facts = signature.inputs[input];
  return signature.training && facts.duplicate_of < 0 && facts.version_delta != 0 &&
         (facts.requires_grad || facts.requires_grad_after) && !signature.is_view_of_group(input);
}

}  // namespace

AliasGuard::AliasGuard(const ir::Signature& signature, const Rows& rows,
                       std::span<const at::Tensor* const> inputs, std::vector<std::string> names)
    : training_(signature.training),
      lifted_count_(static_cast<size_t>(signature.lifted_count)),
      names_(std::move(names)) {
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const ir::InputFacts& facts = signature.inputs[i];
    const bool first = facts.duplicate_of < 0;
    if (first && (facts.data_written || facts.storage != ir::StorageChange::None))
      written_.push_back(i);
    if (first && facts.version_delta != 0) moved_.push_back(i);
    if (view_counts(signature, i))
      known_views_.push_back({i, std::ranges::count(rows.views, static_cast<int64_t>(i)) > 0});
    group_of_input_.push_back(first ? facts.group
                                    : group_of_input_[static_cast<size_t>(facts.duplicate_of)]);
    const int64_t same = facts.duplicate_of >= 0 ? facts.duplicate_of : facts.counter_of;
    counter_of_input_.push_back(same < 0 ? i : counter_of_input_[static_cast<size_t>(same)]);
  }
  for (size_t i = 0; i < rows.groups.size(); ++i) {
    const ir::GroupFacts& facts = signature.groups[i];
    Group& group = groups_.emplace_back();
    group = {.members = rows.groups[i].members, .is_root = facts.is_root, .offset = facts.offset};
    if (rows.groups[i].base) group.base.emplace(*rows.groups[i].base);
  }
  if (!watches()) return;
  for (size_t i = 0; i < lifted_count_; ++i)
    lifted_memory_.push_back({storage_of(*inputs[i]), inputs[i]->storage_offset()});
}

std::vector<GroupRow> AliasGuard::rows_of(const ir::Signature& signature,
                                          std::span<const at::Tensor* const> inputs) {
  std::vector<GroupRow> rows;
  for (const ir::GroupFacts& facts : signature.groups) {
    GroupRow& row = rows.emplace_back();
    for (int64_t member : facts.members) {
      const at::Tensor& tensor = *inputs[static_cast<size_t>(member)];
      row.members.push_back({member, tensor.storage_offset(), creation_of(tensor)});
    }
    const at::Tensor& first = *inputs[static_cast<size_t>(facts.members[0])];
    if (facts.is_root) row.base = TensorGuard(ops::root_of(first)).row();
  }
  return rows;
}

std::vector<int64_t> AliasGuard::views_of(const ir::Signature& signature,
                                          std::span<const at::Tensor* const> inputs) {
  std::vector<int64_t> views;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (view_counts(signature, i) && inputs[i]->is_view()) views.push_back(static_cast<int64_t>(i));
  }
  return views;
}

std::optional<std::string> AliasGuard::mismatch(std::span<const at::Tensor* const> inputs) const {
  if (auto text = overlap(inputs)) return text;
  for (const Group& group : groups_) {
    if (auto text = group_mismatch(group, inputs)) return text;
  }
  if (auto text = counter_mismatch(inputs)) return text;
  return view_mismatch(inputs);
}

bool AliasGuard::lifted_moved(std::span<const at::Tensor* const> inputs) const {
  for (size_t i = 0; i < lifted_memory_.size(); ++i) {
    if (storage_of(*inputs[i]) != lifted_memory_[i].storage ||
        inputs[i]->storage_offset() != lifted_memory_[i].offset) {
      return true;
    }
  }
  return false;
}

std::optional<std::string> AliasGuard::overlap(std::span<const at::Tensor* const> inputs) const {
  const bool moved = lifted_moved(inputs);
  for (size_t i : written_) {
    const bool lifted = i < lifted_count_ && !moved;
    for (size_t j = lifted ? lifted_count_ : 0; j < inputs.size(); ++j) {
      if (group_of_input_[i] >= 0 && group_of_input_[i] == group_of_input_[j]) continue;
      if (!ops::shares_memory(*inputs[i], *inputs[j])) continue;
      return base::str(names_[i], " is written and shares memory with ", names_[j]);
    }
  }
  return std::nullopt;
}

std::optional<std::string> AliasGuard::group_mismatch(
    const Group& group, std::span<const at::Tensor* const> inputs) const {
  const GroupRow::Member& first = group.members[0];
  const at::Tensor& leader = *inputs[static_cast<size_t>(first.input)];
  const at::Tensor root = group.is_root ? ops::root_of(leader) : at::Tensor();
  if (group.is_root && (!group.base->matches(root) || root.storage_offset() != group.offset)) {
    return base::str("the tensor that ", names_[static_cast<size_t>(first.input)],
                     " is a view of: ", group.base->difference(root));
  }
  for (const GroupRow::Member& member : group.members) {
    const at::Tensor& tensor = *inputs[static_cast<size_t>(member.input)];
    if (storage_of(tensor) != storage_of(leader) || tensor.storage_offset() != member.offset ||
        (group.is_root && !ops::root_of(tensor).is_same(root))) {
      return base::str(names_[static_cast<size_t>(member.input)], " does not share memory with ",
                       names_[static_cast<size_t>(first.input)], " as it did");
    }
    if (creation_of(tensor) != member.creation)
      return base::str(names_[static_cast<size_t>(member.input)],
                       " is another kind of view than it was");
  }
  return std::nullopt;
}

std::optional<std::string> AliasGuard::counter_mismatch(
    std::span<const at::Tensor* const> inputs) const {
  for (size_t i : moved_) {
    for (size_t j = 0; j < inputs.size(); ++j) {
      // Whatever their memory: separate tensors may come in place of parts of one, and set_data()
      // separates a part from its memory, not from its counter.
      const bool same = libtorch::same_counter(*inputs[i]->unsafeGetTensorImpl(),
                                               *inputs[j]->unsafeGetTensorImpl());
      const bool was = counter_of_input_[i] == counter_of_input_[j];
      // Two counters that have become one count the writes to both inputs. What was saved of the
      // other input is outdated then, as in eager, and only a trace knows that.
      if (i == j || same == was || (same && !training_)) continue;
      return base::str(names_[i], " and ", names_[j], same ? " have" : " do not have",
                       " one version counter");
    }
  }
  return std::nullopt;
}

std::optional<std::string> AliasGuard::view_mismatch(
    std::span<const at::Tensor* const> inputs) const {
  for (const KnownView& one : known_views_) {
    if (inputs[one.input]->is_view() == one.is_view) continue;
    return base::str(names_[one.input], one.is_view
                                            ? " is no view, compiled for one"
                                            : " is a view, compiled for a tensor of its own");
  }
  return std::nullopt;
}

std::vector<std::string> AliasGuard::texts() const {
  std::vector<std::string> texts;
  if (!written_.empty()) texts.push_back("no written input shares memory with another input");
  for (const Group& group : groups_) {
    std::string names;
    for (const GroupRow::Member& member : group.members)
      names += (names.empty() ? "" : ", ") + names_[static_cast<size_t>(member.input)];
    texts.push_back(names + " share memory as they did at the trace");
  }
  if (groups_.empty() || written_.empty()) return texts;
  texts.front() = "no written input shares memory with an input outside its group";
  return texts;
}

}  // namespace tandem::runtime
