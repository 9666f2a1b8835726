#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tandem::joint {

class BackwardWrites;

/// Which autograd node has computed what in a recorded backward.
class Formulas {
 public:
  /// One row per autograd node and part of the backward.
  const std::vector<ir::FormulaFacts>& facts() const { return facts_; }
  /// That of a recorded node; -1: none.
  int64_t of(ir::NodeId node) const;
  const torch::autograd::Node* node_of(int64_t formula) const {
    return nodes_[static_cast<size_t>(formula)];
  }
  /// Whether an autograd node belongs to more than one part: eager runs it once, the call twice.
  bool is_in_several_parts(const torch::autograd::Node* node) const;
  void note(ir::NodeId node, int64_t formula) { of_node_[node] = formula; }

  /// Fills in what each of them reads of the forward, once the graph has its outputs.
  void note_reads(const ir::Graph& joint);
  /// The draws and effects of the backward, in the order of the graph.
  std::vector<ir::EffectFacts> effects(const ir::Graph& joint) const;

 private:
  friend class FormulaWatch;
  std::vector<ir::FormulaFacts> facts_;
  std::vector<const torch::autograd::Node*> nodes_;  // by formula
  std::unordered_map<ir::NodeId, int64_t> of_node_;
};

/// Numbers the autograd nodes of one part of the backward, and follows the engine while it lives:
/// what hooks and custom functions record and write belongs to their node.
class FormulaWatch {
 public:
  struct Watched {
    int64_t part = 0;
    std::span<const torch::autograd::Edge> roots{};
    std::span<const size_t> tangents{};  // of the call, one per root
    std::span<const torch::autograd::Edge> wanted{};
    std::span<const torch::autograd::Edge> stops{};  // where a gradient goes no further
  };
  FormulaWatch(tracing::Trace& trace, const Watched& watched, Formulas& formulas,
               BackwardWrites& writes);
  ~FormulaWatch();
  FormulaWatch(const FormulaWatch&) = delete;
  FormulaWatch& operator=(const FormulaWatch&) = delete;

  /// The engine is about to run, and has run.
  void begin();
  void end();
  /// The part is recorded. `gradients`: of the signature, one per wanted edge; -1: there is none.
  void finish(std::span<const int64_t> gradients);

 private:
  struct Before;
  struct After;
  /// What was added around the hooks of a node, those before its formula and those after it.
  struct Hooked {
    torch::autograd::Node* node = nullptr;
    const torch::autograd::FunctionPreHook *enter = nullptr, *begin = nullptr;
    const torch::autograd::FunctionPostHook *end = nullptr, *leave = nullptr;
  };
  int64_t add(torch::autograd::Node* node, int64_t part);
  void follow(torch::autograd::Node* node, int64_t formula);
  void enter(torch::autograd::Node* node, int64_t formula);
  void leave(int64_t formula);

  tracing::Trace& trace_;
  Formulas& formulas_;
  BackwardWrites& writes_;
  std::unordered_map<const torch::autograd::Node*, int64_t> rows_;
  std::vector<std::pair<int64_t, size_t>> ends_;  // formula, position among the wanted edges
  std::vector<Hooked> hooked_;
  const int64_t part_;
  const size_t recorded_before_;
  int64_t current_ = -1;
};

}  // namespace tandem::joint
