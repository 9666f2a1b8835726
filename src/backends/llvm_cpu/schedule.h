#pragma once

#include "backends/llvm_cpu/code/instruction_set.h"
#include "loops/ir/kernel_compiler.h"
#include "loops/ir/loop_ir.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::backends::llvm_cpu {

/// How a kernel's loops are walked. Unit numbers count the indices of all kept dims but the
/// vector's, times the chunks of the vector's dim where that is kept (and, of a tiled dim, its
/// tiles); units are shared among threads.
struct Schedule {
  loops::Kernel kernel;  // with fewer dims where that changes nothing
  InstructionSet set = InstructionSet::Baseline;
  bool is_form = false;               // places stand for numbers (form.h)
  int32_t vector_dim = loops::kNone;  // none: a kernel without loops
  bool vector_is_kept = true;
  int lanes = 1;
  int unroll = 1;      // vectors side by side
  int64_t chunk = 1;   // elements of a kept vector dim in one unit
  int64_t chunks = 1;  // of one walk along the vector dim
  // Walks are known to be whole groups of vectors: code that cannot see it from their extent says
  // nothing about a rest.
  bool has_no_rest = false;
  // A second kept dim that is walked in short pieces: along it lie what vectors have to gather.
  int32_t tile_dim = loops::kNone;
  int64_t tile = 1, tiles = 1;
  int64_t units = 1;
  int64_t grain = 1;          // units that are worth a thread
  int64_t scratch_bytes = 0;  // for one thread
  // A walk down the columns takes this many rows side by side, for all columns of the chunk; their
  // results are kept in scratch, `totals_bytes` each. 0: each vector goes all the way down.
  int64_t row_block = 0, totals_bytes = 0;
  // Rows that a walk down the columns asks the memory for in advance; 0: none.
  int prefetch_rows = 0;
  std::vector<bool> prefetched{};  // by access; empty: none
  // On its last sweep over a row, a walk along rows asks for the next row.
  bool prefetch_next_row = false;
  // Results are written past the caches, in which they would not stay anyway. What they overwrite
  // then need not be read first. Output buffers must lie at multiples of 64 bytes.
  bool streams = false;
  std::vector<bool> streamed{};  // by access: stores of whole vectors at multiples of their size
  // Sums of floats are carried as doubles. Of a walk along rows, an accumulator takes `sum_block`
  // vectors in turn before it is added to the sum so far.
  bool wide_sums = false;
  int64_t sum_block = 0;
  // Of a form: where it stands whether a blocked walk has wide sums. Its code can do both.
  int64_t wide_totals = 0;
};

/// Where sizes vary, it depends less on them, so that more kernels are of one form (form.h).
Schedule schedule(const loops::Kernel& kernel, InstructionSet set,
                  loops::Sizes sizes = loops::Sizes::Fixed);

/// The same kernel without dims of extent 1, neighbours merged where every access allows it.
loops::Kernel merge_dims(const loops::Kernel& kernel);

/// How many totals a blocked walk keeps for a reduction: an arg-reduction also has the index, and a
/// sum of doubles what rounding has taken from it.
int totals_of(const loops::Instruction& line);

/// Whether it has sums that can be carried as doubles.
bool sums_floats(const loops::Kernel& kernel);

/// Bytes of the elements of a buffer in memory.
int64_t element_bytes(c10::ScalarType dtype);

}  // namespace tandem::backends::llvm_cpu
