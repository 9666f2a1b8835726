#pragma once

#include "tandem/ir/graph.h"

#include <memory>
#include <utility>
#include <vector>

namespace tandem::ir {

/// Reaches behind the public functions of a graph, which keep it well-formed: for tests of the
/// verifier, which need graphs that are not, and for comparing graphs without their names.
struct GraphSurgeon {
  static std::vector<Operand>& operands(Node& node) { return node.operands_; }
  static auto& results(Node& node) { return node.results_; }
  static ResultShape& result_shape(Node& node) { return node.result_shape_; }
  static at::Tensor& constant(Node& node) { return node.constant_; }
  static void set_region(Node& node, Graph body) {
    node.region_ = std::make_shared<const Graph>(std::move(body));
  }
  static NodeId& next(Node& node) { return node.next_; }
  static auto& users(Value& value) { return value.users_; }
  static auto& mentions(Value& value) { return value.mentions_; }
  static c10::SmallVector<int32_t, 1>& output_positions(Value& value) {
    return value.output_positions_;
  }
  static std::vector<Output>& outputs(Graph& graph) { return graph.outputs_; }
  static std::vector<ValueId>& inputs(Graph& graph) { return graph.inputs_; }
  static size_t& node_count(Graph& graph) { return graph.node_count_; }
};

}  // namespace tandem::ir
