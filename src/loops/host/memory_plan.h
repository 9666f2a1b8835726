#pragma once

#include <cstdint>
#include <vector>

namespace tandem::loops {

/// Memory that is needed from one step to another, both included.
struct MemoryNeed {
  int64_t bytes = 0;
  int32_t begin = 0, end = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets{};  // one per need, aligned
  int64_t bytes = 0;               // of the whole arena
};

/// Places for all of them in one block: needs that overlap in time do not overlap in memory. The
/// largest first, each at the lowest place that is free while it lives.
MemoryPlan plan_memory(const std::vector<MemoryNeed>& needs, int64_t alignment);

}  // namespace tandem::loops
