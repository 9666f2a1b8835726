#include "loops/host/run_state.h"

#include "base/error.h"

#include <ATen/Functions.h>
#include <c10/core/DispatchKeySet.h>

#include <map>
#include <utility>

namespace tandem::loops {
namespace {

/// A tensor that shows memory of a storage.
at::Tensor show(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage),
                                                         keys, dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

/// Whether a kernel may read it through the strides of the graph's type.
bool conforms(const at::Tensor& tensor, const ir::TensorType& type) {
  constexpr c10::DispatchKeySet kLazyBits(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  if (!tensor.has_storage() || tensor.key_set().has_any(kLazyBits)) return false;
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides[i] != type.strides[i].value()) return false;
  }
  return true;
}

/// One element of each that lie at one place.
at::Tensor without_repeats(at::Tensor tensor, const ir::TensorType& type) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (type.strides[static_cast<size_t>(dim)].value() == 0 && tensor.size(dim) > 1)
      tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

/// The tensor, or a copy that lies as the graph says. Kernels have its strides in their code.
at::Tensor conforming(const at::Tensor& tensor, const ir::TensorType& type) {
  if (!tensor.defined() || conforms(tensor, type)) return tensor;
  at::Tensor copy = at::empty_strided(type.static_sizes(), type.static_strides(), tensor.options());
  without_repeats(copy, type).copy_(without_repeats(tensor, type));
  return copy;
}

}  // namespace

std::shared_ptr<ArenaPool> ArenaPool::of(const Target& target, c10::Device device) {
  using Key = std::pair<const Target*, c10::DeviceIndex>;
  static auto* mutex = new std::mutex;
  static auto* pools = new std::map<Key, std::weak_ptr<ArenaPool>>;
  const std::lock_guard lock(*mutex);
  std::weak_ptr<ArenaPool>& current = (*pools)[{&target, device.index()}];
  std::shared_ptr<ArenaPool> pool = current.lock();
  if (pool == nullptr) current = pool = std::make_shared<ArenaPool>(target, device);
  return pool;
}

ArenaPool::Block ArenaPool::take(size_t bytes) {
  Block dropped;  // freed outside of the lock, before new memory is taken
  {
    const std::lock_guard lock(mutex_);
    auto found = free_.end(), largest = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes >= bytes && (found == free_.end() || it->bytes < found->bytes)) found = it;
      if (largest == free_.end() || it->bytes > largest->bytes) largest = it;
    }
    const bool fits = found != free_.end();
    const auto taken = fits ? found : largest;
    if (taken != free_.end()) {
      dropped = std::move(*taken);
      free_.erase(taken);
    }
    if (fits) return dropped;
  }
  dropped.memory.clear();
  return {target_.allocate(bytes, device_), bytes};
}

void ArenaPool::give_back(Block block) {
  if (!target_.keeps_arenas) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
}

void ArenaPool::clear() {
  std::vector<Block> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(free_);
}

RunState::RunState(const HostList& list, const Target& target, ArenaPool& arenas)
    : list_(list),
      target_(target),
      arenas_(arenas),
      in_arena_(list.tensors.size()),
      slots_(list.slot_count) {
  if (list.arena_bytes == 0) return;
  const c10::DispatchKeySet keys =
      target.empty_strided({0}, {1}, at::kFloat, arena_device(list, target)).key_set();
  for (size_t i = 0; i < list.tensors.size(); ++i) {
    const OutputTensor& tensor = list.tensors[i];
    if (tensor.arena_offset < 0) continue;
    const auto bytes = static_cast<size_t>(list.arena_bytes - tensor.arena_offset);
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                         at::DataPtr(nullptr, tensor.type->device));
    in_arena_[i] = show(std::move(storage), keys, c10::scalarTypeToTypeMeta(tensor.type->dtype),
                        tensor.sizes, tensor.strides, 0);
  }
}

void RunState::settle_in(void* memory) {
  if (memory == arena_) return;
  arena_ = memory;
  for (size_t i = 0; i < in_arena_.size(); ++i) {
    if (!in_arena_[i].defined()) continue;
    const OutputTensor& tensor = list_.tensors[i];
    char* const start = static_cast<char*>(memory) + tensor.arena_offset;
    in_arena_[i].storage().set_data_ptr_noswap(at::DataPtr(start, tensor.type->device));
  }
}

std::vector<at::Tensor> RunState::run(std::span<at::Tensor> inputs, Backend& judge,
                                      const KernelCheck& check) {
  struct Clear {
    RunState& state;
    ArenaPool::Block block{};
    ~Clear() {
      state.clear();
      if (block.bytes != 0) state.arenas_.give_back(std::move(block));
    }
  } clear_at_end{*this};
  if (list_.arena_bytes != 0) {
    clear_at_end.block = arenas_.take(static_cast<size_t>(list_.arena_bytes));
    settle_in(clear_at_end.block.memory.get());
  }
  take_inputs(inputs);
  for (const auto& [slot, constant] : list_.constant_slots)
    slots_[static_cast<size_t>(slot)] = list_.constants[static_cast<size_t>(constant)];
  for (const Step& step : list_.steps) {
    std::visit(
        [&](const auto& what) {
          if constexpr (std::is_same_v<std::decay_t<decltype(what)>, KernelStep>) {
            execute(what, judge, check);
          } else {
            execute(what);
          }
        },
        step.what);
    for (Slot slot : step.released) slots_[static_cast<size_t>(slot)] = c10::IValue();
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(list_.outputs.size());
  for (Slot slot : list_.outputs) outputs.push_back(slot == kNoSlot ? at::Tensor() : tensor(slot));
  return outputs;
}

void RunState::take_inputs(std::span<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor given = list_.releasable[i] ? std::move(inputs[i]) : inputs[i];
    if (list_.releasable[i]) inputs[i].reset();
    const Readable& readable = list_.readable_inputs[i];
    if (readable.slot != kNoSlot) {
      at::Tensor copy = conforming(given, *readable.type);
      if (readable.slot != list_.inputs[i] && !copy.is_same(given)) copied_inputs_.push_back(i);
      slots_[static_cast<size_t>(readable.slot)] = std::move(copy);
    }
    if (readable.slot != list_.inputs[i])
      slots_[static_cast<size_t>(list_.inputs[i])] = std::move(given);
  }
}

