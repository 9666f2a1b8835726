#include "loops/rules/call.h"

#include "base/error.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

namespace tandem::loops {

const ir::TensorType* Call::tensor(size_t i) const {
  const ir::ValueId id = value(i);
  return id == ir::kNoValue ? nullptr : graph_.value(id).tensor_type().get();
}

ir::ValueId Call::value(size_t i) const {
  const auto* id = node_.operands()[i].get_if<ir::ValueId>();
  return id == nullptr ? ir::kNoValue : *id;
}

const std::vector<ir::ValueId>* Call::values(size_t i) const {
  return node_.operands()[i].get_if<ir::Operand::Values>();
}

std::optional<Number> Call::number(size_t i) const {
  const ir::Operand& operand = node_.operands()[i];
  if (const auto* flag = operand.get_if<bool>()) return Number{Number::Kind::Bool, *flag, 0};
  if (const auto* number = operand.get_if<double>()) return Number::of(*number);
  if (const auto* size = operand.get_if<ir::Size>(); size && size->is_constant())
    return Number::of(size->value());
  return std::nullopt;
}

std::optional<int64_t> Call::integer(size_t i) const {
  const auto* size = node_.operands()[i].get_if<ir::Size>();
  return size == nullptr ? std::nullopt : size->maybe_value();
}

std::optional<std::vector<int64_t>> Call::integers(size_t i) const {
  const auto* sizes = node_.operands()[i].get_if<ir::Operand::Sizes>();
  if (sizes == nullptr) return std::nullopt;
  std::vector<int64_t> out;
  for (const ir::Size& size : *sizes) {
    if (!size.is_constant()) return std::nullopt;
    out.push_back(size.value());
  }
  return out;
}

std::string Call::text(size_t i) const {
  const auto* text = node_.operands()[i].get_if<std::string>();
  return text == nullptr ? std::string() : *text;
}

const ir::TensorType& Call::result(size_t i) const {
  const ir::ValueId id = node_.results()[i];
  TANDEM_CHECK(id != ir::kNoValue, "lower", "result ", i, " of ", node_.op().operator_name().name,
               " is absent");
  return *graph_.value(id).tensor_type();
}

namespace {

constexpr auto kNothing = c10::ScalarType::Undefined;

c10::ScalarType join(c10::ScalarType a, c10::ScalarType b) {
  if (a == kNothing) return b;
  return b == kNothing ? a : c10::promoteTypes(a, b);
}

// Tensors with dims decide, then those without, then numbers, unless the lower group is of a higher
// category (bool, integer, float).
c10::ScalarType over(c10::ScalarType higher, c10::ScalarType lower) {
  if (higher == kNothing) return lower;
  if (c10::isComplexType(higher) || c10::isFloatingType(higher)) return higher;
  if (higher == c10::ScalarType::Bool || (lower != kNothing && !c10::isIntegralType(lower, true)))
    return join(higher, lower);
  return higher;
}

}  // namespace

c10::ScalarType Call::promoted(std::initializer_list<size_t> operands) const {
  c10::ScalarType with_dims = kNothing, without = kNothing, numbers = kNothing;
  for (size_t i : operands) {
    if (const ir::TensorType* type = tensor(i)) {
      c10::ScalarType& group = type->rank() > 0 ? with_dims : without;
      group = join(group, type->dtype);
    } else if (const auto plain = number(i)) {
      const c10::ScalarType dtype = plain->kind == Number::Kind::Float
                                        ? c10::get_default_dtype_as_scalartype()
                                    : plain->kind == Number::Kind::Bool ? c10::ScalarType::Bool
                                                                        : c10::ScalarType::Long;
      numbers = join(numbers, dtype);
    }
  }
  return over(with_dims, over(without, numbers));
}

}  // namespace tandem::loops
