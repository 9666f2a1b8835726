#include "ops/memory/view_replay.h"

#include "ir/ivalue.h"
#include "ir/sized_type.h"
#include "shapes/evaluate.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <string>
#include <unordered_map>

namespace tandem::ops {
namespace {

/// Symbols that are sizes of the source.
using SizesByName = std::unordered_map<std::string, int64_t>;

SizesByName numbers_of(const ir::Graph& graph, const at::Tensor& source) {
  SizesByName numbers;
  const ir::TypePtr& type = graph.value(graph.inputs()[0]).tensor_type();
  for (size_t i = 0; i < type->sizes.size(); ++i) {
    if (const std::string name = shapes::symbol_name(type->sizes[i]); !name.empty())
      numbers.emplace(name, source.size(static_cast<int64_t>(i)));
  }
  return numbers;
}

void run_node(const ir::Graph& graph, const ir::Node& node, const SizesByName& numbers,
              std::vector<at::Tensor>& environment) {
  const auto tensor_of = [&](ir::ValueId id) { return environment[static_cast<size_t>(id)]; };
  torch::jit::Stack stack;
  for (size_t i = 0; i < node.operands().size(); ++i) {
    const ir::Operand& operand = node.operands()[i];
    const c10::TypePtr& type = node.op().schema().arguments()[i].real_type();
    if (!ir::has_symbols(operand)) {
      stack.push_back(ir::to_ivalue(graph, operand, type, tensor_of));
      continue;
    }
    const auto number_of = [&](const std::string& name) { return numbers.at(name); };
    stack.push_back(ir::to_ivalue(graph, ir::with_numbers(operand, number_of), type, tensor_of));
  }
  node.op().callBoxed(stack);
  size_t next = 0;
  for (const c10::IValue& result : stack) {
    if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) {
        environment[static_cast<size_t>(node.results()[next++])] = tensor;
      }
    } else {
      environment[static_cast<size_t>(node.results()[next++])] = result.toTensor();
    }
  }
}

/// Every value of the replay, made in one grad mode.
std::vector<at::Tensor> run_all(const ir::Graph& graph, const at::Tensor& source, bool grad_mode) {
  at::AutoGradMode mode(grad_mode);
  std::vector<at::Tensor> environment(graph.value_limit());
  environment[static_cast<size_t>(graph.inputs()[0])] = source;
  SizesByName numbers;
  if (!graph.symbols().empty()) numbers = numbers_of(graph, source);
  graph.for_each_node([&](const ir::Node& node) { run_node(graph, node, numbers, environment); });
  return environment;
}

/// Beyond detach() no view requires grad, whatever the mode.
bool is_detached(const ir::Graph& graph, ir::ValueId value) {
  while (!graph.value(value).is_input()) {
    const ir::Node& node = graph.node(graph.value(value).producer());
    if (node.op().schema().name() == "aten::detach") return true;
    value = *node.operands()[0].get_if<ir::ValueId>();
  }
  return false;
}

}  // namespace

std::vector<at::Tensor> replay_views(const ir::ViewReplay& replay, const at::Tensor& source,
                                     const std::vector<bool>& grad_modes) {
  std::vector<at::Tensor> environments[2];
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < replay.graph.outputs().size(); ++i) {
    // In a call without grad mode eager's views are made without it.
    const bool mode =
        grad_modes[i] ||
        (c10::GradMode::is_enabled() &&
         (!source.requires_grad() || is_detached(replay.graph, replay.graph.outputs()[i].value)));
    std::vector<at::Tensor>& environment = environments[mode ? 1 : 0];
    if (environment.empty()) environment = run_all(replay.graph, source, mode);
    views.push_back(environment[static_cast<size_t>(replay.graph.outputs()[i].value)]);
  }
  return views;
}

}  // namespace tandem::ops