void RunState::copy_inputs_again() {
  for (size_t i : copied_inputs_) {
    const c10::IValue& given = slots_[static_cast<size_t>(list_.inputs[i])];
    c10::IValue& copy = slots_[static_cast<size_t>(list_.readable_inputs[i].slot)];
    if (!given.isTensor() || !copy.isTensor()) continue;
    const ir::TensorType& type = *list_.readable_inputs[i].type;
    without_repeats(copy.toTensor(), type).copy_(without_repeats(given.toTensor(), type));
  }
}

void RunState::execute(const KernelStep& step, Backend& judge, const KernelCheck& check) {
  c10::Device device(target_.device_type);
  for (int32_t index : step.outputs) {
    const OutputTensor& tensor = list_.tensors[static_cast<size_t>(index)];
    device = tensor.type->device;
    slots_[static_cast<size_t>(tensor.slot)] =
        tensor.arena_offset >= 0
            ? in_arena_[static_cast<size_t>(index)]
            : target_.empty_strided(tensor.sizes, tensor.strides, tensor.type->dtype, device);
  }
  pointers_.clear();
  for (Slot slot : step.buffers)
    // Not mutable_data_ptr, which would copy what is shared until somebody writes it.
    pointers_.push_back(slot == kNoSlot ? nullptr
                                        : const_cast<void*>(tensor(slot).const_data_ptr()));
  const CompiledKernel& kernel = *list_.compiled[static_cast<size_t>(step.kernel)];
  const bool in_range = kernel.launch(pointers_, target_.stream(device));
  if (in_range && !check) return;

  std::vector<at::Tensor> inputs, outputs;
  for (ir::ValueId id : step.nodes->inputs) inputs.push_back(tensor(static_cast<Slot>(id)));
  if (!in_range) {
    // The same nodes in eager raise eager's error. With indices of int32 some of libtorch's kernels
    // check nothing and read anywhere.
    for (at::Tensor& input : inputs) {
      if (input.scalar_type() == at::kInt) input = input.to(at::kLong);
    }
    judge.compile(step.nodes->graph, {})->run(inputs);
    TANDEM_CHECK(in_range, "call", "kernel ", step.name,
                 " met an index out of range where eager does not");
  }
  for (ir::ValueId id : step.nodes->outputs) outputs.push_back(tensor(static_cast<Slot>(id)));
  check(step, inputs, outputs);
}

c10::IValue RunState::value(Slot slot) const {
  return slot == kNoSlot ? c10::IValue(at::Tensor()) : slots_[static_cast<size_t>(slot)];
}

void RunState::execute(const LibraryStep& step) {
  stack_.clear();
  for (const LibraryStep::Argument& argument : step.arguments) {
    ops::push(stack_, argument, [this](const LibraryStep::Source& source) {
      return source.constant < 0 ? value(source.slot)
                                 : list_.constants[static_cast<size_t>(source.constant)];
    });
  }
  step.op.callBoxed(stack_);
  if (!copied_inputs_.empty() && may_write(step.op)) copy_inputs_again();
  if (step.results.empty()) return stack_.clear();
  ops::pop_results(stack_, step.shape, [&](size_t index, c10::IValue result) {
    const Slot slot = step.results[index];
    if (slot == kNoSlot) return;
    const Readable& readable = step.readable[index];
    if (readable.slot != kNoSlot && result.isTensor()) {
      at::Tensor copy = conforming(result.toTensor(), *readable.type);
      if (readable.slot == slot) {
        result = std::move(copy);
      } else {
        slots_[static_cast<size_t>(readable.slot)] = std::move(copy);
      }
    }
    slots_[static_cast<size_t>(slot)] = std::move(result);
  });
}

void RunState::execute(const ViewStepping& step) {
  const at::Tensor& from = tensor(step.from);
  slots_[static_cast<size_t>(step.to)] =
      show(from.storage(), from.key_set(), from.dtype(), step.sizes, step.strides,
           from.storage_offset() + step.offset);
}

void RunState::execute(const EagerStep& step) {
  std::vector<at::Tensor> inputs;
  for (Slot slot : step.inputs) inputs.push_back(value(slot).toTensor());
  std::vector<at::Tensor> outputs = step.graph->run(inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (step.outputs[i] != kNoSlot)
      slots_[static_cast<size_t>(step.outputs[i])] = std::move(outputs[i]);
  }
}

void RunState::clear() {
  for (c10::IValue& slot : slots_) slot = c10::IValue();
  copied_inputs_.clear();
  stack_.clear();
}

std::unique_ptr<RunState> RunStates::take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<RunState> state = std::move(free_.back());
      free_.pop_back();
      return state;
    }
  }
  return std::make_unique<RunState>(list_, target_, *arenas_);
}

void RunStates::give_back(std::unique_ptr<RunState> state) {
  std::lock_guard lock(mutex_);
  free_.push_back(std::move(state));
}

void RunStates::clear() {
  arenas_->clear();
  std::vector<std::unique_ptr<RunState>> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(free_);
}

}  // namespace tandem::loops
