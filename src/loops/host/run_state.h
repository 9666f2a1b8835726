#pragma once

#include "loops/host/host_list.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tandem::loops {

/// Called after a kernel, with what it read and wrote: TANDEM_CHECK.
using KernelCheck = std::function<void(const KernelStep& step, std::span<const at::Tensor> inputs,
                                       std::span<const at::Tensor> outputs)>;

/// Memory of one device for arenas, shared by all graphs of the process: a backward runs in the
/// block that its forward left. Blocks are kept, since touching new pages costs more than computing
/// on them, until the last graph is gone; or not at all, if the device's allocator keeps them.
class ArenaPool {
 public:
  ArenaPool(const Target& target, c10::Device device) : target_(target), device_(device) {}
  struct Block {
    at::DataPtr memory{};
    size_t bytes = 0;
  };
  static std::shared_ptr<ArenaPool> of(const Target& target, c10::Device device);

  /// The smallest free block that is large enough; else a new one in place of the largest.
  Block take(size_t bytes);
  void give_back(Block block);
  /// Frees what nobody uses.
  void clear();

 private:
  const Target& target_;
  const c10::Device device_;
  std::mutex mutex_;
  std::vector<Block> free_;
};

/// The state of one run: slots, and tensors that show the arena. Kept between runs.
class RunState {
 public:
  RunState(const HostList& list, const Target& target, ArenaPool& arenas);

  std::vector<at::Tensor> run(std::span<at::Tensor> inputs, Backend& judge,
                              const KernelCheck& check);

 private:
  void take_inputs(std::span<at::Tensor> inputs);
  /// After a write: what kernels read of an input that had to be copied.
  void copy_inputs_again();
  void execute(const KernelStep& step, Backend& judge, const KernelCheck& check);
  void execute(const LibraryStep& step);
  void execute(const ViewStepping& step);
  void execute(const EagerStep& step);
  const at::Tensor& tensor(Slot slot) const { return slots_[static_cast<size_t>(slot)].toTensor(); }
  c10::IValue value(Slot slot) const;
  void clear();

  /// Lets the tensors show this block.
  void settle_in(void* memory);

  const HostList& list_;
  const Target& target_;
  ArenaPool& arenas_;
  void* arena_ = nullptr;             // where the tensors are at the moment
  std::vector<at::Tensor> in_arena_;  // per output tensor; undefined: not there
  std::vector<c10::IValue> slots_;
  std::vector<size_t> copied_inputs_;
  std::vector<void*> pointers_;
  torch::jit::Stack stack_;
};

/// Those that nobody uses at the moment: as many as there were runs at once.
class RunStates {
 public:
  RunStates(const HostList& list, const Target& target)
      : list_(list), target_(target), arenas_(ArenaPool::of(target, arena_device(list, target))) {}
  std::unique_ptr<RunState> take();
  void give_back(std::unique_ptr<RunState> state);
  /// Those in use stay.
  void clear();

 private:
  const HostList& list_;
  const Target& target_;
  std::shared_ptr<ArenaPool> arenas_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RunState>> free_;
};

}  // namespace tandem::loops
