#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace bench {

enum class Side : uint8_t { Neither, Eager, Tandem, Fast };  // Fast: Tandem with free rounding

/// Counts the bytes of tensors, by who allocated them.
///
/// Once made it stands before libtorch's CPU allocator for good, so make one and never delete it:
/// blocks refer to it. A block counts for the side that was active when it was made, whoever frees
/// it.
class MemoryMeter final : public c10::Allocator {
 public:
  MemoryMeter();

  void set_active(Side side) { active_.store(side, std::memory_order_relaxed); }
  /// The most that lived at one time, since the last `restart` if there was one.
  int64_t peak_bytes(Side side) const;
  /// Forgets the peak; returns what lives now.
  int64_t restart(Side side);

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  struct Header;
  struct Count {
    std::atomic<int64_t> live = 0;
    std::atomic<int64_t> peak = 0;
  };
  static void release(void* data);
  Count& count(Side side) { return counts_[static_cast<size_t>(side)]; }

  c10::Allocator* inner_;
  std::atomic<Side> active_ = Side::Neither;
  std::array<Count, 4> counts_;
};

}  // namespace bench
