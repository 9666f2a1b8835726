#pragma once

#include "tandem/decomposition.h"
#include "tandem/export.h"
#include "tandem/ir/graph.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Random { eager, fast };  // fast: own vectorised generator, reproducible from the seed

enum class GraphRole { forward, backward, inference };

/// What a backend may assume about the graph that it compiles.
struct CompileContext {
  GraphRole role = GraphRole::inference;
  std::vector<bool> static_inputs{};      // the same tensor in every call; its data may move
  std::vector<bool> releasable_inputs{};  // `run` may reset these handles at their last use
  std::vector<ir::Symbol> symbols{};
  Rounding rounding = Rounding::eager;
  Random random = Random::eager;
  bool sizes_vary =
      false;  // graphs of the same ops with other sizes will follow: kernels should serve them, too
};

/// A compiled graph. `run` may be called from several threads at once.
class TANDEM_API Executable {
 public:
  virtual ~Executable() = default;

  /// Inputs in graph order, results in output order; an undefined result is an undefined tensor.
  /// Runs below autograd: no result has a grad_fn. Writes an input only where a node of the graph
  /// does. Inputs that the context calls releasable may be reset.
  virtual std::vector<at::Tensor> run(std::span<at::Tensor> inputs) = 0;

  /// Lines for `report()` about what a run does: kernels, the ops in each, the bytes that they
  /// move. Empty if the graph itself says it all.
  virtual std::string report() const { return {}; }
  /// What it was made of on the way, for `dump_dir`.
  struct Listing {
    std::string name;  // with its ending: `kernels.loops`, `k0.ll`
    std::string text;
  };
  virtual std::vector<Listing> listings() const { return {}; }
  /// Bytes from which Backend::load makes this executable again, in another process too. Empty if
  /// it cannot be stored: its graph is then compiled anew.
  virtual std::string save() const { return {}; }
  /// Gives back memory that it keeps between runs.
  virtual void release_cached_memory() {}
};

/// Turns graphs into something that runs.
class TANDEM_API Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Called while a call compiles. The backward for another set of defined tangents, or for a state
  /// of autocast, is compiled in the first backward() that needs it.
  virtual std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                              const CompileContext& context) = 0;
  /// An executable of what its save() returned, for the same graph and context. Null if that does
  /// not fit this machine: the graph is then compiled. `stored` must be trusted, because it may be
  /// code.
  virtual std::unique_ptr<Executable> load(std::string_view /*stored*/, const ir::Graph& /*graph*/,
                                           const CompileContext& /*context*/) {
    return nullptr;
  }
  /// Which ops the backend wants written as others. Applied to the joint graph, before it is cut.
  virtual Decompositions decompositions(Rounding /*rounding*/, Random /*random*/) const {
    return {};
  }
  /// Whether the backend computes this node inside a kernel of nodes that read it. The backward can
  /// then compute its result again for next to nothing. Asked about nodes of the joint graph, after
  /// the decompositions, but never about views: they compute nothing.
  virtual bool can_fuse(const ir::Graph& /*graph*/, const ir::Node& /*node*/) const {
    return false;
  }
};

/// A backend by name; a UserError lists the known ones.
TANDEM_API std::shared_ptr<Backend> backend(std::string_view name);

}  // namespace tandem
