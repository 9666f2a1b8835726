#include "signature/output_facts.h"

#include "base/error.h"
#include "libtorch/node_names.h"
#include "ops/op_table.h"
#include "signature/storage_of.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tandem::signature {
namespace {

namespace autograd = torch::autograd;
namespace functionalization = at::functionalization;
using tracing::StandIn;

at::FunctionalTensorWrapper& wrapper_of(const at::Tensor& tensor) {
  return *functionalization::impl::unsafeGetFunctionalWrapper(tensor);
}

/// A custom function's result keeps its own node even where it shares memory with an input, and so
/// do views of it. `until`: the node of the tensor whose memory it is.
bool made_by_custom_function(const at::Tensor& tensor, const autograd::Node* until = nullptr) {
  const autograd::Node* node = tensor.grad_fn().get();
  while (node != nullptr && node != until) {
    if (libtorch::is_custom_function(*node)) return true;
    if (!tensor.is_view() || node->num_outputs() != 1) return false;
    node = node->next_edge(0).function.get();
  }
  return false;
}

/// Eager refuses to write it as the view of a custom function; what split() and its kin take of
/// such a view it refuses as one of several views.
bool is_custom_view(const at::Tensor& tensor) {
  return !tensor.is_view() || autograd::impl::get_view_autograd_meta(tensor)->get_creation_meta() ==
                                  autograd::CreationMeta::IN_CUSTOM_FUNCTION;
}

/// Whether requires_grad_() has made it a leaf. A view made without grad of a tensor that requires
/// grad is a leaf too, but was not made one.
bool is_made_leaf(const at::Tensor& tensor) {
  const auto* meta = autograd::impl::get_autograd_meta(tensor);
  return meta && meta->requires_grad_ && tensor.is_leaf();
}

/// The value of the whole memory that a tensor shows, pending writes applied.
ir::ValueId base_value(const at::Tensor& tensor) {
  auto* storage = static_cast<functionalization::FunctionalStorageImpl*>(storage_of(tensor));
  return tracing::current_value(storage->base());
}

/// What autograd takes a tensor for a view of; the tensor itself if it is none.
at::Tensor root_of(const at::Tensor& tensor) {
  return tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
}

class Reader {
 public:
  Reader(const tracing::Trace& trace, const std::vector<const StandIn*>& inputs,
         ir::Signature& signature)
      : trace_(trace), graph_(trace.recording().graph()), signature_(signature) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (signature.inputs[i].duplicate_of >= 0) continue;
      input_of_tensor_.emplace(inputs[i]->tensor.unsafeGetTensorImpl(), i);
      input_of_storage_.emplace(storage_of(inputs[i]->tensor), i);
      history_of_input_.emplace(i, inputs[i]->tensor.grad_fn().get());
    }
  }

  std::vector<Base> run() && {
    const auto& results = trace_.results().tensors;
    std::vector<ir::ValueId> values;
    std::unordered_set<const c10::TensorImpl*> seen;
    for (const at::Tensor& result : results) {
      // Sync all before any is judged: a pending write may still change sizes and histories.
      values.push_back(result.defined() ? tracing::current_value(result) : ir::kNoValue);
      if (!result.defined() || !seen.insert(result.unsafeGetTensorImpl()).second) continue;
      index_of_result_.emplace(result.unsafeGetTensorImpl(), values.size() - 1);
      ++results_on_storage_[storage_of(result)];
      // A base that was transposed in place still is the base; a detached copy of one is not.
      if (!result.is_view() &&
          (wrapper_of(result).view_metas().empty() || wrapper_of(result).has_metadata_mutation() ||
           is_secret_view(result))) {
        whole_of_storage_.emplace(storage_of(result), result);
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      signature_.outputs.push_back(facts_of(results[i], static_cast<int64_t>(i)));
      if (values[i] != ir::kNoValue)
        signature_.outputs.back().type = graph_.value(values[i]).tensor_type();
    }
    return std::move(bases_);
  }

 private:
  ir::OutputFacts facts_of(const at::Tensor& tensor, int64_t index) {
    ir::OutputFacts facts;
    if (!tensor.defined()) {
      facts.kind = ir::OutputKind::Undefined;
      return facts;
    }
    facts.requires_grad = tensor.requires_grad();
    facts.is_leaf = tensor.is_leaf();
    const auto [same, is_new] = output_of_tensor_.try_emplace(tensor.unsafeGetTensorImpl(), index);
    if (!is_new) {
      facts.kind = ir::OutputKind::SameAsOutput;
      facts.source = same->second;
      return facts;
    }
    if (auto it = input_of_tensor_.find(tensor.unsafeGetTensorImpl());
        it != input_of_tensor_.end()) {
      facts.kind = ir::OutputKind::IsInput;
      facts.source = it->second;
      return facts;
    }
    refuse_lost_history(tensor, index);
    facts.made_leaf = is_made_leaf(tensor);
    if (auto it = input_of_storage_.find(storage_of(tensor)); it != input_of_storage_.end()) {
      facts.kind = ir::OutputKind::AliasOfInput;
      facts.source = it->second;
      if (place_on_own_root(tensor, index, facts)) return facts;
      const bool custom =
          facts.requires_grad && made_by_custom_function(tensor, history_of_input_[it->second]);
      facts.of_custom_function = custom && is_custom_view(tensor);
      // A detached alias that was written by a differentiable op: its history is not the input's.
      facts.own_history = custom || (facts.requires_grad && !facts.is_leaf && !tensor.is_view());
      return facts;
    }
    if (tensor.is_inference()) {
      TANDEM_UNSUPPORTED("signature", "output ", index,
                         " is an inference tensor: the function made it in an inference region",
                         base::detail_line("at", trace_.line_of(tensor)),
                         "\n  value:  ", tracing::tensor_text(tensor),
                         "\n  remedy: use NoGradGuard inside the function, or call it in inference "
                         "mode as a whole");
    }
    if (results_on_storage_[storage_of(tensor)] > 1 || tensor.is_view() ||
        wrapper_of(tensor).is_multi_output_view()) {
      place_on_base(tensor, index, facts);
    }
    return facts;
  }

  /// A view of a tensor on an input's memory that autograd does not know to be related to the
  /// input: the function made it a leaf, or detached it and wrote it by a differentiable op.
  bool place_on_own_root(const at::Tensor& tensor, int64_t index, ir::OutputFacts& facts) {
    if (!tensor.is_view() || !facts.requires_grad || facts.made_leaf) return false;
    const at::Tensor root(tensor._base());
    const bool came_in = input_of_tensor_.contains(root.unsafeGetTensorImpl()) ||
                         std::ranges::any_of(trace_.groups(), [&](const tracing::Group& group) {
                           return group.tensor.is_same(root);
                         });
    if (!root.requires_grad() || came_in) return false;
    if (made_by_custom_function(tensor)) return false;
    const auto output = index_of_result_.find(root.unsafeGetTensorImpl());
    if (output == index_of_result_.end()) refuse_root(root, index);
    facts.kind = ir::OutputKind::AliasOfOutput;
    facts.source = output->second;
    return true;
  }

  /// Memory that the call made and that is not simply this result's own.
  void place_on_base(const at::Tensor& tensor, int64_t index, ir::OutputFacts& facts) {
    const at::Tensor root = root_of(tensor);
    const bool secret = storage_of(root) == storage_of(tensor) && is_secret_view(root);
    const ir::ValueId value = secret ? tracing::current_value(root) : own_memory(tensor);
    const auto [it, is_new] =
        base_of_storage_.try_emplace(storage_of(tensor), signature_.bases.size());
    if (is_new) {
      signature_.bases.push_back({.type = graph_.value(value).tensor_type()});
      bases_.push_back({.tensor = {}, .value = value});
    }
    ir::BaseFacts& base = signature_.bases[it->second];
    const auto whole = whole_of_storage_.find(storage_of(tensor));
    if (whole != whole_of_storage_.end() && whole->second.is_same(tensor)) {
      base.output = index;
      base.reshaped = is_reshaped(whole);
      base.requires_grad = facts.requires_grad;
      return;
    }
    facts.kind = ir::OutputKind::AliasOfBase;
    facts.source = static_cast<int64_t>(it->second);
    const bool custom =
        facts.requires_grad &&
        made_by_custom_function(tensor, tensor.is_view() ? root.grad_fn().get() : nullptr);
    facts.of_custom_function = custom && is_custom_view(tensor);
    // No view op leads from a base that was reshaped to views which were taken of it before, nor
    // from any to what was detached and then written by a differentiable op.
    facts.own_history = custom || ((is_reshaped(whole) || !tensor.is_view()) &&
                                   facts.requires_grad && !facts.is_leaf);
    if (!tensor.is_view()) return;
    if (const auto output = index_of_result_.find(root.unsafeGetTensorImpl());
        output != index_of_result_.end() && root.is_leaf() && root.requires_grad()) {
      facts.kind = ir::OutputKind::AliasOfOutput;
      facts.source = output->second;
      return;
    }
    // A base that is returned carries its gradients itself.
    if (root.requires_grad() &&
        (whole == whole_of_storage_.end() || !whole->second.is_same(root))) {
      note_root(root, index, base, bases_[it->second]);
    }
  }

  /// What reshape() has copied, and a product of more than two dimensions, is an _unsafe_view:
  /// functionalization takes it for a view of the copy, autograd does not. Its gradients come
  /// together there, and what is detached of it counts versions together with it.
  bool is_secret_view(const at::Tensor& tensor) const {
    if (tensor.is_view()) return false;
    const ir::ValueId value = tracing::current_value(tensor);
    return value != ir::kNoValue && is_secret_view(value, base_value(tensor));
  }
  bool is_secret_view(ir::ValueId value, ir::ValueId of) const {
    if (graph_.value(value).is_input()) return false;
    const ir::Node& node = graph_.node(graph_.value(value).producer());
    if (node.kind() != ir::NodeKind::Op || node.op().operator_name().name != "aten::_unsafe_view")
      return false;
    const auto* source = node.operands()[0].get_if<ir::ValueId>();
    return source != nullptr && *source == of;
  }

  /// The memory that a tensor shows, as autograd knows it: behind a secret view nobody sees it.
  ir::ValueId own_memory(const at::Tensor& tensor) const {
    const ir::ValueId base = base_value(tensor);
    for (ir::ValueId value = tracing::current_value(tensor);
         value != base && !graph_.value(value).is_input();) {
      if (is_secret_view(value, base)) return value;
      const ir::Node& node = graph_.node(graph_.value(value).producer());
      const auto* source =
          node.operands().empty() ? nullptr : node.operands()[0].get_if<ir::ValueId>();
      if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view || source == nullptr)
        break;
      value = *source;
    }
    return base;
  }

  using Wholes = std::unordered_map<const c10::StorageImpl*, at::Tensor>;
  bool is_reshaped(Wholes::const_iterator whole) const {
    return whole != whole_of_storage_.end() && !wrapper_of(whole->second).view_metas().empty() &&
           wrapper_of(whole->second).has_metadata_mutation();
  }

  /// What autograd knows the result to be a view of receives the gradients of all its views.
  void note_root(const at::Tensor& root, int64_t index, ir::BaseFacts& facts, Base& base) {
    if (root.is_leaf() || tracing::current_value(root) != base.value ||
        (base.tensor.defined() && !base.tensor.is_same(root))) {
      refuse_root(root, index);
    }
    base.tensor = root;
    facts.requires_grad = true;
  }

  /// A view in grad mode of a view that was made without grad says that it requires grad, and no
  /// gradient gets through it. Taken again, in one mode, it would let gradients through.
  void refuse_lost_history(const at::Tensor& tensor, int64_t index) const {
    if (!tensor.is_view() || !tensor.requires_grad() || tensor.is_leaf()) return;
    for (const autograd::Node* node = tensor.grad_fn().get(); node && node->num_outputs() == 1;) {
      const autograd::Edge& next = node->next_edge(0);
      if (!next.is_valid()) {
        TANDEM_UNSUPPORTED("signature", "output ", index,
                           " is a view, taken in grad mode, of a view that was taken without",
                           base::detail_line("at", trace_.line_of(tensor)),
                           "\n  value:  ", tracing::tensor_text(tensor),
                           "\n  remedy: take both views in the same mode");
      }
      node = next.function.get();
    }
  }

  [[noreturn]] void refuse_root(const at::Tensor& root, int64_t index) const {
    TANDEM_UNSUPPORTED("signature", "output ", index,
                       " is a view of a tensor that the function made a leaf, or parted from "
                       "other results by detach(), and does not return",
                       base::detail_line("at", trace_.line_of(root)),
                       "\n  value:  ", tracing::tensor_text(root),
                       "\n  remedy: return that tensor, or a copy of the view (clone())");
  }

  const tracing::Trace& trace_;
  const ir::Graph& graph_;
  ir::Signature& signature_;
  std::vector<Base> bases_;
  std::unordered_map<const c10::TensorImpl*, int64_t> input_of_tensor_;
  std::unordered_map<const c10::StorageImpl*, int64_t> input_of_storage_;
  std::unordered_map<int64_t, const autograd::Node*> history_of_input_;   // as the call leaves it
  std::unordered_map<const c10::TensorImpl*, int64_t> output_of_tensor_;  // so far
  std::unordered_map<const c10::TensorImpl*, int64_t> index_of_result_;   // of all
  std::unordered_map<const c10::StorageImpl*, int64_t> results_on_storage_;
  Wholes whole_of_storage_;  // the result that is no view
  std::unordered_map<const c10::StorageImpl*, size_t> base_of_storage_;
};

}  // namespace

std::vector<Base> add_output_facts(const tracing::Trace& trace,
                                   const std::vector<const StandIn*>& inputs,
                                   ir::Signature& signature) {
  return Reader(trace, inputs, signature).run();
}

}  // namespace tandem::signature
