#pragma once

#include "backends/llvm_common/host_list.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tandem::backends::llvm_common {

/// Called after a kernel, with what it read and wrote: TANDEM_CHECK.
using KernelCheck = std::function<void(const KernelStep& step, std::span<const at::Tensor> inputs,
                                       std::span<const at::Tensor> outputs)>;

/// The state of one run: slots and arena. Kept between runs; the arena is never given back while
/// the graph lives, since touching new pages costs more than computing on them.
class Frame {
 public:
  explicit Frame(const HostList& list);

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

  const HostList& list_;
  at::DataPtr arena_;
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

 private:
  const HostList& list_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> free_;
};

}  // namespace tandem::backends::llvm_common
