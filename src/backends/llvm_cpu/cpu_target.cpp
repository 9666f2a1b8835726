#include "backends/llvm_cpu/cpu_target.h"

#include "backends/llvm_cpu/wide_attention.h"
#include "loops/target/host_target.h"
#include "ops/own/product.h"

#include <ATen/Parallel.h>

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

/// Whether a product is large enough for oneDNN to win: it needs half the time for each
/// multiplication, but some 10 us before the first of them. The other library does a million of
/// them in twice that time, on each thread. Guards compare the number of threads.
bool is_large(const ir::Graph& graph, const ir::Node& node) {
  constexpr int64_t kLeastPerThread = 1 << 20;
  const auto type = [&](size_t i) {
    return graph.value(*node.operands()[i].get_if<ir::ValueId>()).tensor_type();
  };
  const int64_t columns = type(1)->static_sizes().back();
  return type(0)->numel().value() * columns >= kLeastPerThread * at::get_num_threads();
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
    const bool faster =
        rounding == Rounding::fast && is_product(graph, node, *this) && is_large(graph, node);
    return faster ? ops::kProduct.handle() : node.op();
  }
};

}  // namespace

std::shared_ptr<const loops::Target> cpu_target() {
  static const auto* target = new auto(std::make_shared<const CpuTarget>());
  return *target;
}

}  // namespace tandem::backends::llvm_cpu
