#pragma once

#include "tandem/ir/graph.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace tandem::joint {

/// From which roots of a backward a gradient arrives where, as eager's engine would bring it.
///
/// The data does not always tell. A custom function's backward runs with zeros for what did not
/// arrive, and may look at its gradient not at all; so may a formula of libtorch (a draw's). Lives
/// while the engine runs, to see which gradients custom functions leave undefined.
class Arrivals {
 public:
  /// `stops`: where a gradient arrives and goes no further.
  Arrivals(std::span<const torch::autograd::Edge> roots,
           std::span<const torch::autograd::Edge> stops);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// Whether there is a node that makes gradients out of nothing.
  bool has_custom_functions() const { return !custom_.empty(); }
  /// By root: whether a gradient arrives at the edge from that root alone.
  std::vector<bool> at(const torch::autograd::Edge& edge) const;

 private:
  struct CustomFunction {
    uintptr_t hook = 0;
    std::vector<bool> defined;  // by gradient that its backward returned
  };
  struct Slot {
    torch::autograd::Node* node = nullptr;
    uint32_t number = 0;
    auto operator<=>(const Slot&) const = default;
  };
  bool arrives(const torch::autograd::Edge& root, const torch::autograd::Edge& edge) const;

  std::vector<torch::autograd::Edge> roots_;
  std::vector<Slot> stops_;
  std::map<torch::autograd::Node*, CustomFunction> custom_;
};

/// `tandem::arrives(gradient, tangents)`: the gradient, which is there whenever one of the tangents
/// is defined. The partition takes it out when it knows which are.
const c10::OperatorHandle& arrives_op();

/// Whether each of the values depends on one of the tangents.
std::vector<bool> depends_on(const ir::Graph& graph, std::span<const ir::ValueId> tangents,
                             std::span<const ir::ValueId> values);

}  // namespace tandem::joint
