#include "loops/kernels/loop_order.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tandem::loops {
namespace {

/// Positive: most accesses have the larger stride in a.
int votes(const Kernel& kernel, size_t a, size_t b) {
  int sum = 0;
  for (const Access& access : kernel.accesses) {
    const int64_t at_a = std::abs(access.strides[a]), at_b = std::abs(access.strides[b]);
    if (at_a == 0 || at_b == 0 || at_a == at_b) continue;
    const bool written = kernel.buffers[static_cast<size_t>(access.buffer)].role != BufferRole::In;
    const int weight = written ? 2 : 1;
    sum += at_a > at_b ? weight : -weight;
  }
  return sum;
}

// The votes need not agree among three loops, so no sort that relies on it.
void insert_in_order(const Kernel& kernel, std::vector<size_t>& order, size_t begin, size_t loop) {
  size_t place = order.size();
  while (place > begin && votes(kernel, loop, order[place - 1]) > 0) --place;
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), loop);
}

}  // namespace

void order_loops(Kernel& kernel, const std::vector<int64_t>& extents,
                 const std::vector<bool>& reduced) {
  std::vector<bool> indexed(extents.size());
  for (const Instruction& line : kernel.body) {
    if (line.op == LoopOp::Index) indexed[static_cast<size_t>(line.slot)] = true;
  }
  std::vector<size_t> order;
  size_t kept = 0;
  for (bool pass : {false, true}) {
    const size_t begin = order.size();
    for (size_t loop = 0; loop < extents.size(); ++loop) {
      if (reduced[loop] == pass) insert_in_order(kernel, order, begin, loop);
    }
    if (!pass) kept = order.size();
  }

  // Each dim is a run of loops; its stride is that of the innermost.
  struct Run {
    size_t inner;
    int64_t extent;
  };
  std::vector<Run> runs;
  std::vector<int32_t> dim_of(extents.size(), kNone);
  size_t kept_runs = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t loop = order[i];
    const bool joins =
        i != 0 && i != kept && !indexed[loop] && !indexed[runs.back().inner] &&
        std::ranges::all_of(kernel.accesses, [&](const Access& access) {
          return access.strides[runs.back().inner] == access.strides[loop] * extents[loop];
        });
    if (joins) {
      runs.back() = {loop, runs.back().extent * extents[loop]};
    } else {
      runs.push_back({loop, extents[loop]});
    }
    dim_of[loop] = static_cast<int32_t>(runs.size() - 1);
    if (i < kept) kept_runs = runs.size();
  }

  kernel.kept = static_cast<int32_t>(kept_runs);
  kernel.dims.clear();
  for (size_t i = 0; i < runs.size(); ++i)
    kernel.dims.push_back(
        {(i < kept_runs ? "i" : "j") + std::to_string(i < kept_runs ? i : i - kept_runs),
         runs[i].extent});
  for (Access& access : kernel.accesses) {
    std::vector<int64_t> strides;
    for (const Run& run : runs) strides.push_back(access.strides[run.inner]);
    access.strides = std::move(strides);
  }
  for (Instruction& line : kernel.body) {
    if (line.op == LoopOp::Index) line.slot = dim_of[static_cast<size_t>(line.slot)];
  }
}

}  // namespace tandem::loops
