#include "loops/host/fast_products.h"

#include "ops/own/product.h"

namespace tandem::loops {

c10::OperatorHandle faster_operator(const Call& call) {
  const c10::OperatorHandle& op = call.node().op();
  const c10::OperatorName& name = op.operator_name();
  if (!name.overload_name.empty() || (name.name != "aten::mm" && name.name != "aten::bmm"))
    return op;
  for (size_t i : {0, 1}) {
    const ir::TensorType* type = call.tensor(i);
    if (type == nullptr || type->dtype != c10::ScalarType::Float || !type->device.is_cpu() ||
        type->layout != c10::kStrided || type->numel().value() == 0)
      return op;
  }
  return ops::kProduct.handle();
}

}  // namespace tandem::loops
