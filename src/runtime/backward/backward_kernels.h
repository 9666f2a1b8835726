#pragma once

#include "partition/tangents/tangent_use.h"
#include "runtime/artifact.h"
#include "runtime/backward/backward_compiler.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::runtime {

/// The backwards of an entry, one per autocast state and what they are asked for: those of the
/// artifact, and those that calls have met since.
class BackwardKernels {
 public:
  /// `artifact` is the entry's and lives as long. A null compiler: there will be no further ones.
  BackwardKernels(const Artifact& artifact, std::shared_ptr<BackwardCompiler> compiler);

  /// For the autocast state of the calling thread.
  const Backward& get(const partition::Asked& asked);
  /// By tangent: whether it leads to one of these gradients.
  std::vector<bool> leading_to(const std::vector<bool>& wanted);
  /// Worked out when the results of a call are differentiated one by one.
  const partition::TangentUse& tangent_use();

  /// For a backward in which every tangent is defined, without autocast.
  const Executable& whole() const { return *artifact_.backwards.front().kernels.ready; }
  /// Those that calls have met since.
  std::vector<Backward> further() const;
  /// Of all that were compiled.
  void release_cached_memory();

 private:
  struct Further {
    std::mutex compiling;  // threads that need the same one wait for the first of them
    std::shared_ptr<const Backward> made;
  };
  bool casts(const libtorch::AutocastState& state) const;
  const Backward& find_further(const partition::Asked& asked, const libtorch::AutocastState& state);
  std::shared_ptr<const Backward> made(const Further& further) const;

  const Artifact& artifact_;
  const std::shared_ptr<BackwardCompiler> compiler_;
  mutable std::mutex mutex_;  // never held while something is compiled
  std::map<std::pair<libtorch::AutocastState, partition::Asked>, Further> further_;
  std::map<std::vector<bool>, std::vector<bool>> leading_;  // by what is wanted
  std::optional<partition::TangentUse> use_;
};

}  // namespace tandem::runtime
