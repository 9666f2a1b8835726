#include "passes/fold_constants.h"

#include "ir/ivalue.h"
#include "ops/op_table.h"
#include "passes/facts/fill_value.h"
#include "passes/facts/memory_facts.h"
#include "tandem/ir/graph.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::passes {
namespace {

constexpr int64_t kMostBytes = int64_t{16} << 10;       // of one folded tensor
constexpr int64_t kMostBytesInAll = int64_t{16} << 20;  // a compile must not eat memory
constexpr int64_t kMostFolded = 64;  // a factory of more is cheaper to call than to keep

// Pointwise ops that give an element the same bits alone as in a vector. What libm or a fused
// multiply-add may round in another way is not among them.
constexpr std::array<std::string_view, 19> kSameAnywhere = {
    "aten::_to_copy",    "aten::add",        "aten::bitwise_and", "aten::bitwise_not",
    "aten::bitwise_or",  "aten::clone",      "aten::div",         "aten::eq",
    "aten::ge",          "aten::gt",         "aten::le",          "aten::logical_and",
    "aten::logical_not", "aten::logical_or", "aten::lt",          "aten::mul",
    "aten::ne",          "aten::neg",        "aten::sub",
};

bool is_small(const ir::Type& type) {
  return type.tensor != nullptr && type.tensor->layout == c10::kStrided &&
         type.tensor->device.is_cpu() && type.tensor->is_static() &&
         type.tensor->bytes() <= kMostBytes;
}

bool is_aten(const ir::Node& node) { return node.op().operator_name().name.starts_with("aten::"); }

/// Factories without a value, whose elements are whatever memory holds.
bool leaves_memory_as_it_is(const ir::Node& node) {
  return node.op().operator_name().name.find("empty") != std::string::npos;
}

/// Looks at sizes and dtype of its operand only.
bool ignores_data(const ir::Node& node) {
  const std::string_view name = node.op().operator_name().name;
  return (name.ends_with("_like") && is_fill(node)) || name.starts_with("aten::new_");
}

ir::Operand operand_of(const c10::Scalar& number) {
  if (number.isBoolean()) return number.toBool();
  if (number.isIntegral(false)) return ir::Size(number.toLong());
  return number.toDouble();
}

class Folder {
 public:
  explicit Folder(ir::Graph& graph) : graph_(graph), memory_(graph), tangents_(graph) {}

  PassResult run() {
    graph_.for_each_node([&](ir::Node& node) {
      if (node.kind() == ir::NodeKind::Constant) {
        const at::Tensor& constant = node.constant();
        if (constant.device().is_cpu() && constant.layout() == c10::kStrided &&
            static_cast<int64_t>(constant.nbytes()) <= kMostBytes) {
          known_.emplace(node.results()[0], constant);
        }
      } else if (node.kind() == ir::NodeKind::Op && may_fold(node)) {
        if (!fold(node)) fold_fill(node);
      }
    });
    return result_;
  }

 private:
  bool may_fold(const ir::Node& node) const {
    const ops::OpInfo& info = ops::info(node.op());
    if (!info.mergeable() || info.reads_data || info.marked || !is_aten(node)) return false;
    if (node.results().empty() || leaves_memory_as_it_is(node)) return false;
    return std::ranges::all_of(node.results(), [&](ir::ValueId id) {
      return id != ir::kNoValue && graph_.value(id).tensor_type() != nullptr &&
             !tangents_.depends(id);
    });
  }

  // ---- small tensors, by running the op ----

  bool fold(ir::Node& node) {
    if (budget_ <= 0 || !std::ranges::all_of(node.results(), [&](ir::ValueId id) {
          return is_small(graph_.value(id).type());
        })) {
      return false;
    }
    const std::optional<std::vector<at::Tensor>> results = run_node(node);
    if (!results) return false;
    bool pinned = false;
    for (size_t i = 0; i < results->size(); ++i) {
      known_.insert_or_assign(node.results()[i], (*results)[i]);
      budget_ -= static_cast<int64_t>((*results)[i].nbytes());
      pinned = pinned || memory_.is_pinned(node.results()[i]);
    }
    if (!pinned && is_worth_keeping(node, *results)) become_constants(node, *results);
    return true;
  }

