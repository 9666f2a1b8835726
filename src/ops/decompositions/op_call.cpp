#include "base/error.h"
#include "ir/text/op_names.h"
#include "tandem/decomposition.h"

#include <algorithm>

namespace tandem {
namespace {

template <class T>
const T& as(const ir::Operand& operand, const OpCall& call, std::string_view name) {
  const T* value = operand.get_if<T>();
  TANDEM_REQUIRE(value, "decompose", "argument \"", name, "\" of ", ir::op_text(call.node().op()),
                 " is not of the kind that was asked for\n  schema: ", call.node().op().schema(),
                 "\n  remedy: ask for it as the schema has it");
  return *value;
}

}  // namespace

const ir::Operand& OpCall::operand(std::string_view name) const {
  const auto& arguments = node_.op().schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return node_.operands()[i];
  }
  TANDEM_REQUIRE(false, "decompose", ir::op_text(node_.op()), " has no argument \"", name,
                 "\"\n  schema: ", node_.op().schema(), "\n  remedy: use the names of the schema");
}

bool OpCall::has(std::string_view name) const {
  const ir::Operand& value = operand(name);
  const auto* id = value.get_if<ir::ValueId>();
  return !value.is_none() && !(id && *id == ir::kNoValue);
}

Expr OpCall::tensor(std::string_view name) const {
  if (!has(name)) return {};
  return builder_.value(as<ir::ValueId>(operand(name), *this, name));
}

Expr OpCall::wide(std::string_view name) const { return tandem::wide(tensor(name)); }

double OpCall::number(std::string_view name) const {
  const ir::Operand& value = operand(name);
  if (const auto* whole = value.get_if<ir::Size>()) return static_cast<double>(whole->value());
  if (const auto* truth = value.get_if<bool>()) return *truth ? 1 : 0;
  return as<double>(value, *this, name);
}

double OpCall::number(std::string_view name, double absent) const {
  return has(name) ? number(name) : absent;
}

int64_t OpCall::integer(std::string_view name) const {
  return as<ir::Size>(operand(name), *this, name).value();
}

bool OpCall::flag(std::string_view name) const { return as<bool>(operand(name), *this, name); }

std::vector<int64_t> OpCall::integers(std::string_view name) const {
  std::vector<int64_t> numbers;
  for (const ir::Size& size : as<ir::Operand::Sizes>(operand(name), *this, name))
    numbers.push_back(size.value());
  return numbers;
}

std::vector<bool> OpCall::flags(std::string_view name) const {
  return as<std::vector<bool>>(operand(name), *this, name);
}

std::string OpCall::text(std::string_view name) const {
  return as<std::string>(operand(name), *this, name);
}

const ir::TensorType* OpCall::result(size_t index) const {
  const ir::ValueId id = node_.results()[index];
  return id == ir::kNoValue ? nullptr : builder_.graph().value(id).tensor_type().get();
}

}  // namespace tandem
