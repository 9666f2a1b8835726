#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace demo {

enum class Side : uint8_t { Neither, Eager, Tandem };

/// Counts the bytes of tensors, by who allocated them.
///
/// While it lives it stands before libtorch's CPU allocator, so make one, first thing in main, and
/// keep it. A block counts for the side that was active when it was made, whoever frees it.
class MemoryMeter final : public c10::Allocator {
 public:
  MemoryMeter();

  void set_active(Side side) { active_.store(side, std::memory_order_relaxed); }
  /// The most that lived at one time.
  int64_t peak_bytes(Side side) const;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  struct Block;
  struct Count {
    std::atomic<int64_t> live = 0;
    std::atomic<int64_t> peak = 0;
  };
  static void release(void* block);
  Count& count(Side side) { return counts_[static_cast<size_t>(side)]; }

  c10::Allocator* inner_;
  std::atomic<Side> active_ = Side::Neither;
  std::array<Count, 3> counts_;
};

}  // namespace demo
