#include "loops/host/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace tandem::loops {
MemoryPlan plan_memory(const std::vector<MemoryNeed>& needs, int64_t alignment) {
  const auto aligned = [&](int64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  };
  std::vector<size_t> order(needs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return needs[a].bytes > needs[b].bytes; });

  MemoryPlan plan;
  plan.offsets.assign(needs.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (size_t next : order) {
    const MemoryNeed& need = needs[next];
    int64_t offset = 0;
    for (size_t other : placed) {
      const MemoryNeed& taken = needs[other];
      if (taken.end < need.begin || need.end < taken.begin) continue;
      if (offset + need.bytes <= plan.offsets[other]) break;  // fits into the gap before it
      offset = std::max(offset, plan.offsets[other] + aligned(taken.bytes));
    }
    plan.offsets[next] = offset;
    plan.bytes = std::max(plan.bytes, offset + aligned(need.bytes));
    const auto place = std::ranges::upper_bound(placed, offset, {},
                                                [&](size_t other) { return plan.offsets[other]; });
    placed.insert(place, next);
  }
  return plan;
}

}  // namespace tandem::loops
