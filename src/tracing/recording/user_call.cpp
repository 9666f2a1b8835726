#include "tracing/recording/user_call.h"

#include "base/error.h"
#include "ir/text/words.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace tandem::tracing {
namespace {

std::string number_text(double number) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return {digits.data(), end};
}

template <class List, class Text>
std::string list_text(const List& list, Text&& text) {
  std::string out = "[";
  for (const auto& one : list) out += (out.size() > 1 ? ", " : "") + text(one);
  return out + "]";
}

std::string value_text(const c10::IValue& value, const c10::Argument& argument) {
  if (value.isNone()) return "none";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isDouble()) return number_text(value.toDouble());
  if (value.isInt()) {
    c10::TypePtr type = argument.real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::ScalarTypeType)
      return std::string(ir::dtype_word(static_cast<c10::ScalarType>(value.toInt())));
    return std::to_string(value.toInt());
  }
  if (value.isIntList())
    return list_text(value.toIntVector(), [](int64_t one) { return std::to_string(one); });
  if (value.isDoubleList()) return list_text(value.toDoubleVector(), number_text);
  if (value.isString()) return "\"" + value.toStringRef() + "\"";
  return base::str(value);
}

}  // namespace

bool is_mode(std::string_view argument) {
  return argument == "training" || argument == "train" || argument == "use_input_stats";
}

UserCall::UserCall(const c10::OperatorHandle& called, c10::ArrayRef<c10::IValue> operands,
                   ir::Location at)
    : op(called), line(std::move(at)) {
  const auto note = [&](int32_t i, const at::Tensor& tensor) {
    if (tensor.defined() && !is_traced(tensor))
      outside.emplace_back(i, tensor.unsafeGetTensorImpl());
  };
  for (int32_t i = 0; i < static_cast<int32_t>(operands.size()); ++i) {
    const c10::IValue& operand = operands[static_cast<size_t>(i)];
    if (operand.isTensor()) {
      note(i, operand.toTensor());
      if (!operand.toTensor().defined()) settings.emplace_back(i, c10::IValue());
    } else if (operand.isTensorList()) {
      const auto list = operand.toTensorList();
      settings.emplace_back(i, static_cast<int64_t>(list.size()));
      for (const at::Tensor& tensor : list) note(i, tensor);
    } else if (operand.isOptionalTensorList()) {
      const auto list = operand.toOptionalTensorList();
      settings.emplace_back(i, static_cast<int64_t>(list.size()));
      for (const std::optional<at::Tensor> tensor : list) {
        if (tensor) note(i, *tensor);
      }
    } else if (!operand.isGenerator()) {  // whose owners are counted
      settings.emplace_back(i, operand);
    }
  }
}

std::string UserCall::op_name() const {
  const std::string& name = op.operator_name().name;
  return name.substr(name.rfind(':') + 1);
}

std::vector<std::string> UserCall::setting_texts() const {
  std::vector<std::string> texts;
  for (const auto& [position, value] : settings) {
    const c10::Argument& argument = op.schema().arguments()[static_cast<size_t>(position)];
    const bool is_list = argument.type()->kind() == c10::TypeKind::ListType && value.isInt();
    texts.push_back(argument.name() + (is_list ? ".size()=" : "=") + value_text(value, argument));
  }
  return texts;
}

const c10::IValue* UserCall::setting(const char* name) const {
  const auto at = op.schema().argumentIndexWithName(name);
  if (!at) return nullptr;
  for (const auto& [position, value] : settings) {
    if (position == *at) return &value;
  }
  return nullptr;
}

bool UserCall::trains() const {
  const auto is_on = [&](const auto& setting) {
    const auto& [position, value] = setting;
    return is_mode(op.schema().arguments()[static_cast<size_t>(position)].name()) &&
           value.isBool() && value.toBool();
  };
  if (std::ranges::none_of(settings, is_on)) return false;
  const auto is_zero = [](const c10::IValue* p) {
    return p != nullptr && p->isDouble() && p->toDouble() == 0;
  };
  if (is_zero(setting("p")) || is_zero(setting("dropout"))) return false;
  // A setting where a tensor is expected: there is none.
  return setting("running_mean") == nullptr;
}

}  // namespace tandem::tracing
