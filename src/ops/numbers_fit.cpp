#include "ops/numbers_fit.h"

#include <ATen/core/jit_type.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem::ops {
namespace {

struct Range {
  double low, high;
  bool has_nan;
};

template <class T>
Range range_of() {
  using Limits = std::numeric_limits<T>;
  return {static_cast<double>(Limits::lowest()), static_cast<double>(Limits::max()),
          Limits::has_quiet_NaN};
}

Range range_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Byte:
      return range_of<uint8_t>();
    case c10::ScalarType::Char:
      return range_of<int8_t>();
    case c10::ScalarType::Short:
      return range_of<int16_t>();
    case c10::ScalarType::Int:
      return range_of<int32_t>();
    case c10::ScalarType::Half:
      return range_of<c10::Half>();
    case c10::ScalarType::BFloat16:
      return range_of<c10::BFloat16>();
    case c10::ScalarType::Float:
      return range_of<float>();
    default:  // the others are no kernel's
      return range_of<double>();
  }
}

struct Number {
  double value;
  bool is_integer;
};

bool fits(const Number& number, c10::ScalarType dtype) {
  // Bool takes every number. The largest int64 is no double.
  if (dtype == c10::ScalarType::Bool) return true;
  if (dtype == c10::ScalarType::Long)
    return number.is_integer || (number.value >= -0x1p63 && number.value < 0x1p63);
  const Range range = range_of(dtype);
  if (!std::isfinite(number.value)) return range.has_nan;
  return number.value >= range.low && number.value <= range.high;
}

/// Not a size or an index.
bool takes_number(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

std::vector<Number> numbers_of(const ir::Node& node) {
  std::vector<Number> numbers;
  const auto& arguments = node.op().schema().arguments();
  for (size_t i = 0; i < node.operands().size(); ++i) {
    const ir::Operand& operand = node.operands()[i];
    if (const auto* number = operand.get_if<double>()) {
      if (takes_number(arguments[i])) numbers.push_back({*number, false});
    } else if (const auto* size = operand.get_if<ir::Size>(); size && size->is_constant()) {
      if (takes_number(arguments[i])) numbers.push_back({static_cast<double>(size->value()), true});
    }
  }
  return numbers;
}

}  // namespace

bool numbers_fit(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return true;
  const std::vector<Number> numbers = numbers_of(node);
  if (numbers.empty()) return true;
  bool all_fit = true, floats_result = false;
  const auto look = [&](ir::ValueId id) {
    const ir::TypePtr type = id == ir::kNoValue ? nullptr : graph.value(id).tensor_type();
    if (type == nullptr) return;
    const bool is_float = c10::isFloatingType(type->dtype);
    // Integers become floats before they meet the number.
    if (floats_result && !is_float) return;
    all_fit = all_fit &&
              std::ranges::all_of(numbers, [&](const Number& n) { return fits(n, type->dtype); });
    floats_result = floats_result || is_float;
  };
  for (ir::ValueId id : node.results()) look(id);
  for (const ir::Operand& operand : node.operands()) operand.for_each_value(look);
  return all_fit;
}

}  // namespace tandem::ops
