#include "partition/keeping.h"

#include "ops/memory/memory_roots.h"
#include "ops/own/inputs_in_backward.h"
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

bool is_changed(const ir::InputFacts& facts) {
  return facts.data_written || facts.history_changed || facts.metadata_changed ||
         facts.storage != ir::StorageChange::None ||
         facts.requires_grad != facts.requires_grad_after;
}

bool is_only_reshaped(const ir::InputFacts& facts) {
  return facts.metadata_changed && !facts.data_written && facts.storage == ir::StorageChange::None;
}

/// Whether the call changes a group. In a function of gradients it does not: that drops what the
/// function under it does to its inputs.
bool is_changed(const ir::Signature& signature, const ir::GroupFacts& group) {
  return group.history_changed || std::ranges::any_of(group.members, [&](int64_t member) {
           return is_changed(signature.inputs[static_cast<size_t>(member)]);
         });
}

KeptPrimal::As how_as_found(const ir::Signature& signature, size_t input, bool is_read) {
  using enum KeptPrimal::As;
  const ir::InputFacts& facts = signature.inputs[input];
  if (facts.group >= 0) {
    // Read or not: how the members lie in their memory decides what the function does.
    const ir::GroupFacts& group = signature.groups[static_cast<size_t>(facts.group)];
    return is_changed(signature, group) ? InGroup : Held;
  }
  if (is_only_reshaped(facts)) return Reshaped;
  if (is_changed(facts)) return is_read ? Copied : Unread;
  if (input < static_cast<size_t>(signature.lifted_count)) return Lifted;
  return is_read || facts.history_only ? Held : Unread;
}

}  // namespace

Keeping::Keeping(const ir::Graph& graph, const ir::Signature& signature)
    : graph_(graph),
      signature_(signature),
      roots_(ops::memory_roots(graph)),
      read_(graph.value_limit(), false),
      visible_(graph.value_limit(), false),
      lasting_(graph.value_limit(), false),
      parameter_(graph.value_limit(), false),
      written_(graph.value_limit(), false) {
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const auto input = static_cast<size_t>(graph.inputs()[i]);
    const ir::Role role = graph.input_role(graph.inputs()[i]).role;
    const ir::InputFacts& of_input = facts(static_cast<int64_t>(i));
    input_[graph.inputs()[i]] = static_cast<int64_t>(i);
    visible_[input] = true;
    lasting_[input] =
        role == ir::Role::Param || role == ir::Role::Buffer || role == ir::Role::Lifted;
    // A tensor with a history is no parameter, even if it requires grad: a caller may write it
    // before the backward.
    parameter_[input] = role == ir::Role::Param ||
                        (role == ir::Role::Lifted && of_input.requires_grad && of_input.is_leaf);
    read_[input] = of_input.read_by_backward;
    // The base of a group is written through its members.
    written_[input] = role == ir::Role::Base || of_input.data_written;
  }
  ops::for_each_backward_read(graph, [&](ir::ValueId id) { read_[root(id)] = true; });
  for (const ir::Output& output : graph.outputs()) {
    const ir::Role role = output.role.role;
    if (role == ir::Role::Grad || output.value == ir::kNoValue) continue;
    if (role == ir::Role::Saved) {
      read_[root(output.value)] = true;
      continue;
    }
    const ir::ValueId owner = memory(output.value);
    const int64_t index = output.role.index;
    visible_[root(output.value)] = true;
    if (role == ir::Role::Mutated) {
      new_data_.try_emplace(output.value, index);
      memory_new_data_.try_emplace(owner, index);
      // set_() hands the memory itself to the input.
      if (facts(index).storage == ir::StorageChange::Replaced)
        owner_.try_emplace(owner, Saved::How{Saved::As::Value});
      continue;
    }
    const Saved::How how{role == ir::Role::Base ? Saved::As::Base : Saved::As::Result, index};
    owner_.try_emplace(owner, how);
    returned_.try_emplace(output.value, how);
  }
}

const ir::InputFacts& Keeping::facts(int64_t input) const {
  static const ir::InputFacts kNone;
  const auto index = static_cast<size_t>(input);
  return index < signature_.inputs.size() ? signature_.inputs[index] : kNone;
}

bool Keeping::changes_geometry(int64_t input) const {
  return facts(input).metadata_changed || facts(input).storage != ir::StorageChange::None;
}

bool Keeping::is_kept_by_eager(size_t memory) const {
  return graph_.value(static_cast<ir::ValueId>(memory)).is_input() &&
         (read_[memory] || (lasting_[memory] && parameter_[memory]));
}

std::optional<Saved::How> Keeping::how(ir::ValueId value) const {
  const size_t owner = root(value);
  const ir::NodeId producer = graph_.value(value).producer();
  if (producer != ir::kNoNode && ops::kItself.is(graph_.node(producer))) {
    const ir::ValueId input = *graph_.node(producer).operands()[0].get_if<ir::ValueId>();
    return Saved::How{Saved::As::Itself, input_.at(input)};
  }
  if (!visible_[owner]) return Saved::How{Saved::As::Value};
  if (is_kept_by_eager(owner)) return how_in_memory_of_input(value);
  if (read_[owner]) return how_in_memory_of_call(value);
  // Somebody else may write it, and eager would not mind.
  if (!is_dense(*graph_.value(value).tensor_type())) return std::nullopt;
  return Saved::How{Saved::As::Copy};
}

Saved::How Keeping::how_in_memory_of_input(ir::ValueId value) const {
  const ir::ValueId owner = memory(value);
  if (written_[root(value)]) {
    // If a result has the old data too, it is a copy: the backward keeps the same one.
    const auto result = returned_.find(value);
    return result == returned_.end() ? Saved::How{Saved::As::Copy} : result->second;
  }
  if (value != owner) return {Saved::As::Value};  // a view that somebody chose to keep
  const int64_t input = input_.at(owner);
  return {changes_geometry(input) ? Saved::As::InputAsFound : Saved::As::Input, input};
}

Saved::How Keeping::how_in_memory_of_call(ir::ValueId value) const {
  const ir::ValueId owner = memory(value);
  if (const auto data = new_data_.find(value); data != new_data_.end()) {
    // Eager keeps the input itself, and no second copy of it. So does the call if the input has the
    // strides that readers of the value expect.
    const int64_t input = data->second;
    const ir::ValueId id = graph_.inputs()[static_cast<size_t>(input)];
    if (!changes_geometry(input) &&
        *graph_.value(id).tensor_type() == *graph_.value(value).tensor_type())
      return {Saved::As::WrittenInput, input};
  }
  const auto data = memory_new_data_.find(owner);
  if (data != memory_new_data_.end() && !changes_geometry(data->second))
    return {Saved::As::DataOfInput, data->second};
  const auto handed_out = owner_.find(owner);
  const ir::NodeId producer = graph_.value(owner).producer();
  const bool is_constant = graph_.node(producer).kind() == ir::NodeKind::Constant;
  return handed_out == owner_.end() || is_constant ? Saved::How{Saved::As::Value}
                                                   : handed_out->second;
}

std::vector<KeptPrimal> kept_primals(const ir::Graph& joint, const ir::Signature& signature) {
  const std::vector<bool> read = ops::read_by_gradients(joint, ops::Draws::Count);
  std::vector<KeptPrimal> kept;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const ir::InputFacts& facts = signature.inputs[i];
    const bool is_read = read[i] || (facts.read_by_gradients && facts.requires_grad);
    kept.push_back({how_as_found(signature, i, is_read), is_read});
  }
  return kept;
}

}  // namespace tandem::partition
