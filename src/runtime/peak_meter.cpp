#include "runtime/peak_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

std::atomic<bool> on{false};

}  // namespace

void PeakMeter::set_on(bool measures) { on.store(measures, std::memory_order_relaxed); }

bool PeakMeter::is_on() { return on.load(std::memory_order_relaxed); }

struct PeakMeter::Probe::State {
  // libtorch tells whoever stands where its profiler would; no allocator is replaced.
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device device) override {
      if (!device.is_cpu()) return;
      use.end += size;
      use.peak = std::max(use.peak, use.end);
    }
    bool memoryProfilingEnabled() const override { return true; }
    partition::MemoryUse use;
  };
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

PeakMeter::Probe::Probe() {
  if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr)
    state_ = std::make_unique<State>();
}

PeakMeter::Probe::~Probe() = default;

std::optional<partition::MemoryUse> PeakMeter::Probe::use() const {
  if (!state_) return std::nullopt;
  return state_->counter->use;
}

std::optional<partition::MemoryUse> PeakMeter::measured(Half half) const {
  std::lock_guard lock(mutex_);
  return uses_[place(half)];
}

void PeakMeter::note(Half half, const partition::MemoryUse& use) {
  std::lock_guard lock(mutex_);
  uses_[place(half)] = use;
  done_[place(half)].store(true, std::memory_order_relaxed);
}

}  // namespace tandem::runtime
