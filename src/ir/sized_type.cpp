#include "ir/sized_type.h"

#include "shapes/evaluate.h"

#include <algorithm>
#include <unordered_map>

namespace tandem::ir {
namespace {

using Names = std::unordered_set<std::string>;

void collect(const Size& size, Names& used) {
  if (size.is_constant()) return;
  for (std::string& name : size.symbols()) used.insert(std::move(name));
}

void collect(const Graph& graph, Names& used) {
  const auto value = [&](ValueId id) {
    if (id == kNoValue || graph.value(id).tensor_type() == nullptr) return;
    for (const Size& size : graph.value(id).tensor_type()->sizes) collect(size, used);
    for (const Size& stride : graph.value(id).tensor_type()->strides) collect(stride, used);
  };
  std::ranges::for_each(graph.inputs(), value);
  graph.for_each_node([&](const Node& node) {
    std::ranges::for_each(node.results(), value);
    for (const Operand& operand : node.operands()) {
      if (const auto* size = operand.get_if<Size>()) collect(*size, used);
      if (const auto* sizes = operand.get_if<Operand::Sizes>()) {
        for (const Size& size : *sizes) collect(size, used);
      }
    }
    if (node.kind() == NodeKind::Region) collect(node.region(), used);
  });
}

}  // namespace

bool carries_sizes(const TensorType& type) {
  return std::ranges::count(type.sizes, Size(0)) > 0 && !type.is_static();
}

std::optional<std::vector<int64_t>> strides_at(const TensorType& type,
                                               const std::vector<int64_t>& sizes) {
  if (sizes.size() != type.sizes.size()) return std::nullopt;
  std::unordered_map<std::string, int64_t> numbers;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (const std::string name = shapes::symbol_name(type.sizes[i]); !name.empty())
      numbers.emplace(name, sizes[i]);
  }
  std::vector<int64_t> strides(sizes.size());
  if (type.is_contiguous()) {
    int64_t stride = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= std::max<int64_t>(sizes[i], 1);
    }
    return strides;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    Names used;
    collect(type.strides[i], used);
    if (!std::ranges::all_of(used, [&](const auto& name) { return numbers.contains(name); }))
      return std::nullopt;
    strides[i] = shapes::evaluate(type.strides[i],
                                  [&](const std::string& name) { return numbers.at(name); });
  }
  return strides;
}

int64_t expected_bytes(const Graph& graph, const TensorType& type) {
  if (type.is_static()) return type.bytes();
  constexpr int64_t kUnknownElements = 4096;
  const auto element = static_cast<int64_t>(c10::elementSize(type.dtype));
  bool known = true;
  const int64_t elements = shapes::evaluate(type.numel(), [&](const std::string& name) -> int64_t {
    const auto at = std::ranges::find(graph.symbols(), name, &Symbol::name);
    known = known && at != graph.symbols().end() && at->hint;
    return known ? *at->hint : 1;
  });
  return element * (known ? elements : kUnknownElements);
}

bool has_symbols(const Operand& operand) {
  if (const auto* size = operand.get_if<Size>()) return !size->is_constant();
  const auto* sizes = operand.get_if<Operand::Sizes>();
  return sizes != nullptr &&
         !std::ranges::all_of(*sizes, [](const Size& size) { return size.is_constant(); });
}

Operand with_numbers(const Operand& operand,
                     c10::function_ref<int64_t(const std::string&)> number_of) {
  if (const auto* size = operand.get_if<Size>()) return Size(shapes::evaluate(*size, number_of));
  const auto* sizes = operand.get_if<Operand::Sizes>();
  if (sizes == nullptr) return operand;
  Operand::Sizes numbers;
  for (const Size& size : *sizes) numbers.emplace_back(shapes::evaluate(size, number_of));
  return numbers;
}

Names mentioned_symbols(const Graph& graph) {
  Names used;
  collect(graph, used);
  return used;
}

}  // namespace tandem::ir
