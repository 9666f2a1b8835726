#pragma once

#include "libtorch/thread_state.h"
#include "partition/tangent_use.h"
#include "tandem/backend.h"
#include "tandem/ir/signature.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tandem::runtime {

/// The backward for one set of defined tangents.
struct Backward {
  std::unique_ptr<Executable> kernels;
  std::vector<bool> reads;   // which saved values
  std::vector<bool> writes;  // which of them it writes and does not read
};

/// The compiled backward, one executable per set of defined tangents and autocast state. The set
/// with all of them, without autocast, is compiled with the entry; the others are derived from the
/// same graph when they are first met.
class BackwardKernels {
 public:
  /// `effects`: of the signature.
  BackwardKernels(ir::Graph graph, CompileContext context, std::shared_ptr<Backend> backend,
                  std::vector<ir::EffectFacts> effects = {});

  /// How to record the backward again for an autocast state; without it a backward does not cast.
  using WithAutocast = ir::Graph (*)(const ir::Graph&, const libtorch::AutocastState&);
  void set_with_autocast(WithAutocast with_autocast) { with_autocast_ = with_autocast; }

  /// For the autocast state of the calling thread.
  const Backward& get(const std::vector<bool>& defined);
  /// Worked out when the results of a call are differentiated one by one.
  const partition::TangentUse& tangent_use();

  /// For a backward in which every tangent is defined, without autocast.
  const Executable& whole() const { return *all_.kernels; }
  /// Of all that were compiled.
  void release_cached_memory();

 private:
  /// The backward in one autocast state.
  struct InAutocast {
    ir::Graph graph;
    std::map<std::vector<bool>, Backward> kernels;
  };

  Backward compile(const ir::Graph& graph) const;
  /// For calls in which every tangent is defined.
  Backward compile_whole(const ir::Graph& graph) const;
  bool casts(const libtorch::AutocastState& state) const;
  const Backward& get(const std::vector<bool>& defined, const libtorch::AutocastState& state);

  ir::Graph graph_;
  CompileContext context_;
  std::shared_ptr<Backend> backend_;
  const std::vector<ir::EffectFacts> effects_;
  WithAutocast with_autocast_ = nullptr;
  Backward all_;
  std::mutex mutex_;
  std::map<std::vector<bool>, Backward> some_;
  std::map<libtorch::AutocastState, InAutocast> in_autocast_;
  std::optional<partition::TangentUse> use_;
};

}  // namespace tandem::runtime
