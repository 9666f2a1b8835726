#include "loops/rules/rule.h"

#include "ops/numbers_fit.h"
#include "ops/op_table.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace tandem::loops {
namespace {

bool is_known(const ir::TensorType* type, const Target& target) {
  if (type == nullptr || !target.reads(*type) || !is_kernel_dtype(type->dtype) ||
      !type->is_static())
    return false;
  return std::ranges::all_of(type->sizes, [](const ir::Size& size) { return size.value() != 0; });
}

using RulesByName = std::unordered_map<c10::OperatorName, const Rule*>;

RulesByName rules_by_name() {
  RulesByName map;
  for (const Rule* rule : all_rules()) {
    std::string name = full_name(*rule), overload;
    if (const size_t dot = name.find('.'); dot != std::string::npos) {
      overload = name.substr(dot + 1);
      name.resize(dot);
    }
    map.emplace(c10::OperatorName(std::move(name), std::move(overload)), rule);
  }
  return map;
}

}  // namespace

Val Emitter::as(size_t i, c10::ScalarType dtype) {
  if (call.tensor(i) == nullptr) return body.wide(number(*call.number(i), dtype));
  return body.wide(body.to(operand(i), dtype));
}

Val Emitter::as_term(size_t i, c10::ScalarType dtype) {
  const ir::TensorType* type = call.tensor(i);
  if (type == nullptr) return number(*call.number(i), compute_dtype(dtype));
  const bool single = type->rank() == 0 && type->dtype != dtype;
  return body.wide(body.to(operand(i), single ? compute_dtype(dtype) : dtype));
}

std::string full_name(const Rule& rule) {
  std::string name(rule.op);
  return name.find("::") == std::string::npos ? "aten::" + name : name;
}

std::span<const Rule* const> all_rules() {
  static const auto* rules = [] {
    auto* list = new std::vector<const Rule*>;
    for (auto table : {pointwise_rules(), move_rules(), reduction_rules()}) {
      for (const Rule& rule : table) list->push_back(&rule);
    }
    return list;
  }();
  return *rules;
}

const Rule* find_rule(const Call& call, const Target& target) {
  static const auto* by_name = new const RulesByName(rules_by_name());
  const ir::Node& node = call.node();
  if (node.kind() != ir::NodeKind::Op) return nullptr;
  const auto found = by_name->find(node.op().operator_name());
  if (found == by_name->end()) return nullptr;
  // Draws and effects keep their order. A group of nodes has no single place in it.
  if (ops::info(node.op()).must_happen()) return nullptr;
  bool known = true;
  std::optional<c10::Device> device;
  const auto look = [&](ir::ValueId id) {
    const ir::TensorType* type =
        id == ir::kNoValue ? nullptr : call.graph().value(id).tensor_type().get();
    known = known && is_known(type, target);
    if (!known) return;
    if (!device.has_value()) device = type->device;
    known = *device == type->device;
  };
  for (ir::ValueId id : node.results()) look(id);
  for (const ir::Operand& operand : node.operands()) {
    operand.for_each_value([&](ir::ValueId id) {
      if (id != ir::kNoValue) look(id);
    });
  }
  if (!known) return nullptr;
  const Rule* rule = found->second;
  const bool any_number = rule->any_number && c10::isFloatingType(call.result().dtype);
  if (!any_number && !ops::numbers_fit(call.graph(), node)) return nullptr;
  return rule->applies == nullptr || rule->applies(call) ? rule : nullptr;
}

}  // namespace tandem::loops
