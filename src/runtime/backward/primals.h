#pragma once

#include "partition/keeping.h"
#include "runtime/call/call_plan.h"
#include "tandem/stages.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tandem::runtime {

/// What a call has to keep so that its gradients can be differentiated again: the inputs that some
/// gradient depends on, as the call found them (partition has decided how each is kept), and the
/// states of the generators.
struct PrimalPlan {
  using How = partition::KeptPrimal::As;
  std::vector<How> how;  // one per input
  std::vector<size_t> held, copied, reshaped, groups;
  /// Inputs of kind Held that the saved values hold already.
  struct SavedInput {
    size_t input, slot;
    size_t argument;  // among the arguments that are saved
  };
  std::vector<SavedInput> saved;
  /// Inputs of kind Lifted whose version is not kept with the saved values.
  std::vector<size_t> watched;
  /// Closed-over inputs that some gradient depends on.
  std::vector<size_t> read_lifted;
  /// Arguments of kind Copied that no graph leads from to the call: they are held, too, since the
  /// backward reads what they hold by then.
  std::vector<size_t> rewritten;
  /// Leaves of kind Unread. Whether they stand apart is kept, and nothing else.
  std::vector<size_t> unread_leaves;
  /// Closed-over inputs that the call changes, read or not: a copy is passed in their place.
  std::vector<size_t> replaced;
  /// What the call draws from; none stands for the default generator of the CPU.
  std::vector<std::optional<at::Generator>> generators;
  /// The function counts from the start of storages (as_strided): inputs must lie where they did.
  bool counts_offsets = false;

  bool needs_snapshot() const {
    return !copied.empty() || !reshaped.empty() || !groups.empty() || !generators.empty();
  }
};

PrimalPlan make_primal_plan(const ir::Graph& joint, const Split& split, const CallPlan& call);

/// What of that must be taken before the kernels run.
struct Snapshot {
  bool has_copies = false;
  /// Inputs and members of groups with their positions, and the histories that they had.
  std::vector<std::pair<size_t, at::Tensor>> copies;
  torch::autograd::edge_list accumulators;  // of copies that are leaves: those hold them weakly
  std::vector<at::Tensor> states;           // of the generators

  const at::Tensor* copy_of(size_t input) const;
};

/// `inputs` are the call's, followed by the bases of its groups.
Snapshot take_snapshot(const PrimalPlan& plan, const ir::Signature& signature,
                       std::span<const at::Tensor> inputs, bool with_copies);

/// The inputs of a call as it found them, one per input of the signature, and where the generators
/// stood.
struct Primals {
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> states;
  /// Inputs to which set_data() has given other memory since, by position, and what they are now.
  std::vector<size_t> exchanged;
  std::vector<at::Tensor> by_now;
  torch::autograd::edge_list accumulators;  // of inputs that are leaves: those hold them weakly
};

/// `data`, what an input was when it was called with, and what the input is to autograd.
at::Tensor input_with(const at::Tensor& data, const at::Tensor& input,
                      torch::autograd::edge_list& accumulators);

/// A tensor on the memory of `data` with this history. If it is a view it gets another history
/// whenever that memory is written, as the tensor in whose place it is.
at::Tensor with_history(const at::Tensor& data, const torch::autograd::Edge& history, bool is_view);

/// A leaf that is a view of a tensor without grad: of that tensor is a view what is taken of it.
bool stands_apart(const at::Tensor& tensor);

/// A tensor like an input that nobody reads, of these dispatch keys; where in its storage it
/// starts; whether it stands_apart().
at::Tensor like_unread(const ir::InputFacts& facts, c10::DispatchKeySet keys, int64_t offset,
                       bool apart);

}  // namespace tandem::runtime
