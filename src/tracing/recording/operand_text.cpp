#include "tracing/recording/operand_text.h"

#include "tandem/ir/type.h"

#include <sstream>
#include <utility>

namespace tandem::tracing {

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  ir::TensorType type;
  type.dtype = tensor.scalar_type();
  type.device = tensor.device();
  type.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  type.strides.assign(tensor.strides().begin(), tensor.strides().end());
  return ir::to_string(type);
}

std::string operands_text(c10::ArrayRef<c10::IValue> operands) {
  std::ostringstream out;
  const char* separator = "";
  for (const c10::IValue& operand : operands) {
    out << std::exchange(separator, ", ");
    if (operand.isTensor()) {
      out << tensor_text(operand.toTensor());
    } else if (operand.isTensorList()) {
      out << "[" << operand.toTensorVector().size() << " tensors]";
    } else if (operand.isOptionalTensorList()) {
      const char* comma = "[";
      for (const std::optional<at::Tensor>& tensor : operand.toOptionalTensorVector()) {
        out << std::exchange(comma, ", ") << (tensor ? tensor_text(*tensor) : "none");
      }
      out << "]";
    } else if (operand.isNone()) {
      out << "none";
    } else {
      out << operand;
    }
  }
  return out.str();
}

}  // namespace tandem::tracing
