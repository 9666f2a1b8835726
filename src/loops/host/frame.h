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

/// Memory for arenas, shared by all graphs of the process: a backward runs in the block that its
/// forward left. Blocks are kept, since touching new pages costs more than computing on them, until
/// the last graph is gone.
class ArenaPool {
 public:
  struct Block {
    at::DataPtr memory{};
    size_t bytes = 0;
  };
  static std::shared_ptr<ArenaPool> of_process();

  /// The smallest free block that is large enough; else a new one in place of the largest.
  Block take(size_t bytes);
  void give_back(Block block);
  /// Frees what nobody uses.
  void clear();

 private:
  std::mutex mutex_;
  std::vector<Block> free_;
};

/// The state of one run: slots, and tensors that show the arena. Kept between runs.
class Frame {
 public:
  Frame(const HostList& list, ArenaPool& arenas);

  std::vector<at::Tensor> run(std::span<at::Tensor> inputs, Backend& judge,
                              const KernelCheck& check);

 private:
  void take_inputs(std::span<at::Tensor> inputs);
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
  ArenaPool& arenas_;
  void* arena_ = nullptr;             // where the tensors are at the moment
  std::vector<at::Tensor> in_arena_;  // per output tensor; undefined: not there
  std::vector<c10::IValue> slots_;
  std::vector<void*> pointers_;
  torch::jit::Stack stack_;
};

/// Frames that nobody uses at the moment: as many as there were runs at once.
class FramePool {
 public:
  explicit FramePool(const HostList& list) : list_(list) {}
  std::unique_ptr<Frame> take();
  void give_back(std::unique_ptr<Frame> frame);
  /// Frames in use stay.
  void clear();

 private:
  const HostList& list_;
  std::shared_ptr<ArenaPool> arenas_ = ArenaPool::of_process();
  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_;
};

}  // namespace tandem::loops
