#pragma once

#include "runtime/backward/primals.h"
#include "runtime/entry_state.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

namespace tandem::runtime {

/// The tensors of one call. `inputs` are those of the forward graph: the function's, then the bases
/// of groups. `outputs` are the forward graph's, `results` the function's, which are filled in.
struct CallTensors {
  std::span<at::Tensor> inputs;
  std::span<at::Tensor> outputs;
  std::span<at::Tensor> results;
};

/// What follows the kernels of a call: the actions of its plan, one after the other.
void run_actions(const std::shared_ptr<const EntryState>& entry, const CallTensors& tensors,
                 std::unique_ptr<Snapshot> snapshot);

}  // namespace tandem::runtime
