#pragma once

#include "tandem/ir/graph.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::loops {

/// A number of the program, before it takes a dtype.
struct Number {
  enum class Kind : uint8_t { Bool, Int, Float };
  Kind kind = Kind::Int;
  int64_t integer = 0;
  double number = 0;

  double as_double() const { return kind == Kind::Float ? number : static_cast<double>(integer); }
  static Number of(int64_t value) { return {Kind::Int, value, 0}; }
  static Number of(double value) { return {Kind::Float, 0, value}; }
};

/// A node of the graph, read by the place of its operands.
class Call {
 public:
  Call(const ir::Graph& graph, const ir::Node& node) : graph_(graph), node_(node) {}

  const ir::Graph& graph() const { return graph_; }
  const ir::Node& node() const { return node_; }
  size_t operand_count() const { return node_.operands().size(); }

  bool has(size_t i) const { return !node_.operands()[i].is_none(); }
  /// Nullptr if the operand is no tensor.
  const ir::TensorType* tensor(size_t i) const;
  ir::ValueId value(size_t i) const;
  /// The elements of a list of tensors.
  const std::vector<ir::ValueId>* values(size_t i) const;
  std::optional<Number> number(size_t i) const;
  std::optional<int64_t> integer(size_t i) const;
  std::optional<std::vector<int64_t>> integers(size_t i) const;
  std::string text(size_t i) const;

  const ir::TensorType& result(size_t i = 0) const;

  /// What libtorch computes these operands (tensors and numbers) in.
  c10::ScalarType promoted(std::initializer_list<size_t> operands) const;

 private:
  const ir::Graph& graph_;
  const ir::Node& node_;
};

}  // namespace tandem::loops
