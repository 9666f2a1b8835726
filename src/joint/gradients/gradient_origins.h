#pragma once

#include "tandem/ir/graph.h"

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
/// while the engine runs, to see which gradients nodes leave undefined.
class GradientOrigins {
 public:
  /// `stops`: where a gradient arrives and goes no further.
  GradientOrigins(std::span<const torch::autograd::Edge> roots,
                  std::span<const torch::autograd::Edge> stops);
  ~GradientOrigins();
  GradientOrigins(const GradientOrigins&) = delete;
  GradientOrigins& operator=(const GradientOrigins&) = delete;

  /// Whether there is a node that makes gradients out of nothing.
  bool has_custom_functions() const { return !seen_.empty(); }
  /// By root: whether a gradient arrives at the edge from that root alone.
  std::vector<bool> of(const torch::autograd::Edge& edge) const;

 private:
  struct Seen {
    uintptr_t hook = 0;
    bool is_custom = false;
    bool has_run = false;
    std::vector<bool> defined;  // by gradient that it returned
  };
  struct Slot {
    torch::autograd::Node* node = nullptr;
    uint32_t number = 0;
    auto operator<=>(const Slot&) const = default;
  };
  bool arrives(const torch::autograd::Edge& root, const torch::autograd::Edge& edge) const;

  std::vector<torch::autograd::Edge> roots_;
  std::vector<Slot> stops_;
  /// Nodes that were watched: all, as soon as one is a custom function's.
  std::map<torch::autograd::Node*, Seen> seen_;
};

/// Whether each of the values depends on one of the tangents.
std::vector<bool> depends_on(const ir::Graph& graph, std::span<const ir::ValueId> tangents,
                             std::span<const ir::ValueId> values);

}  // namespace tandem::joint
