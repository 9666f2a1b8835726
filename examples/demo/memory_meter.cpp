#include "memory_meter.h"

#include <utility>

namespace demo {

struct MemoryMeter::Block {
  c10::DataPtr memory;
  MemoryMeter* meter;
  Side side;
  int64_t bytes;
};

MemoryMeter::MemoryMeter() : inner_(c10::GetAllocator(c10::DeviceType::CPU)) {
  c10::SetAllocator(c10::DeviceType::CPU, this, /*priority=*/1);
}

int64_t MemoryMeter::peak_bytes(Side side) const {
  return counts_[static_cast<size_t>(side)].peak.load();
}

c10::DataPtr MemoryMeter::allocate(size_t bytes) {
  c10::DataPtr memory = inner_->allocate(bytes);
  void* data = memory.get();
  const c10::Device device = memory.device();
  auto* block = new Block{std::move(memory), this, active_.load(std::memory_order_relaxed),
                          static_cast<int64_t>(bytes)};
  Count& mine = count(block->side);
  const int64_t live = mine.live += block->bytes;
  int64_t peak = mine.peak.load();
  while (live > peak && !mine.peak.compare_exchange_weak(peak, live)) {
  }
  return {data, block, &MemoryMeter::release, device};
}

void MemoryMeter::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void MemoryMeter::release(void* block) {
  auto* mine = static_cast<Block*>(block);
  mine->meter->count(mine->side).live -= mine->bytes;
  delete mine;
}

}  // namespace demo
