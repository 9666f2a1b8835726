#include "backends/llvm_cpu/schedule.h"

#include "backends/llvm_cpu/cpu_target.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdlib>
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

namespace {

bool reads_index(const Kernel& kernel, size_t dim) {
  return std::any_of(kernel.body.begin(), kernel.body.end(), [&](const Instruction& line) {
    return line.op == LoopOp::Index && line.slot == static_cast<int32_t>(dim);
  });
}

void remove_dim(Kernel& kernel, size_t dim) {
  kernel.dims.erase(kernel.dims.begin() + static_cast<ptrdiff_t>(dim));
  for (Access& access : kernel.accesses)
    access.strides.erase(access.strides.begin() + static_cast<ptrdiff_t>(dim));
  if (static_cast<int32_t>(dim) < kernel.kept) --kernel.kept;
  for (Instruction& line : kernel.body)
    if (line.op == LoopOp::Index && line.slot > static_cast<int32_t>(dim)) --line.slot;
}

/// Relative time of one instruction on one vector.
double cost(const Instruction& line) {
  switch (line.op) {
    case LoopOp::Constant:
    case LoopOp::Index:
      return 0;
    case LoopOp::Exp:
    case LoopOp::Exp2:
    case LoopOp::Sigmoid:
    case LoopOp::Log:
    case LoopOp::Expm1:
    case LoopOp::Log2:
    case LoopOp::Log10:
      return 12;
    case LoopOp::RandomBits:
      return 80;
    case LoopOp::Tanh:
    case LoopOp::NormalCdf:
    case LoopOp::Erf:
    case LoopOp::Log1p:
      return 20;
    case LoopOp::Sin:  // with a rare call: side by side they would keep too much in memory
    case LoopOp::Cos:
      return 31;
    case LoopOp::Sqrt:
    case LoopOp::Rsqrt:
    case LoopOp::Div:
    case LoopOp::Reciprocal:
      return 6;
    case LoopOp::Tan:
    case LoopOp::Asin:
    case LoopOp::Acos:
    case LoopOp::Atan:
    case LoopOp::Sinh:
    case LoopOp::Cosh:
    case LoopOp::Asinh:
    case LoopOp::Acosh:
    case LoopOp::Atanh:
    case LoopOp::Erfc:
    case LoopOp::Lgamma:
    case LoopOp::Pow:
    case LoopOp::Atan2:
    case LoopOp::Hypot:
    case LoopOp::Fmod:
    case LoopOp::Remainder:
    case LoopOp::FloorDiv:
      return 150;
    default:
      return 1;
  }
}

double total_cost(const Kernel& kernel, bool inner) {
  double sum = 0;
  for (const loops::Phase& phase : kernel.phases) {
    if (phase.inner != inner) continue;
    for (int32_t i = phase.begin; i < phase.end; ++i)
      sum += cost(kernel.body[static_cast<size_t>(i)]);
  }
  return sum;
}

/// How well the dim serves as the vector's: contiguous accesses count for it, gathers against it.
double vector_score(const Kernel& kernel, size_t dim, int lanes, loops::Sizes sizes) {
  double score = 0;
  const bool kept = static_cast<int32_t>(dim) < kernel.kept;
  for (const loops::Phase& phase : kernel.phases) {
    // A phase that runs once per row weighs little beside those that run for each element of it.
    const double weight =
        phase.inner || kernel.kept == static_cast<int32_t>(kernel.dims.size()) ? 1 : 0.01;
    for (int32_t i = phase.begin; i < phase.end; ++i) {
      const Instruction& line = kernel.body[static_cast<size_t>(i)];
      if (line.op != LoopOp::Load && line.op != LoopOp::Store) continue;
      const Access& access = kernel.accesses[static_cast<size_t>(line.slot)];
      if (kernel.buffers[static_cast<size_t>(access.buffer)].role == BufferRole::Scratch) continue;
      const int64_t stride = access.strides[dim];
      const double effect = stride == 1   ? 2
                            : stride == 0 ? (line.op == LoopOp::Store ? -1 : 0.5)
                                          : -4;
      score += weight * effect * (line.op == LoopOp::Store ? 1.5 : 1);
    }
  }
  const int64_t extent = kernel.dims[dim].extent;
  // Mostly empty vectors. With sizes that vary, what the last vector lacks is no reason to walk in
  // another way: the next size would lack something else.
  const bool rest_counts = sizes == loops::Sizes::Fixed || extent < lanes;
  const int64_t vectors = (extent + lanes - 1) / lanes;
  const double filled = static_cast<double>(extent) / static_cast<double>(vectors * lanes);
  if (rest_counts) score -= 6 * (1 - filled);
  // Ties: a reduced dim wins over a kept one, since it has its row to itself. Then an inner dim
  // wins over an outer one, since its elements are neighbours.
  return score + (kept ? 0 : 0.1) + 0.001 * static_cast<double>(dim);
}

int register_lanes(const Kernel& kernel, InstructionSet set) {
  bool narrow = false, wide = false;
  for (const Instruction& line : kernel.body) {
    const bool is_double = line.dtype == c10::ScalarType::Double;
    wide |= is_double;
    narrow |= !is_double && c10::isFloatingType(line.dtype);
  }
  return wide && !narrow ? lanes(set) / 2 : lanes(set);
}

/// Where some accesses are contiguous along the vector's dim and others along another kept one,
/// short pieces of both keep what is gathered in the first cache.
void choose_tile(Schedule& plan) {
  const Kernel& kernel = plan.kernel;
  if (plan.vector_dim == kNone || !plan.vector_is_kept) return;
  if (kernel.kept < static_cast<int32_t>(kernel.dims.size())) return;
  const auto vector = static_cast<size_t>(plan.vector_dim);
  for (const Access& access : kernel.accesses) {
    if (access.strides[vector] == 0 || access.strides[vector] == 1) continue;
    for (size_t dim = 0; dim < kernel.dims.size(); ++dim) {
      if (dim == vector || access.strides[dim] != 1 || kernel.dims[dim].extent < 4) continue;
      plan.tile_dim = static_cast<int32_t>(dim);
      plan.tile = std::min<int64_t>(16, kernel.dims[dim].extent);
      plan.tiles = (kernel.dims[dim].extent + plan.tile - 1) / plan.tile;
      return;
    }
  }
}

// Rows of a column walk that are reduced in registers before their sums go to memory: few enough to
// be read side by side as streams, enough to make the visit cheap. A row that is also written is
// one more stream.
constexpr int64_t kRowBlock = 8, kWrittenRowBlock = 4;
// Additions in turn that are precise enough.
constexpr int64_t kSumBlock = 32;

bool writes_rows(const Kernel& kernel) {
  for (const loops::Phase& phase : kernel.phases) {
    for (int32_t at = phase.begin; at < phase.end && phase.inner; ++at)
      if (kernel.body[static_cast<size_t>(at)].op == LoopOp::Store) return true;
  }
  return false;
}

/// Column walks can go down a block of rows for all columns before the next block, if what happens
/// once per column can be computed again for each block: it reads nothing that the kernel writes.
bool can_block_rows(const Kernel& kernel) {
  if (kernel.dims.back().extent < kRowBlock) return false;
  for (const Buffer& buffer : kernel.buffers)
    if (buffer.role == BufferRole::Scratch) return false;
  for (const loops::Phase& phase : kernel.phases) {
    for (int32_t i = phase.begin; i < phase.end && !phase.inner; ++i) {
      const Instruction& line = kernel.body[static_cast<size_t>(i)];
      if (line.op != LoopOp::Load) continue;
      const Access& access = kernel.accesses[static_cast<size_t>(line.slot)];
      if (kernel.buffers[static_cast<size_t>(access.buffer)].role != BufferRole::In) return false;
    }
  }
  return true;
}

int sweeps(const Kernel& kernel) {
  int count = 0;
  for (const loops::Phase& phase : kernel.phases) count += phase.inner;
  return count;
}

/// How many additions an accumulator takes if nothing is done about it.
int64_t additions_in_turn(const Schedule& plan) {
  const int64_t reduced = plan.kernel.reduced_count();
  if (plan.vector_dim == kNone || plan.vector_is_kept) return reduced;
  const int64_t extent = plan.kernel.dims[static_cast<size_t>(plan.vector_dim)].extent;
  if (extent == 0) return 0;
  const int64_t step = plan.lanes * plan.unroll;
  // What is left of a walk goes to the first accumulator, one vector after the other.
  return reduced / extent * (extent / step + (extent % step + plan.lanes - 1) / plan.lanes);
}

/// The buffers that lines read or write. The second half of a split reduction has those of the
/// whole.
std::vector<Buffer> used_buffers(const Kernel& kernel) {
  std::vector<bool> used(kernel.buffers.size());
  for (const Instruction& line : kernel.body) {
    if (line.op == LoopOp::Load || line.op == LoopOp::Store)
      used[static_cast<size_t>(kernel.accesses[static_cast<size_t>(line.slot)].buffer)] = true;
  }
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i]) buffers.push_back(kernel.buffers[i]);
  return buffers;
}

