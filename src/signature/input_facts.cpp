#include "signature/input_facts.h"

#include "signature/storage_of.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::signature {
namespace {

namespace autograd = torch::autograd;
namespace functionalization = at::functionalization;
using tracing::StandIn;

/// Whether autograd saw a write: the histories before and after show it, the counters do not, since
/// they count writes without grad, too.
bool history_changed(const at::Tensor& tensor, const autograd::Edge& before) {
  return tensor.requires_grad() && !tensor.is_leaf() &&
         !(autograd::impl::gradient_edge(tensor) == before);
}

ir::StorageChange storage_change(const StandIn& stand_in, at::FunctionalTensorWrapper& wrapper) {
  if (wrapper.was_storage_changed()) return ir::StorageChange::Replaced;
  if (stand_in.storage->_unsafe_get_target() != storage_of(stand_in.tensor))
    return ir::StorageChange::Grown;
  // An `out=` op resizes what it is given, and functionalization says nothing of it.
  if (!wrapper.has_metadata_mutation() && stand_in.tensor.sizes() != stand_in.real.sizes())
    return ir::StorageChange::Grown;
  // No op says so: programs resize the storage itself.
  return stand_in.tensor.storage().nbytes() == stand_in.storage_bytes ? ir::StorageChange::None
                                                                      : ir::StorageChange::Resized;
}

/// The stand-in whose memory a set_() gave to this one, or -1.
int64_t owner_of_memory(const tracing::Trace& trace, const StandIn& stand_in) {
  for (size_t i = 0; i < trace.stand_ins().size(); ++i) {
    const StandIn& other = trace.stand_ins()[i];
    if (other.tensor.is_same(stand_in.tensor)) continue;
    if (storage_of(other.tensor) == storage_of(stand_in.tensor)) return static_cast<int64_t>(i);
  }
  return -1;
}

bool has_geometry_of(const at::Tensor& tensor, const at::Tensor& real) {
  return tensor.sizes() == real.sizes() && tensor.strides() == real.strides() &&
         tensor.storage_offset() == real.storage_offset();
}

}  // namespace

ir::InputFacts input_facts(const tracing::Trace& trace, const StandIn& stand_in) {
  const at::Tensor& tensor = stand_in.tensor;
  auto* wrapper = functionalization::impl::unsafeGetFunctionalWrapper(tensor);
  const ir::Graph& graph = trace.recording().graph();

  ir::InputFacts facts;
  facts.role = graph.input_role(stand_in.input);
  facts.type = graph.value(stand_in.input).tensor_type();
  facts.offset_after = stand_in.real.storage_offset();
  facts.requires_grad = stand_in.requires_grad;
  facts.is_leaf = stand_in.is_leaf;
  facts.duplicate_of = stand_in.duplicate_of;
  facts.counter_of = stand_in.counter_of;
  facts.closed_over = stand_in.closed_over && facts.role.role == ir::Role::UserInput;
  facts.history_only = stand_in.history_only;
  facts.version_delta = tracing::version_of(tensor) - stand_in.version;  // before any sync
  facts.storage = storage_change(stand_in, *wrapper);
  facts.data_written = wrapper->has_data_mutation();
  facts.requires_grad_after = tensor.requires_grad();
  facts.is_leaf_after = tensor.is_leaf();
  facts.history_changed = history_changed(tensor, tracing::unwritten_history(stand_in));
  facts.histories = histories_of(stand_in) + facts.history_changed;
  switch (facts.storage) {
    case ir::StorageChange::Replaced:
      facts.set_to = owner_of_memory(trace, stand_in);
      // Another input's memory is written through that input, if at all.
      facts.data_written = facts.set_to < 0;
      break;
    case ir::StorageChange::Grown:
      facts.data_written = true;  // the new memory knows of no earlier write
      break;
    case ir::StorageChange::Resized:
      facts.bytes_after = static_cast<int64_t>(tensor.storage().nbytes());
      // What was written before is gone with the memory.
      if (tensor.storage().nbytes() < stand_in.storage_bytes) facts.data_written = false;
      break;
    case ir::StorageChange::None:
      break;
  }
  // An in-place view that changes no size (t_ of a vector) still is one for autograd.
  facts.metadata_changed =
      (wrapper->has_metadata_mutation() || facts.storage != ir::StorageChange::None) &&
      (!has_geometry_of(tensor, stand_in.real) || (facts.history_changed && !facts.data_written));
  return facts;
}

int64_t histories_of(const StandIn& stand_in) {
  return std::max<int64_t>(1, std::ssize(stand_in.histories));
}

bool is_reshaped(const StandIn& stand_in) {
  return functionalization::impl::unsafeGetFunctionalWrapper(stand_in.tensor)
      ->has_metadata_mutation();
}

bool is_written(const tracing::Group& group) {
  return functionalization::impl::unsafeGetFunctionalWrapper(group.tensor)->has_data_mutation();
}

ir::GroupFacts group_facts(const tracing::Trace& trace, const tracing::Group& group) {
  ir::GroupFacts facts;
  facts.type = trace.recording().graph().value(group.input).tensor_type();
  facts.offset = group.real.storage_offset();
  facts.is_root = group.is_root;
  facts.requires_grad = group.requires_grad;
  facts.is_leaf = group.is_leaf;
  facts.history_changed = history_changed(group.tensor, group.edge);
  return facts;
}

}  // namespace tandem::signature
