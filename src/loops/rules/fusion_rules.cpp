#include "loops/rules/fusion_rules.h"

#include <string>
#include <unordered_map>

namespace tandem::loops {
namespace {

bool is_known(const ir::Graph& graph, ir::ValueId id) {
  const ir::TypePtr& type = graph.value(id).tensor_type();
  if (type == nullptr || !type->device.is_cpu() || type->layout != c10::kStrided ||
      !is_kernel_dtype(type->dtype) || !type->is_static())
    return false;
  for (const ir::Size& size : type->sizes) {
    if (size.value() == 0) return false;
  }
  return true;
}

std::unordered_map<std::string_view, const Rule*> rules_by_name() {
  std::unordered_map<std::string_view, const Rule*> map;
  for (auto rules : {pointwise_rules(), move_rules(), reduction_rules()}) {
    for (const Rule& rule : rules) map.emplace(rule.op, &rule);
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

const Rule* find_rule(const Call& call) {
  static const auto* by_name = new auto(rules_by_name());
  const ir::Node& node = call.node();
  if (node.kind() != ir::NodeKind::Op) return nullptr;
  const c10::OperatorName& name = node.op().operator_name();
  // Our own ops keep their namespace.
  std::string key = name.name.starts_with("aten::") ? name.name.substr(6) : name.name;
  if (!name.overload_name.empty()) key += "." + name.overload_name;
  const auto found = by_name->find(key);
  if (found == by_name->end()) return nullptr;
  for (ir::ValueId id : node.results()) {
    if (id == ir::kNoValue || !is_known(call.graph(), id)) return nullptr;
  }
  bool known = true;
  for (const ir::Operand& operand : node.operands())
    operand.for_each_value([&](ir::ValueId id) { known = known && is_known(call.graph(), id); });
  if (!known) return nullptr;
  const Rule* rule = found->second;
  return rule->applies == nullptr || rule->applies(call) ? rule : nullptr;
}

}  // namespace tandem::loops
