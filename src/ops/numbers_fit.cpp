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

std::vector<Number> numbers_of(const MetaCall& call) {
  std::vector<Number> numbers;
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < call.args.size(); ++i) {
    const c10::IValue& value = call.args[i].other;
    if (!(value.isDouble() || value.isInt()) || !takes_number(arguments[i])) continue;
    if (value.isDouble()) {
      numbers.push_back({value.toDouble(), false});
    } else {
      numbers.push_back({static_cast<double>(value.toInt()), true});
    }
  }
  return numbers;
}

/// Looks at dtypes one by one, those of the results first.
class Fitting {
 public:
  explicit Fitting(const std::vector<Number>& numbers) : numbers_(numbers) {}

  void look(const ir::TypePtr& type) {
    if (type == nullptr) return;
    const bool is_float = c10::isFloatingType(type->dtype);
    // Integers become floats before they meet the number.
    if (floats_result_ && !is_float) return;
    all_fit_ = all_fit_ &&
               std::ranges::all_of(numbers_, [&](const Number& n) { return fits(n, type->dtype); });
    floats_result_ = floats_result_ || is_float;
  }
  bool all_fit() const { return all_fit_; }

 private:
  const std::vector<Number>& numbers_;
  bool all_fit_ = true, floats_result_ = false;
};

}  // namespace

bool numbers_fit(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return true;
  const std::vector<Number> numbers = numbers_of(node);
  if (numbers.empty()) return true;
  Fitting fitting(numbers);
  const auto look = [&](ir::ValueId id) {
    if (id != ir::kNoValue) fitting.look(graph.value(id).tensor_type());
  };
  for (ir::ValueId id : node.results()) look(id);
  for (const ir::Operand& operand : node.operands()) operand.for_each_value(look);
  return fitting.all_fit();
}

bool numbers_fit(const MetaCall& call, std::span<const MetaResult> results) {
  const std::vector<Number> numbers = numbers_of(call);
  if (numbers.empty()) return true;
  Fitting fitting(numbers);
  for (const MetaResult& result : results) {
    for (const TensorMeta& tensor : result.tensors) fitting.look(tensor.type);
  }
  for (const MetaArg& arg : call.args) {
    for (const TensorMeta& tensor : arg.tensors) fitting.look(tensor.type);
  }
  return fitting.all_fit();
}

}  // namespace tandem::ops
