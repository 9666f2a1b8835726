#pragma once

#include "base/error.h"
#include "ir/ivalue.h"
#include "tandem/ir/graph.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::ops {

/// An operand of a call that an executable makes again in every run. A `Source` says where a run
/// finds a value: what kinds there are is the executable's own.
template <class Source>
struct BoxedArgument {
  enum class Kind : uint8_t { Single, Tensors, OptionalTensors };
  Kind kind = Kind::Single;
  std::vector<Source> sources{};  // of Single one
};

/// `source_of(ir::ValueId)` is asked for what the graph computes, `constant(c10::IValue)` for what
/// it knows.
template <class Source, class SourceOf, class Constant>
BoxedArgument<Source> boxed_argument(const ir::Graph& graph, const ir::Operand& operand,
                                     const c10::TypePtr& type, const SourceOf& source_of,
                                     const Constant& constant) {
  using Kind = typename BoxedArgument<Source>::Kind;
  if (const auto* id = operand.get_if<ir::ValueId>(); id != nullptr && *id != ir::kNoValue)
    return {Kind::Single, {source_of(*id)}};
  if (const auto* ids = operand.get_if<ir::Operand::Values>()) {
    const auto* list = type->castRaw<c10::ListType>();
    TANDEM_CHECK(list != nullptr, "lower", "a list of values for an argument of type ",
                 type->str());
    const bool optional = list->getElementType()->kind() == c10::TypeKind::OptionalType;
    BoxedArgument<Source> argument{optional ? Kind::OptionalTensors : Kind::Tensors};
    for (ir::ValueId id : *ids) argument.sources.push_back(source_of(id));
    return argument;
  }
  return {
      Kind::Single,
      {constant(ir::to_ivalue(graph, operand, type, [](ir::ValueId) { return at::Tensor(); }))}};
}

/// `take(source)` gives the value as an IValue: an undefined tensor where there is none.
template <class Source, class Take>
void push(torch::jit::Stack& stack, const BoxedArgument<Source>& argument, const Take& take) {
  using Kind = typename BoxedArgument<Source>::Kind;
  switch (argument.kind) {
    case Kind::Single:
      stack.push_back(take(argument.sources[0]));
      return;
    case Kind::Tensors: {
      c10::List<at::Tensor> list;
      list.reserve(argument.sources.size());
      for (const Source& source : argument.sources) list.push_back(take(source).toTensor());
      stack.emplace_back(std::move(list));
      return;
    }
    case Kind::OptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(argument.sources.size());
      for (const Source& source : argument.sources) {
        at::Tensor tensor = take(source).toTensor();
        list.push_back(tensor.defined() ? std::make_optional(std::move(tensor)) : std::nullopt);
      }
      stack.emplace_back(std::move(list));
      return;
    }
  }
}

/// Takes what a call has left on the stack: `keep(index, c10::IValue)` gets the results one by one,
/// those of lists too, numbered as those of the node.
template <class Keep>
void pop_results(torch::jit::Stack& stack, const ir::ResultShape& shape, const Keep& keep) {
  TANDEM_CHECK(stack.size() == shape.size(), "call", "an op returned ", stack.size(),
               " results, the graph has ", shape.size());
  size_t next = 0;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (shape[i] == ir::kSingle) {
      keep(next++, std::move(stack[i]));
      continue;
    }
    c10::List<at::Tensor> list = std::move(stack[i]).toTensorList();
    TANDEM_CHECK(static_cast<int64_t>(list.size()) == shape[i], "call", "an op returned a list of ",
                 list.size(), " tensors, the graph has ", shape[i]);
    for (size_t j = 0; j < list.size(); ++j) keep(next++, c10::IValue(list.extract(j)));
  }
  stack.clear();
}

}  // namespace tandem::ops
