#include "base/error.h"
#include "base/same_bits.h"
#include "runtime/guards/constant_text.h"
#include "runtime/guards/guards.h"
#include "runtime/guards/sizes_key.h"

#include <algorithm>

/// Which guards may be those of two variants of one entry.
namespace tandem::runtime {
namespace {

bool alike_constants(const detail::Constant& a, const detail::Constant& b) {
  return (varies(a) && a.index() == b.index()) || base::same_bits(a, b);
}

bool alike_tensors(const TensorGuard& a, const TensorGuard& b) { return a.alike(b); }

/// `.data()` of a parameter is another tensor on the same memory each time.
bool are_one(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (!a.requires_grad() && !b.requires_grad() && a.storage().is_alias_of(b.storage()) &&
          a.storage_offset() == b.storage_offset());
}

bool alike_groups(const GroupRow& a, const GroupRow& b) {
  const auto alike_members = [](const GroupRow::Member& x, const GroupRow::Member& y) {
    return x.input == y.input && x.creation == y.creation;
  };
  return std::ranges::equal(a.members, b.members, alike_members) &&
         a.base.has_value() == b.base.has_value() &&
         (!a.base || TensorGuard(*a.base).alike(TensorGuard(*b.base)));
}

/// In no order that matters.
std::vector<std::vector<size_t>> sorted(std::vector<std::vector<size_t>> groups) {
  std::ranges::sort(groups);
  return groups;
}

}  // namespace

bool Guards::alike_before_trace(const Guards& other) const {
  const auto same_handles = [](const Handle& a, const Handle& b) {
    return a.variable == b.variable &&
           a.target._unsafe_get_target() == b.target._unsafe_get_target();
  };
  return thread_ == other.thread_ && effect_marks_ == other.effect_marks_ &&
         std::ranges::equal(constants_, other.constants_, alike_constants) &&
         std::ranges::equal(arguments_, other.arguments_, alike_tensors) &&
         first_same_ == other.first_same_ && modules_.alike(other.modules_) &&
         std::ranges::equal(handles_, other.handles_, same_handles) &&
         guard_value_.has_value() == other.guard_value_.has_value() &&
         (!guard_value_ || base::same_bits(*guard_value_, *other.guard_value_));
}

bool Guards::hold_but_for_numbers(const libtorch::ThreadState& thread,
                                  const detail::Flat& arguments) const {
  return thread_ == thread && has_structure_of(arguments) &&
         std::ranges::equal(constants_, arguments.constants, alike_constants) &&
         std::ranges::equal(arguments_, arguments.tensors,
                            [](const TensorGuard& guard, const at::Tensor& tensor) {
                              return guard.matches(tensor);
                            }) &&
         modules_.holds();
}

bool Guards::alike(const Guards& other) const {
  const auto same_closed_over = [](const ClosedOver& a, const ClosedOver& b) {
    return a.argument == b.argument &&
           a.tensor._unsafe_get_target() == b.tensor._unsafe_get_target();
  };
  return alike_before_trace(other) && std::ranges::equal(lifted_, other.lifted_, are_one) &&
         std::ranges::equal(lifted_guards_, other.lifted_guards_, alike_tensors) &&
         sorted(shared_storage_) == sorted(other.shared_storage_) &&
         input_arguments_ == other.input_arguments_ &&
         std::ranges::equal(groups_, other.groups_, alike_groups) &&
         lifted_offsets_.size() == other.lifted_offsets_.size() &&
         argument_offsets_.size() == other.argument_offsets_.size() &&
         std::ranges::equal(closed_over_, other.closed_over_, same_closed_over) &&
         values_ == other.values_;
}

size_t Guards::differing_numbers(const Guards& other) const {
  size_t count = 0;
  for (size_t i = 0; i < constants_.size(); ++i)
    count += base::same_bits(constants_[i], other.constants_[i]) ? 0 : 1;
  const auto compare = [&](const TensorGuard& x, const TensorGuard& y) {
    const auto a = x.sizes(), b = y.sizes();
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) count += a[k] == b[k] ? 0 : 1;
    if (a == b && x.strides() != y.strides()) ++count;
  };
  for (size_t i = 0; i < arguments_.size(); ++i) compare(arguments_[i], other.arguments_[i]);
  if (lifted_guards_.size() == other.lifted_guards_.size()) {
    for (size_t i = 0; i < lifted_guards_.size(); ++i)
      compare(lifted_guards_[i], other.lifted_guards_[i]);
  }
  return count + (argument_offsets_ == other.argument_offsets_ ? 0 : 1) +
         (lifted_offsets_ == other.lifted_offsets_ ? 0 : 1);
}

std::string Guards::other_numbers(const Guards& other) const {
  std::string text;
  const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
  const auto compare = [&](const std::string& name, const TensorGuard& a, const TensorGuard& b) {
    if (a.sizes() != b.sizes() || a.strides() != b.strides())
      add(name + " " + ir::to_string(a.type()));
  };
  for (size_t i = 0; i < arguments_.size(); ++i)
    compare(names_[i], arguments_[i], other.arguments_[i]);
  for (size_t i = 0; i < lifted_guards_.size(); ++i)
    compare(lifted_names_[i], lifted_guards_[i], other.lifted_guards_[i]);
  for (size_t i = 0; i < constants_.size(); ++i) {
    if (!base::same_bits(constants_[i], other.constants_[i]))
      add(base::str("constant ", i, " is ", constant_text(constants_[i])));
  }
  return text.empty() ? "other storage offsets" : text;
}

}  // namespace tandem::runtime
