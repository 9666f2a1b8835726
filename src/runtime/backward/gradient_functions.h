#pragma once

#include "runtime/backward/backward_compiler.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tandem::runtime {

/// For backwards that trace the function again (create_graph, set_data()): per autograd node of a
/// call and what it is asked for, the gradients as a compiled function of the call's inputs and
/// tangents. Made when they are first asked for.
class GradientFunctions {
 public:
  /// `was_loaded`: the entry comes from an artifact that was stored.
  GradientFunctions(std::shared_ptr<BackwardCompiler> compiler, bool was_loaded)
      : compiler_(std::move(compiler)), was_loaded_(was_loaded) {}

  /// Whether the function that was traced is known.
  bool can_make() const { return compiler_ && compiler_->knows_function(); }
  /// The error that such a backward ends with where it is not.
  void require_function() const;
  std::shared_ptr<detail::CompiledFunction> get(const EntryState& entry,
                                                const WantedGradients& wanted);

 private:
  std::shared_ptr<BackwardCompiler> compiler_;
  bool was_loaded_;
  std::mutex mutex_;
  std::map<WantedGradients, std::shared_ptr<detail::CompiledFunction>> functions_;
};

}  // namespace tandem::runtime
