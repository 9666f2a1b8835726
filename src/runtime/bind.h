#pragma once

#include "runtime/artifact.h"
#include "runtime/backward/backward_compiler.h"
#include "runtime/entry_state.h"
#include "runtime/guards/guards.h"

#include <memory>

namespace tandem::runtime {

/// What of a process an entry refers to.
struct Bindings {
  std::vector<at::Tensor> lifted{};  // closed-over tensors, in the order of the signature
  Watched watched{};
  std::vector<at::Generator> generators{};       // in the order of generators_of()
  std::shared_ptr<Backend> backend{};            // null: the one that the artifact names
  std::shared_ptr<BackwardCompiler> compiler{};  // null: no backward but those of the artifact
};

/// An entry that runs, from an artifact of this process or another one. A UserError says what is
/// missing in the bindings; an UnsupportedError what no artifact can bring along.
std::shared_ptr<const EntryState> bind(Artifact artifact, Bindings bindings);

/// The same in the process that has just traced it: its guards are there already.
std::shared_ptr<const EntryState> bind(Artifact artifact, Connections connections);

}  // namespace tandem::runtime
