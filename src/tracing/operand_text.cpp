#include "tracing/operand_text.h"

#include <ATen/FunctionalTensorWrapper.h>

#include <algorithm>
#include <sstream>

#include "tandem/ir/type.h"
#include "tracing/traced_tensor.h"

namespace tandem::tracing {

std::string op_text(const c10::OperatorHandle& op) {
  std::string text = op.operator_name().name;
  if (size_t at = text.find("::"); at != std::string::npos) text.replace(at, 2, ".");
  if (!op.operator_name().overload_name.empty()) text += "." + op.operator_name().overload_name;
  return text;
}

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

bool result_size_depends_on_data(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> operands) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::index") {
    auto indices = operands[1].toOptionalTensorVector();
    return std::any_of(indices.begin(), indices.end(), [](const std::optional<at::Tensor>& index) {
      return index && index->defined() &&
             (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
    });
  }
  if (name == "aten::repeat_interleave") return operands.back().isNone();
  return true;
}

}  // namespace tandem::tracing
