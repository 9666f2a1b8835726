#include "partition/carry_sizes.h"

#include "ir/sized_type.h"
#include "ops/data_sizes.h"
#include "shapes/evaluate.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <unordered_set>

namespace tandem::partition {
namespace {

/// Symbols that are a size of what a node makes.
std::unordered_set<std::string> made_in(const ir::Graph& graph) {
  std::unordered_set<std::string> made;
  graph.for_each_node([&](const ir::Node& node) {
    if (!ops::makes_size(node)) return;
    for (ir::ValueId id : node.results()) {
      if (id == ir::kNoValue || !graph.value(id).tensor_type()) continue;
      for (const ir::Size& size : graph.value(id).tensor_type()->sizes)
        made.insert(shapes::symbol_name(size));
    }
  });
  return made;
}

}  // namespace

void carry_sizes(Split& split) {
  const std::unordered_set<std::string> needed = ir::mentioned_symbols(split.backward);
  if (needed.empty()) return;
  // The backward may make such a size itself, even one that the forward has made before.
  const std::unordered_set<std::string> made = made_in(split.forward);
  std::vector<ir::Output> outputs(split.forward.outputs().begin(), split.forward.outputs().end());
  auto index = std::ranges::count_if(
      outputs, [](const ir::Output& output) { return output.role.role == ir::Role::Saved; });
  std::vector<ir::ValueId> order(split.backward.inputs().begin(), split.backward.inputs().end());
  split.saved.resize(static_cast<size_t>(index));
  for (const ir::Symbol& symbol : split.backward.symbols()) {
    if (!needed.contains(symbol.name) || !made.contains(symbol.name)) continue;
    const ir::Operand::Sizes sizes{ir::Size::symbol(symbol.name), 0};
    const ir::TensorType type = ir::TensorType::contiguous(c10::ScalarType::Byte, sizes);
    const std::string name = symbol.name + "_size";
    const ir::Node& node = split.forward.add_op(
        {.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format"),
         .operands = {sizes, type.dtype, type.layout, type.device, ir::Operand{}, ir::Operand{}},
         .results = {ir::Type(type)},
         .names = {name}});
    outputs.push_back({node.results()[0], ir::Descriptor::saved(index)});
    split.saved.push_back({.name = name,
                           .bytes = 0,
                           .line = {},
                           .why = "a size that depends on data (0 bytes)",
                           .how = {Saved::As::Value}});
    const ir::ValueId input =
        split.backward.add_input(ir::Type(type), ir::Descriptor::saved(index), name).id();
    order.insert(order.begin() + index, input);
    ++index;
  }
  split.forward.set_outputs(std::move(outputs));
  split.backward.reorder_inputs(std::move(order));
}

}  // namespace tandem::partition
