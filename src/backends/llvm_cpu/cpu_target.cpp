#include "backends/llvm_cpu/cpu_target.h"

#include "backends/llvm_cpu/wide_attention.h"
#include "loops/target/host_target.h"
#include "ops/own/product.h"

#include <algorithm>

namespace tandem::backends::llvm_cpu {
namespace {

/// A product of matrices, or of batches of them, in f32.
bool is_product(const ir::Graph& graph, const ir::Node& node, const loops::Target& target) {
  const c10::OperatorName& name = node.op().operator_name();
  if (!name.overload_name.empty() || (name.name != "aten::mm" && name.name != "aten::bmm"))
    return false;
  return std::ranges::all_of(node.operands(), [&](const ir::Operand& operand) {
    const auto* id = operand.get_if<ir::ValueId>();
    if (id == nullptr || *id == ir::kNoValue) return false;
    const ir::TypePtr& type = graph.value(*id).tensor_type();
    return type != nullptr && target.reads(*type) && type->dtype == c10::ScalarType::Float &&
           type->numel().value() != 0;
  });
}

class CpuTarget final : public loops::HostTarget {
 public:
  void adapt(Decompositions& table, Rounding rounding) const override {
    if (rounding == Rounding::fast) add_wide_attention(table);
  }

  /// oneDNN's products round in another way. On some processors they are faster than those of the
  /// library that libtorch calls.
  c10::OperatorHandle operator_for(const ir::Graph& graph, const ir::Node& node,
                                   Rounding rounding) const override {
    const bool faster = rounding == Rounding::fast && is_product(graph, node, *this);
    return faster ? ops::kProduct.handle() : node.op();
  }
};

}  // namespace

std::shared_ptr<const loops::Target> cpu_target() {
  static const auto* target = new auto(std::make_shared<const CpuTarget>());
  return *target;
}

}  // namespace tandem::backends::llvm_cpu
