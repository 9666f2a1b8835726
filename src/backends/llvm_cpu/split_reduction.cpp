#include "backends/llvm_cpu/split_reduction.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {

using loops::Access;
using loops::Buffer;
using loops::BufferRole;
using loops::Instruction;
using loops::Kernel;
using loops::kNone;
using loops::LoopOp;
using loops::Phase;

namespace {

constexpr int64_t kFewResults = 16384;      // more of them are work for several threads
constexpr int64_t kWorthSplitting = 65536;  // elements
constexpr int64_t kManyRows = 64;           // enough to share among threads
constexpr int64_t kMostParts = 64, kBestParts = 32;

/// The number of pieces: a divisor of the extent near the best; 1 if there is none.
int64_t parts_of(int64_t extent) {
  for (int64_t parts = kBestParts; parts > 1; --parts)
    if (extent % parts == 0 && parts >= 8) return parts;
  for (int64_t parts = kBestParts; parts <= kMostParts; ++parts)
    if (extent % parts == 0) return parts;
  for (int64_t parts = 7; parts > 1; --parts)
    if (extent % parts == 0) return parts;
  return 1;
}

bool can_be_split(const Kernel& kernel, size_t dim) {
  int inner = 0;
  for (const Phase& phase : kernel.phases) {
    inner += phase.inner;
    for (int32_t at = phase.begin; at < phase.end; ++at) {
      const Instruction& line = kernel.body[static_cast<size_t>(at)];
      // Pieces would write it once each.
      if (line.op == LoopOp::Store && !phase.inner && inner == 0) return false;
      if (line.op == LoopOp::Index && line.slot == static_cast<int32_t>(dim)) return false;
      if (line.op == LoopOp::ReduceArgmax || line.op == LoopOp::ReduceArgmin) return false;
    }
  }
  for (const Buffer& buffer : kernel.buffers)
    if (buffer.role == BufferRole::Scratch) return false;
  return inner == 1;
}

/// Whether what is reduced lies side by side in memory.
bool walks_rows(const Kernel& kernel) {
  int along = 0, across = 0;
  for (const Access& access : kernel.accesses) {
    along += access.strides.back() == 1;
    for (size_t dim = 0; dim < static_cast<size_t>(kernel.kept); ++dim)
      across += access.strides[dim] == 1 && access.strides.back() != 0;
  }
  return along > across;
}

/// Where the piece's result for an index of the kept dims lies: piece after piece, the kept dims in
/// order.
Access result_access(const Kernel& kernel, int32_t buffer, bool part_first) {
  Access access{.buffer = buffer, .strides = {}};
  int64_t stride = 1;
  for (auto dim = static_cast<size_t>(kernel.kept); dim-- > 0;) {
    access.strides.insert(access.strides.begin(), stride);
    stride *= kernel.dims[dim].extent;
  }
  access.strides.insert(part_first ? access.strides.begin() : access.strides.end(), stride);
  return access;
}

}  // namespace

