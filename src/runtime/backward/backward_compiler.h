#pragma once

#include "libtorch/thread_state.h"
#include "runtime/artifact.h"
#include "tandem/function.h"

#include <compare>
#include <cstddef>
#include <memory>
#include <vector>

namespace tandem::runtime {

class EntryState;

/// Of one call.
struct WantedGradients {
  size_t part = 0;  // that of this autograd node
  partition::Asked asked{};
  /// Inputs to which set_data() has given other memory since, by position.
  std::vector<size_t> exchanged{};

  friend auto operator<=>(const WantedGradients&, const WantedGradients&) = default;
};

/// Whoever compiles for an entry that exists, when a call meets a backward which nobody has met
/// before. The pipeline does; the runtime only asks. Thread-safe.
class BackwardCompiler {
 public:
  virtual ~BackwardCompiler() = default;

  /// A backward of an artifact, recorded again for a state of autocast if that is on.
  virtual Backward compile(const Artifact& artifact, const partition::Asked& asked,
                           const libtorch::AutocastState& autocast) = 0;

  /// Whether the function that was traced is known. Without it a call keeps nothing for
  /// create_graph.
  virtual bool knows_function() const = 0;
  /// For a backward with create_graph, or after set_data(): the gradients that one autograd node of
  /// a call gives, as a compiled function of the call's inputs and tangents.
  virtual std::shared_ptr<detail::CompiledFunction> compile_gradients(
      const EntryState& entry, const WantedGradients& wanted) = 0;
};

}  // namespace tandem::runtime
