#pragma once

#include "base/seldom.h"
#include "runtime/backward/found_memory.h"
#include "runtime/backward/primals.h"
#include "runtime/entry_state.h"

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace tandem::runtime {

/// What one call keeps for its backward: the saved values, with eager's checks of versions and of a
/// second backward. The nodes of one call share it.
class KeptValues {
 public:
  KeptValues() = default;
  KeptValues(const KeptValues&) = delete;
  KeptValues& operator=(const KeptValues&) = delete;
  ~KeptValues() { give_memory(); }

  /// `outputs` are the forward graph's, `results` the function's, with their history; so are
  /// `bases`.
  void save(const EntryState& entry, std::span<const at::Tensor> inputs,
            std::span<at::Tensor> outputs, std::span<const at::Tensor> results,
            std::span<const at::Tensor> bases = {});

  /// Hands over what a backward reads, as the first inputs of its kernels. `node` is the one whose
  /// backward asks: eager's error texts name it as the origin of a result.
  std::vector<at::Tensor> take(const EntryState& entry, const Backward& backward,
                               torch::autograd::Node& node);
  /// What was taken before the kernels ran; before save().
  void keep(std::unique_ptr<Snapshot> snapshot) { snapshot_ = std::move(snapshot); }
  /// Whether set_data() has given other memory to an input that the backward reads in several ways:
  /// then it must start from the primals.
  bool must_trace(const EntryState& entry);
  /// What a backward that traces the function again starts from, after the same checks as in
  /// take().
  Primals take_primals(const EntryState& entry, const Backward& backward,
                       torch::autograd::Node& node);
  /// After a backward without a kept graph.
  void release();
  /// The same for one of several nodes, where others may still need what is kept. libtorch also
  /// calls it when a node dies.
  void release_if_spent();

 private:
  void clear();
  /// An argument kept by reference, with the version that it had and where it lay.
  struct SavedArgument {
    SavedArgument(const at::Tensor& tensor, uint32_t version) : tensor(tensor), version(version) {
      if (tensor.has_storage()) memory.note(tensor);
    }
    at::Tensor tensor;
    uint32_t version;
    FoundMemory memory{};
  };
  /// An input to which set_data() has given other memory since the call.
  struct Exchanged {
    size_t input;
    const at::Tensor& tensor;
    const FoundMemory& found;
  };
  /// A result whose memory the backward reads, or an input whose sizes the call changed. Only the
  /// counter is kept: the result points to its node, so with the tensor neither would ever die.
  struct Watched {
    c10::VariableVersion counter;
    uint32_t version;
    int64_t number;  // of the result among the node's; -1: an input
  };

  std::vector<Exchanged> find_exchanged(const EntryState& entry);
  at::Tensor switched(const EntryState& entry, size_t input) const;
  void follow_exchange(const EntryState& entry, size_t input, at::Tensor& kept) const;
  void take_exchanged(const EntryState& entry, const std::vector<Exchanged>& exchanged,
                      Primals& taken) const;
  void note_memory(const EntryState& entry, std::span<const at::Tensor> inputs);
  void give_memory();
  void save_primals(const EntryState& entry, std::span<const at::Tensor> inputs);
  void save_with_hooks(const EntryState& entry, std::span<const at::Tensor> inputs,
                       std::span<at::Tensor> outputs);
  void require_unspent(const Backward& backward) const;
  void spend(const EntryState& entry, const Backward& backward);
  std::vector<at::Tensor> take_nothing_saved(const EntryState& entry);
  /// One slot of the plan that is an input.
  struct SavedInput {
    const at::Tensor& tensor;
    at::Tensor* argument;  // the same if it is kept here; null: closed over
    uint32_t version;
    const FoundMemory* found;  // null: it is read as it is
    const CallPlan::SavedInput& plan;
    const ir::InputFacts& facts;
  };
  struct Cursor {
    size_t input = 0, argument = 0, lifted = 0;
    size_t itself = 0, itself_argument = 0;
  };
  /// That of the slot, which must be the next one after the last that was asked for.
  SavedInput next_input(const EntryState& entry, size_t slot, Cursor& cursor);
  void check_versions(const EntryState& entry, const Backward& backward,
                      torch::autograd::Node& node);
  /// The next input that the backward writes.
  const at::Tensor& next_itself(const EntryState& entry, Cursor& cursor) const;

  std::mutex mutex_;
  // In the order of the plan's slots; each slot is in one of these three.
  c10::SmallVector<SavedArgument, 2> arguments_;
  c10::SmallVector<uint32_t, 8> lifted_versions_;  // the entry owns the tensors
  FoundMemories lifted_memory_;
  const EntryState* entry_ = nullptr;  // whose pool lifted_memory_ goes back to: it outlives this
  c10::SmallVector<at::Tensor, 2> values_;
  c10::SmallVector<Watched, 1> watched_;
  // For a backward that traces the function again.
  c10::SmallVector<SavedArgument, 2> primals_;
  c10::SmallVector<uint32_t, 4> primal_versions_;  // of closed-over ones
  // What few calls keep. Apart, for a node of more than 1,032 bytes is taken from malloc in its
  // slow way.
  base::Seldom<std::vector<SavedArgument>> rewritten_;
  base::Seldom<std::vector<size_t>> apart_;  // inputs that nobody reads and that stand apart
  /// Arguments that the backward writes. As what a hook closes over they live as long as the graph.
  base::Seldom<std::vector<at::Tensor>> itself_;
  std::unique_ptr<Snapshot> snapshot_;
  /// All of it, where the user's hooks pack it.
  base::Seldom<std::vector<torch::autograd::SavedVariable>> hooked_;
  bool released_ = false;  // every formula is used up
  bool cleared_ = false;
  // Results may be differentiated one by one, or for some inputs; what eager frees then is what
  // those formulas have saved. The lists are empty until that happens.
  base::Seldom<std::vector<bool>> used_up_;  // by formula
  base::Seldom<std::vector<bool>> spent_;    // by tangent: for all that it leads to
  base::Seldom<std::vector<bool>> taken_;    // by slot
  bool spared_ = false;                      // the last backward has released what it may by itself
};

}  // namespace tandem::runtime
