#include "signature/read_signature.h"

#include "base/error.h"
#include "signature/input_checks.h"
#include "signature/view_replays.h"
#include "tracing/operand_text.h"
#include "tracing/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>

namespace tandem::signature {
namespace {

namespace autograd = torch::autograd;
namespace functionalization = at::functionalization;
using tracing::StandIn;

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

/// A custom function's result keeps its own node even where it shares memory with an input.
bool made_by_custom_function(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  return node && node->name().find("CppNode") != std::string::npos;
}

ir::InputFacts input_facts(const tracing::Trace& trace, const StandIn& stand_in) {
  const at::Tensor& tensor = stand_in.tensor;
  auto* wrapper = functionalization::impl::unsafeGetFunctionalWrapper(tensor);
  const ir::Graph& graph = trace.recording().graph();

  ir::InputFacts facts;
  facts.role = graph.input_role(stand_in.input);
  facts.type = graph.value(stand_in.input).tensor_type();
  facts.requires_grad = stand_in.requires_grad;
  facts.is_leaf = stand_in.is_leaf;
  facts.closed_over = stand_in.closed_over && facts.role.role == ir::Role::UserInput;
  facts.version_delta = tracing::version_of(tensor) - stand_in.version;  // before any sync
  facts.data_written = wrapper->has_data_mutation();
  facts.written_in_grad_mode =
      facts.data_written && !wrapper->are_all_mutations_under_no_grad_or_inference_mode();
  facts.requires_grad_after = tensor.requires_grad();
  // The edge before and after tells what autograd saw; counters of no-grad and hidden writes do
  // not.
  facts.history_changed = facts.requires_grad_after && !tensor.is_leaf() &&
                          !(autograd::impl::gradient_edge(tensor) == stand_in.edge);
  const bool other_storage = wrapper->was_storage_changed() ||
                             stand_in.storage->_unsafe_get_target() != storage_of(tensor);
  facts.metadata_changed =
      other_storage ||
      (wrapper->has_metadata_mutation() &&
       (tensor.sizes() != stand_in.real.sizes() || tensor.strides() != stand_in.real.strides() ||
        tensor.storage_offset() != stand_in.real.storage_offset()));
  return facts;
}

/// Positions of inputs and outputs by identity and by functional storage.
struct Identities {
  std::unordered_map<const c10::TensorImpl*, int64_t> input_of_tensor;
  std::unordered_map<const c10::StorageImpl*, int64_t> input_of_storage;
  std::unordered_map<const c10::TensorImpl*, int64_t> output_of_tensor;
  std::unordered_map<const c10::StorageImpl*, int64_t> outputs_on_storage;
};

ir::OutputFacts output_facts(const tracing::Trace& trace, Identities& identities,
                             const at::Tensor& tensor, int64_t index) {
  ir::OutputFacts facts;
  if (!tensor.defined()) {
    facts.kind = ir::OutputKind::Undefined;
    return facts;
  }
  facts.requires_grad = tensor.requires_grad();
  facts.is_leaf = tensor.is_leaf();

  const auto [same, is_new] =
      identities.output_of_tensor.try_emplace(tensor.unsafeGetTensorImpl(), index);
  if (!is_new) {
    facts.kind = ir::OutputKind::SameAsOutput;
    facts.source = same->second;
    return facts;
  }
  if (auto it = identities.input_of_tensor.find(tensor.unsafeGetTensorImpl());
      it != identities.input_of_tensor.end()) {
    facts.kind = ir::OutputKind::IsInput;
    facts.source = it->second;
    return facts;
  }
  if (auto it = identities.input_of_storage.find(storage_of(tensor));
      it != identities.input_of_storage.end()) {
    if (facts.requires_grad && made_by_custom_function(tensor)) {
      TANDEM_UNSUPPORTED("signature", "output ", index,
                         " is a view of an input made by a custom autograd function",
                         base::detail_line("at", trace.line_of(tensor)),
                         "\n  value:  ", tracing::tensor_text(tensor),
                         "\n  remedy: return a copy of it (clone())");
    }
    facts.kind = ir::OutputKind::AliasOfInput;
    facts.source = it->second;
    return facts;
  }
  if (identities.outputs_on_storage[storage_of(tensor)] > 1) {
    TANDEM_UNSUPPORTED("signature", "output ", index,
                       " shares memory with another output without being a view of an input",
                       base::detail_line("at", trace.line_of(tensor)),
                       "\n  value:  ", tracing::tensor_text(tensor),
                       "\n  remedy: return a copy of it (clone()), or one of the two only");
  }
  if (facts.requires_grad && facts.is_leaf) {
    TANDEM_UNSUPPORTED(
        "signature", "output ", index,
        " was made inside the function and became a leaf by requires_grad_()",
        base::detail_line("at", trace.line_of(tensor)),
        "\n  value:  ", tracing::tensor_text(tensor),
        "\n  remedy: call requires_grad_() on the result outside the compiled function");
  }
  return facts;
}

}  // namespace

std::vector<size_t> calling_order(const tracing::Trace& trace) {
  std::vector<size_t> order;
  const size_t count = trace.stand_ins().size();
  for (size_t i = trace.argument_count(); i < count; ++i) order.push_back(i);
  for (size_t i = 0; i < trace.argument_count(); ++i) order.push_back(i);
  return order;
}

ir::Signature read_signature(tracing::Trace& trace) {
  const std::vector<size_t> order = calling_order(trace);
  const auto& stand_ins = trace.stand_ins();

  ir::Signature signature;
  signature.lifted_count = static_cast<int64_t>(stand_ins.size() - trace.argument_count());
  Identities identities;
  std::vector<int64_t> position(stand_ins.size());
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int64_t>(i);
  for (size_t i = 0; i < order.size(); ++i) {
    const StandIn& stand_in = stand_ins[order[i]];
    ir::InputFacts facts = input_facts(trace, stand_in);
    if (stand_in.duplicate_of >= 0) facts.duplicate_of = position[stand_in.duplicate_of];
    signature.inputs.push_back(std::move(facts));
    if (stand_in.duplicate_of >= 0) continue;
    identities.input_of_tensor.emplace(stand_in.tensor.unsafeGetTensorImpl(), i);
    identities.input_of_storage.emplace(storage_of(stand_in.tensor), i);
  }
  for (ir::EqualityFacts facts : trace.equalities()) {
    facts.a = position[static_cast<size_t>(facts.a)];
    facts.b = position[static_cast<size_t>(facts.b)];
    signature.equalities.push_back(facts);
  }
  check_inputs(trace, signature, order);

  const auto& results = trace.results().tensors;
  std::vector<ir::ValueId> values;
  for (const at::Tensor& result : results) {
    // Sync all before any is judged: a pending write may still change sizes and histories.
    values.push_back(result.defined() ? tracing::current_value(result) : ir::kNoValue);
  }
  std::unordered_map<const c10::TensorImpl*, bool> seen;
  for (const at::Tensor& result : results) {
    if (result.defined() && seen.emplace(result.unsafeGetTensorImpl(), true).second) {
      ++identities.outputs_on_storage[storage_of(result)];
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    ir::OutputFacts facts = output_facts(trace, identities, results[i], static_cast<int64_t>(i));
    if (values[i] != ir::kNoValue)
      facts.type = trace.recording().graph().value(values[i]).tensor_type();
    signature.outputs.push_back(std::move(facts));
  }
  add_view_replays(trace, order, values, signature);
  return signature;
}

}  // namespace tandem::signature