  /// Nothing if an operand is not known, or if the kernel does not give what the graph says.
  std::optional<std::vector<at::Tensor>> run_node(const ir::Node& node) {
    torch::jit::Stack stack;
    bool known = true;
    const bool sizes_only = ignores_data(node);
    const auto tensor_of = [&](ir::ValueId id) -> at::Tensor {
      if (const auto found = known_.find(id); found != known_.end()) return found->second;
      const ir::Type& type = graph_.value(id).type();
      if (sizes_only && is_small(type)) {
        return at::empty_strided(type.tensor->static_sizes(), type.tensor->static_strides(),
                                 at::dtype(type.tensor->dtype));
      }
      known = false;
      return {};
    };
    const auto& arguments = node.op().schema().arguments();
    // Asked first: an operand that is not known is the rule, and to_ivalue is not free.
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        known = known && (known_.contains(id) || (sizes_only && is_small(graph_.value(id).type())));
      });
      if (!known) return std::nullopt;
    }
    std::vector<at::Tensor> results;
    try {
      for (size_t i = 0; i < node.operands().size(); ++i) {
        stack.push_back(
            ir::to_ivalue(graph_, node.operands()[i], arguments[i].real_type(), tensor_of));
      }
      // As the eager backend runs it.
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
      node.op().callBoxed(stack);
    } catch (const c10::Error&) {
      return std::nullopt;  // it raises in the call, as in eager
    }
    for (const c10::IValue& value : stack) {
      if (value.isTensor()) {
        results.push_back(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
      } else {
        return std::nullopt;
      }
    }
    if (results.size() != node.results().size()) return std::nullopt;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!has_type(results[i], *graph_.value(node.results()[i]).tensor_type()))
        return std::nullopt;
    }
    return results;
  }

  static bool has_type(const at::Tensor& tensor, const ir::TensorType& type) {
    return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == c10::kStrided &&
           tensor.scalar_type() == type.dtype && tensor.sizes() == type.static_sizes() &&
           tensor.strides() == type.static_strides() && !tensor.is_conj() && !tensor.is_neg() &&
           !tensor._is_zerotensor();  // zeros without memory, of autograd's own
  }

  static bool is_worth_keeping(const ir::Node& node, const std::vector<at::Tensor>& results) {
    return std::ranges::all_of(results, [&](const at::Tensor& tensor) {
      // A view of a constant costs nothing and a plain fill next to nothing, so only small ones are
      // kept. An empty tensor has nothing to keep.
      const bool is_cheap = ops::info(node.op()).is_view || is_fill(node);
      return tensor.is_contiguous() && tensor.numel() > 0 &&
             (!is_cheap || tensor.numel() <= kMostFolded);
    });
  }

  void become_constants(ir::Node& node, const std::vector<at::Tensor>& results) {
    graph_.set_insert_point(node.id());
    std::vector<std::pair<ir::ValueId, std::string>> names;
    for (size_t i = 0; i < results.size(); ++i) {
      const ir::ValueId old = node.results()[i];
      // A constant outlives what it was computed from: no view of it.
      const at::Tensor data = ops::info(node.op()).is_view ? results[i].clone() : results[i];
      ir::Node& folded = graph_.add_constant(data);
      graph_.set_phase(folded, node.phase());
      const ir::ValueId constant = folded.results()[0];
      known_.insert_or_assign(constant, data);
      graph_.replace_all_uses(old, constant);
      names.emplace_back(constant, graph_.value(old).name());
    }
    graph_.set_insert_point(ir::kNoNode);
    graph_.erase(node);
    for (auto& [id, name] : names) graph_.set_name(id, std::move(name));
    ++result_.changes;
  }

  // ---- large tensors that hold one number ----

  void fold_fill(ir::Node& node) {
    if (node.results().size() != 1) return;
    const ir::ValueId result = node.results()[0];
    const ir::TensorType& type = *graph_.value(result).tensor_type();
    if (is_fill(node) || ops::info(node.op()).is_view || !type.is_contiguous() ||
        !type.is_static() || type.numel() == ir::Size(0) || memory_.is_pinned(result)) {
      return;
    }
    const std::optional<c10::Scalar> number = fill_of(node);
    if (!number) return;
    static const c10::OperatorHandle full =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::full", "");
    graph_.set_insert_point(node.id());
    const ir::ValueId filled =
        graph_
            .add_op({.op = full,
                     .operands = {type.sizes, operand_of(*number), type.dtype, type.layout,
                                  type.device, ir::Operand{}},
                     .results = {graph_.value(result).type()},
                     .phase = node.phase(),
                     .location = node.location()})
            .results()[0];
    graph_.set_insert_point(ir::kNoNode);
    graph_.replace_all_uses(result, filled);
    const std::string name = graph_.value(result).name();
    graph_.erase(node);
    graph_.set_name(filled, name);
    ++result_.changes;
  }

  /// The op on single elements in place of the filled operands.
  std::optional<c10::Scalar> fill_of(const ir::Node& node) {
    const ir::TensorType& type = *graph_.value(node.results()[0]).tensor_type();
    const std::string_view name = node.op().operator_name().name;
    if (std::ranges::find(kSameAnywhere, name) == kSameAnywhere.end()) return std::nullopt;
    if (node.op().operator_name().overload_name.ends_with("_mode")) return std::nullopt;
    switch (type.dtype) {
      case at::kFloat:
      case at::kDouble:
      case at::kHalf:
      case at::kBFloat16:
      case at::kLong:
      case at::kInt:
      case at::kShort:
      case at::kChar:
      case at::kBool:
        break;
      default:
        return std::nullopt;
    }
    torch::jit::Stack stack;
    const auto& arguments = node.op().schema().arguments();
    for (size_t i = 0; i < node.operands().size(); ++i) {
      const ir::Operand& operand = node.operands()[i];
      if (arguments[i].name() == "alpha") {
        const auto alpha = number_in(operand);
        if (!alpha || !alpha->isIntegral(false) || alpha->toLong() != 1) return std::nullopt;
      }
      if (arguments[i].name() == "memory_format" || operand.get_if<ir::Operand::Values>()) {
        if (!operand.is_none()) return std::nullopt;
      }
      const auto* id = operand.get_if<ir::ValueId>();
      if (id == nullptr) {
        stack.push_back(ir::to_ivalue(graph_, operand, arguments[i].real_type(),
                                      [](ir::ValueId) { return at::Tensor(); }));
        continue;
      }
      if (*id == ir::kNoValue) return std::nullopt;
      const auto number = fill_value(graph_, *id);
      if (!number) return std::nullopt;
      const ir::TensorType& operand_type = *graph_.value(*id).tensor_type();
      // Tensors without dimensions give way in promotion, so this one has a dimension if the
      // operand has any.
      stack.emplace_back(
          at::full(operand_type.rank() == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{1},
                   *number, at::dtype(operand_type.dtype)));
    }
    try {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
      node.op().callBoxed(stack);
    } catch (const c10::Error&) {
      return std::nullopt;
    }
    if (stack.size() != 1 || !stack[0].isTensor()) return std::nullopt;
    const at::Tensor& one = stack[0].toTensor();
    if (one.scalar_type() != type.dtype || one.numel() != 1) return std::nullopt;
    return one.item();
  }

  ir::Graph& graph_;
  const MemoryFacts memory_;
  const TangentUse tangents_;
  std::unordered_map<ir::ValueId, at::Tensor> known_;
  int64_t budget_ = kMostBytesInAll;
  PassResult result_;
};

}  // namespace

PassResult fold_constants(ir::Graph& graph) { return Folder(graph).run(); }

}  // namespace tandem::passes