bool exceeds_caches(const std::vector<Buffer>& buffers) {
  int64_t bytes = 0;
  for (const Buffer& buffer : buffers)
    if (buffer.role != BufferRole::Scratch) bytes += buffer.elements * element_bytes(buffer.dtype);
  return bytes >= Caches::kSharedBytes;
}

/// Rows that lie on other pages than their neighbours.
std::vector<bool> far_rows(const Kernel& kernel) {
  std::vector<bool> far;
  for (const Access& access : kernel.accesses) {
    const Buffer& buffer = kernel.buffers[static_cast<size_t>(access.buffer)];
    const int64_t bytes = access.strides.back() * element_bytes(buffer.dtype);
    far.push_back(buffer.role != BufferRole::Scratch && std::abs(bytes) >= 1024);
  }
  return far;
}

/// Whole vectors at multiples of their size, of results that the kernel itself does not read.
std::vector<bool> streamed_accesses(const Schedule& plan) {
  const Kernel& kernel = plan.kernel;
  std::vector<bool> read(kernel.buffers.size());
  for (const Instruction& line : kernel.body) {
    if (line.op != LoopOp::Load) continue;
    read[static_cast<size_t>(kernel.accesses[static_cast<size_t>(line.slot)].buffer)] = true;
  }
  std::vector<bool> streamed;
  for (const Access& access : kernel.accesses) {
    const auto buffer = static_cast<size_t>(access.buffer);
    bool whole = kernel.buffers[buffer].role == BufferRole::Out && !read[buffer] &&
                 access.offset % plan.lanes == 0;
    for (size_t dim = 0; dim < access.strides.size(); ++dim)
      whole = whole && (static_cast<int32_t>(dim) == plan.vector_dim ||
                        access.strides[dim] % plan.lanes == 0);
    streamed.push_back(whole);
  }
  return streamed;
}

