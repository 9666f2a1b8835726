#pragma once

#include "partition/memory_use.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace tandem::runtime {

/// What the kernels of an entry took from libtorch's CPU allocator when they ran for the first
/// time, to stand beside what was predicted. Only when asked for: libtorch warns of memory that is
/// freed in a measured run and was taken before.
class PeakMeter {
 public:
  enum class Half : uint8_t { Forward, Backward };

  /// For the whole process (TANDEM_MEASURE_PEAK, read by every compile).
  static void set_on(bool on);

  /// Not measured yet.
  bool wants(Half half) const {
    return is_on() && !done_[place(half)].load(std::memory_order_relaxed);
  }

  /// Runs and measures. While somebody else watches this thread's memory, a profiler, it only runs.
  template <class Run>
  auto measure(Half half, const Run& run) {
    Probe probe;
    auto result = run();
    if (const auto use = probe.use()) note(half, *use);
    return result;
  }

  std::optional<partition::MemoryUse> measured(Half half) const;

 private:
  /// Counts for this thread while it lives.
  class Probe {
   public:
    Probe();
    ~Probe();
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;
    std::optional<partition::MemoryUse> use() const;

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

  static bool is_on();
  static size_t place(Half half) { return static_cast<size_t>(half); }
  void note(Half half, const partition::MemoryUse& use);

  mutable std::mutex mutex_;
  std::array<std::optional<partition::MemoryUse>, 2> uses_;
  std::array<std::atomic<bool>, 2> done_{};
};

}  // namespace tandem::runtime
