#include "memory_meter.h"

#include <new>

namespace bench {
namespace {

/// In front of every block: oneDNN frees what it allocates by the address of the data alone, so
/// there is no other place for what must be known then. As large as libtorch's alignment.
constexpr size_t kHeaderBytes = 64;

}  // namespace

struct MemoryMeter::Header {
  MemoryMeter* meter;
  Side side;
  int64_t bytes;
};

MemoryMeter::MemoryMeter() : inner_(c10::GetAllocator(c10::DeviceType::CPU)) {
  static_assert(sizeof(Header) <= kHeaderBytes);
  c10::SetAllocator(c10::DeviceType::CPU, this, /*priority=*/1);
}

int64_t MemoryMeter::peak_bytes(Side side) const {
  return counts_[static_cast<size_t>(side)].peak.load();
}

int64_t MemoryMeter::restart(Side side) {
  const int64_t live = count(side).live.load();
  count(side).peak.store(live);
  return live;
}

c10::DataPtr MemoryMeter::allocate(size_t bytes) {
  if (bytes == 0) return inner_->allocate(0);
  auto* start = static_cast<char*>(inner_->raw_allocate(bytes + kHeaderBytes));
  auto* header = new (start)
      Header{this, active_.load(std::memory_order_relaxed), static_cast<int64_t>(bytes)};
  Count& mine = count(header->side);
  const int64_t live = mine.live += header->bytes;
  int64_t peak = mine.peak.load();
  while (live > peak && !mine.peak.compare_exchange_weak(peak, live)) {
  }
  void* data = start + kHeaderBytes;
  return {data, data, &MemoryMeter::release, c10::Device(c10::DeviceType::CPU)};
}

void MemoryMeter::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void MemoryMeter::release(void* data) {
  if (data == nullptr) return;
  auto* start = static_cast<char*>(data) - kHeaderBytes;
  const auto* header = reinterpret_cast<Header*>(start);
  MemoryMeter* meter = header->meter;
  meter->count(header->side).live -= header->bytes;
  meter->inner_->raw_deallocate(start);
}

}  // namespace bench