std::optional<SplitReduction> split_reduction(const Kernel& kernel) {
  const auto kept = static_cast<size_t>(kernel.kept);
  if (kept == kernel.dims.size()) return std::nullopt;
  if (kernel.kept_count() > kFewResults) return std::nullopt;
  if (kernel.kept_count() * kernel.reduced_count() < kWorthSplitting) return std::nullopt;
  size_t longest = kept;
  for (size_t dim = kept; dim < kernel.dims.size(); ++dim)
    if (kernel.dims[dim].extent > kernel.dims[longest].extent) longest = dim;
  const int64_t parts = parts_of(kernel.dims[longest].extent);
  if (parts == 1 || !can_be_split(kernel, longest)) return std::nullopt;
  const int64_t piece = kernel.dims[longest].extent / parts;
  // Rows that one thread each takes anyway are not split.
  if (kernel.kept_count() >= kManyRows && walks_rows(kernel)) return std::nullopt;

  SplitReduction result{kernel, kernel};
  const auto inner =
      static_cast<size_t>(std::find_if(kernel.phases.begin(), kernel.phases.end(),
                                       [](const Phase& phase) { return phase.inner; }) -
                          kernel.phases.begin());
  std::vector<int32_t> reductions;
  for (int32_t at = kernel.phases[inner].begin; at < kernel.phases[inner].end; ++at)
    if (loops::is_reduction(kernel.body[static_cast<size_t>(at)].op)) reductions.push_back(at);
  if (reductions.empty()) return std::nullopt;

  // ---- partial: one more kept dim, before all others ----
  Kernel& partial = result.partial;
  partial.name += "_partial";
  partial.dims[longest].extent = piece;
  partial.dims.insert(partial.dims.begin(), {"part", parts});
  ++partial.kept;
  for (Access& access : partial.accesses)
    access.strides.insert(access.strides.begin(), access.strides[longest] * piece);
  for (Instruction& line : partial.body)
    if (line.op == LoopOp::Index) ++line.slot;
  partial.body.resize(static_cast<size_t>(kernel.phases[inner].end));
  partial.phases.resize(inner + 1);

  // ---- total: the pieces are its reduced dim ----
  Kernel& total = result.total;
  total.name += "_total";
  total.dims.resize(kept);
  total.dims.push_back({"part", parts});
  for (Access& access : total.accesses) {
    access.strides.resize(kept);
    access.strides.push_back(0);
  }
  total.body.clear();
  total.phases.clear();
  std::vector<int32_t> moved(kernel.body.size(), kNone);  // where a line is now
  const auto append = [&](Instruction line, int32_t from) {
    for (int32_t* operand : {&line.a, &line.b, &line.c})
      if (*operand != kNone) *operand = moved[static_cast<size_t>(*operand)];
    moved[static_cast<size_t>(from)] = static_cast<int32_t>(total.body.size());
    total.body.push_back(line);
  };

  const auto first_new = static_cast<int32_t>(kernel.buffers.size());
  for (size_t p = 0; p < kernel.phases.size(); ++p) {
    const Phase& phase = kernel.phases[p];
    const auto begin = static_cast<int32_t>(total.body.size());
    if (p != inner) {
      for (int32_t at = phase.begin; at < phase.end; ++at)
        append(kernel.body[static_cast<size_t>(at)], at);
    } else {
      const auto partial_begin = static_cast<int32_t>(partial.body.size());
      for (size_t i = 0; i < reductions.size(); ++i) {
        const Instruction& line = kernel.body[static_cast<size_t>(reductions[i])];
        const int64_t elements = parts * kernel.kept_count();
        const auto buffer = first_new + static_cast<int32_t>(i);
        partial.buffers.push_back({"partial", BufferRole::Out, line.dtype, elements});
        partial.accesses.push_back(result_access(kernel, buffer, true));
        partial.accesses.back().strides.resize(partial.dims.size());
        partial.body.push_back({.op = LoopOp::Store,
                                .dtype = line.dtype,
                                .a = reductions[i],
                                .slot = static_cast<int32_t>(partial.accesses.size()) - 1});
        total.buffers.push_back({"partial", BufferRole::In, line.dtype, elements});
        Access access = result_access(kernel, buffer, false);
        total.accesses.push_back(std::move(access));
        total.body.push_back({.op = LoopOp::Load,
                              .dtype = line.dtype,
                              .slot = static_cast<int32_t>(total.accesses.size()) - 1});
        const auto loaded = static_cast<int32_t>(total.body.size()) - 1;
        moved[static_cast<size_t>(reductions[i])] = loaded + 1;
        total.body.push_back({.op = line.op, .dtype = line.dtype, .a = loaded});
      }
      partial.phases.push_back({false, partial_begin, static_cast<int32_t>(partial.body.size())});
    }
    total.phases.push_back({phase.inner, begin, static_cast<int32_t>(total.body.size())});
  }
  return result;
}

}  // namespace tandem::backends::llvm_cpu