bool is_large(const std::vector<Buffer>& buffers) {
  return std::ranges::any_of(buffers, [](const Buffer& buffer) {
    return buffer.role == BufferRole::In &&
           buffer.elements * element_bytes(buffer.dtype) >= Caches::kCoreBytes;
  });
}

}  // namespace

int64_t element_bytes(c10::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

bool sums_floats(const Kernel& kernel) {
  return std::ranges::any_of(kernel.body, [](const Instruction& line) {
    return line.op == LoopOp::ReduceSum && line.dtype == c10::ScalarType::Float;
  });
}

int totals_of(const Instruction& line) {
  const bool arg = line.op == LoopOp::ReduceArgmax || line.op == LoopOp::ReduceArgmin;
  return arg || (line.op == LoopOp::ReduceSum && line.dtype == c10::ScalarType::Double) ? 2 : 1;
}

Kernel merge_dims(const Kernel& original) {
  Kernel kernel = original;
  for (size_t dim = kernel.dims.size(); dim-- > 0;) {
    if (kernel.dims[dim].extent == 1 && !reads_index(kernel, dim)) remove_dim(kernel, dim);
  }
  for (size_t dim = kernel.dims.size(); dim-- > 1;) {
    const size_t outer = dim - 1;
    if (static_cast<int32_t>(dim) == kernel.kept) continue;
    if (reads_index(kernel, dim) || reads_index(kernel, outer)) continue;
    const int64_t extent = kernel.dims[dim].extent;
    const bool merges =
        std::all_of(kernel.accesses.begin(), kernel.accesses.end(), [&](const Access& access) {
          return access.strides[outer] == access.strides[dim] * extent;
        });
    if (!merges) continue;
    for (Access& access : kernel.accesses) access.strides[outer] = access.strides[dim];
    kernel.dims[outer].extent *= extent;
    remove_dim(kernel, dim);
  }
  return kernel;
}

Schedule schedule(const Kernel& original, InstructionSet set, loops::Sizes sizes) {
  Schedule plan;
  plan.kernel = merge_dims(original);
  const Kernel& kernel = plan.kernel;
  plan.set = set;
  plan.lanes = register_lanes(kernel, set);
  double best = 0;
  for (size_t dim = 0; dim < kernel.dims.size(); ++dim) {
    const double score = vector_score(kernel, dim, plan.lanes, sizes);
    if (plan.vector_dim != kNone && score <= best) continue;
    best = score;
    plan.vector_dim = static_cast<int32_t>(dim);
  }
  plan.vector_is_kept = plan.vector_dim < kernel.kept;
  if (plan.vector_dim == kNone) plan.lanes = 1;

  const double inner = total_cost(kernel, true), outer = total_cost(kernel, false);
  const int64_t reduced = kernel.reduced_count();
  const bool reduces = kernel.kept < static_cast<int32_t>(kernel.dims.size());
  const bool one_walk = !reduces || !plan.vector_is_kept;
  if (reduces) {
    // More accumulators hide the latency of additions; large bodies have parallel work of their
    // own.
    plan.unroll = inner <= 10 ? 4 : inner <= 30 ? 2 : 1;
  } else {
    plan.unroll = outer <= 6 ? 2 : 1;
  }
  if (plan.vector_dim == kNone) plan.unroll = 1;

  choose_tile(plan);
  if (reduces && plan.vector_is_kept && can_block_rows(kernel)) {
    plan.row_block = writes_rows(kernel) ? kWrittenRowBlock : kRowBlock;
    plan.unroll = inner <= 12 ? 2 : 1;
  }
  int64_t kept_elsewhere = 1;
  for (int32_t dim = 0; dim < kernel.kept; ++dim)
    if (dim != plan.vector_dim && dim != plan.tile_dim)
      kept_elsewhere *= kernel.dims[static_cast<size_t>(dim)].extent;
  kept_elsewhere *= plan.tiles;
  if (plan.vector_dim != kNone && plan.vector_is_kept) {
    const int64_t extent = kernel.dims[static_cast<size_t>(plan.vector_dim)].extent;
    const int64_t step = plan.lanes * plan.unroll;
    int64_t wanted = one_walk ? std::max<int64_t>(step, 2048) : step;
    if (plan.row_block > 0) wanted = std::max<int64_t>(step, 1024);
    if (plan.tile_dim != kNone) wanted = std::max<int64_t>(step, 64);
    plan.chunk = extent <= wanted ? extent : wanted / plan.lanes * plan.lanes;
    if (plan.chunk < 1) plan.chunk = 1;
    plan.chunks = extent == 0 ? 0 : (extent + plan.chunk - 1) / plan.chunk;
    plan.units = kept_elsewhere * plan.chunks;
  } else {
    plan.units = kept_elsewhere;
  }

  if (sizes == loops::Sizes::Vary && plan.vector_dim != kNone) {
    const int64_t extent = kernel.dims[static_cast<size_t>(plan.vector_dim)].extent;
    const int64_t step = plan.lanes * plan.unroll;
    // A long walk does not notice it.
    plan.has_no_rest = extent > 0 && extent <= 2 * step && extent % step == 0 &&
                       (plan.chunks <= 1 || plan.chunk % step == 0);
  }

  const std::vector<Buffer> buffers =
      sizes == loops::Sizes::Vary ? used_buffers(kernel) : kernel.buffers;
  // Neighbouring rows of a column walk lie on different pages, which no hardware prefetches.
  if (reduces && plan.vector_is_kept && plan.row_block == 0 && reduced > 32) plan.prefetch_rows = 8;
  // A row of a block is too short for the hardware's prefetcher to start, so the next block is
  // asked for meanwhile.
  if (plan.row_block > 0 && is_large(buffers)) plan.prefetch_rows = plan.row_block;
  if (plan.prefetch_rows > 0) plan.prefetched = far_rows(kernel);

  plan.streams = set == InstructionSet::Avx512 && exceeds_caches(buffers);
  if (plan.streams) plan.streamed = streamed_accesses(plan);
  if (sizes == loops::Sizes::Vary && std::ranges::count(plan.streamed, true) == 0) {
    plan.streams = false;
    plan.streamed.clear();
  }
  plan.prefetch_next_row =
      reduces && !plan.vector_is_kept && sweeps(kernel) > 1 && is_large(buffers);

  // Rounding errors of a sum grow with the number of additions in turn.
  const int64_t in_turn = additions_in_turn(plan);
  plan.wide_sums = in_turn > (plan.row_block > 0 ? kSumBlock * plan.row_block : kSumBlock);
  if (plan.wide_sums && !plan.vector_is_kept) plan.sum_block = kSumBlock;
  if (sizes == loops::Sizes::Vary && plan.row_block > 0 && !sums_floats(kernel))
    plan.wide_sums = false;

  // About 10 microseconds of work for a thread.
  const double along = plan.vector_is_kept ? static_cast<double>(plan.chunk * plan.tile) : 1;
  const double vector = plan.lanes;
  const double unit_cost = plan.vector_is_kept
                               ? along / vector * (outer + inner * static_cast<double>(reduced))
                               : outer + inner * static_cast<double>(reduced) / vector;
  plan.grain = std::max<int64_t>(1, static_cast<int64_t>(8000 / std::max(1.0, unit_cost)));

  if (plan.row_block > 0) {
    plan.totals_bytes = (plan.chunk + plan.lanes) / plan.lanes * plan.lanes * 8;
    for (const Instruction& line : kernel.body) {
      if (loops::is_reduction(line.op)) plan.scratch_bytes += plan.totals_bytes * totals_of(line);
    }
  }
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.role != BufferRole::Scratch) continue;
    const int64_t columns = plan.vector_is_kept ? plan.lanes * plan.unroll : 1;
    const int64_t bytes = buffer.elements * element_bytes(buffer.dtype) * columns;
    plan.scratch_bytes += (bytes + 63) / 64 * 64;
  }
  return plan;
}

}  // namespace tandem::backends::llvm_cpu
