#pragma once

// Includes LLVM: only for the files that tandem_llvm_sources names.

#include "backends/llvm_cpu/emit/op_emitter.h"
#include "backends/llvm_cpu/schedule.h"

#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {

inline bool is_arg(loops::LoopOp op) {
  return op == loops::LoopOp::ReduceArgmax || op == loops::LoopOp::ReduceArgmin;
}

/// Emits the function's body. A value of the loop IR is a scalar where it is the same for all
/// lanes, else one vector per vector that is processed side by side.
class KernelEmitter {
 public:
  /// `numbers`: a pointer to what stands in the places of a form; null for a schedule that is none.
  KernelEmitter(const Schedule& schedule, llvm::Module& module, llvm::Function& function,
                llvm::Value* numbers)
      : plan_(schedule),
        kernel_(schedule.kernel),
        function_(function),
        numbers_(numbers),
        b_(module.getContext()),
        ops_(b_, module, schedule.set),
        values_(kernel_.body.size()),
        index_(kernel_.dims.size()) {}

  void emit(std::vector<llvm::Value*> buffers, llvm::Value* begin, llvm::Value* end,
            llvm::Value* scratch);

 private:
  using Loop = std::function<void(llvm::Value* index)>;
  struct Accumulator {
    std::vector<llvm::Value*>
        slots;  // one per vector side by side, in memory until registers take them
    std::vector<llvm::Value*> indices;  // of arg-reductions
    llvm::Type* type = nullptr;         // of a slot
    // Of a sum in blocks: the sum of the blocks so far, and what rounding has taken from it.
    llvm::Value *blocks = nullptr, *lost = nullptr;
  };

  // ---- loops ----
  void loop(llvm::Value* from, llvm::Value* to, int64_t step, const Loop& body);
  void vectors(llvm::Value* from, llvm::Value* to, const std::function<void()>& body);
  void over_dims(std::vector<size_t> dims, const std::function<void()>& body);
  void when(llvm::Value* condition, const std::function<void()>& body);
  std::vector<int64_t> unit_extents() const;
  std::vector<llvm::Value*> divided(llvm::Value* unit, const std::vector<int64_t>& extents);
  void emit_units(llvm::Value* begin, llvm::Value* end);
  void emit_unit(const std::vector<llvm::Value*>& indices);
  void emit_chunk(llvm::Value* chunk);
  using Walk = std::function<void(const std::function<void()>& body)>;
  void emit_blocked(const Walk& walk);
  void emit_before(size_t phase);
  void emit_phases();
  void emit_inner(const loops::Phase& phase);
  void emit_lines(const loops::Phase& phase);

  // ---- numbers ----
  /// Whether sizes are only known when the code runs.
  bool sizes_vary() const { return numbers_ != nullptr; }
  /// A number of the schedule: a constant, or what is given in its place.
  llvm::Value* number(int64_t number);
  llvm::Value* given(int64_t place, llvm::Type* type);
  llvm::Value* extent(size_t dim) { return number(kernel_.dims[dim].extent); }
  llvm::Value* times(int64_t number, int64_t factor);
  llvm::Value* places_on(llvm::Type* type, llvm::Value* place, int64_t stride, int64_t count);

  // ---- lines ----
  void emit_line(size_t at);
  void emit_load(size_t at);
  llvm::Value* load_each_lane(llvm::Type* type, llvm::Value* place, llvm::Value* offsets,
                              llvm::Align align);
  llvm::Value* load_each_lane(llvm::Type* type, llvm::Value* place, int64_t stride,
                              llvm::Align align);
  void prefetch(const loops::Access& access, int vector);
  void prefetch_next_row(const loops::Access& access, int vector);
  void emit_store(const loops::Instruction& line);
  void emit_check(size_t at);
  llvm::Value* address(const loops::Access& access, int vector, llvm::Value* indirect);
  llvm::Value* lane_offsets(int64_t stride);
  /// Whether the vector's dim is walked here.
  bool has_lanes() const {
    return plan_.vector_dim != loops::kNone && (plan_.vector_is_kept || inside_inner_);
  }
  /// From the element of one lane to that of the next; 0: all lanes mean the same element.
  int64_t lane_stride(const loops::Access& access) const;
  bool lanes_differ(int32_t at) const {
    return at != loops::kNone && values_[static_cast<size_t>(at)].size() > 1;
  }
  llvm::Value* scalar(int32_t at) const { return values_[static_cast<size_t>(at)][0]; }
  /// The value as seen by one of the vectors side by side; element 0 holds a scalar.
  llvm::Value* operand(int32_t at, int vector, bool as_vector);
  llvm::Value* splat(llvm::Value* value) {
    return plan_.lanes == 1 ? value
                            : b_.CreateVectorSplat(static_cast<unsigned>(plan_.lanes), value);
  }
  llvm::Type* vector_type(llvm::Type* scalar) const {
    return plan_.lanes == 1
               ? scalar
               : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(plan_.lanes));
  }
  const loops::Buffer& buffer_of(const loops::Access& access) const {
    return kernel_.buffers[static_cast<size_t>(access.buffer)];
  }
  llvm::Type* type_of(c10::ScalarType dtype) { return value_type(b_.getContext(), dtype); }
  bool in_vector(const loops::Instruction& line) const;

  // ---- reductions ----
  llvm::Value* entry_slot(llvm::Type* type);
  // In a block floats are precise enough; it is the sum of all blocks that is wide.
  bool is_wide(const loops::Instruction& line) const {
    return plan_.row_block == 0 && plan_.sum_block == 0 && has_wide_total(line);
  }
  bool is_summed_in_blocks(const loops::Instruction& line) const {
    return plan_.sum_block > 0 && line.op == loops::LoopOp::ReduceSum &&
           c10::isFloatingType(line.dtype);
  }
  bool has_wide_total(const loops::Instruction& line) const {
    return plan_.wide_sums && line.op == loops::LoopOp::ReduceSum &&
           line.dtype == c10::ScalarType::Float;
  }
  llvm::Value* identity(const loops::Instruction& line, llvm::Type* type);
  // Results of a blocked walk so far, one per column of the chunk.
  struct Totals {
    llvm::Value *elements, *indices, *lost;
    llvm::Type* type;  // of the elements
  };
  struct Sum {
    llvm::Value *total, *lost;  // to be added: what rounding has taken from the total
  };
  Sum add_exactly(const Sum& sum, llvm::Value* x);
  llvm::Value* joined(const Sum& sum);
  Totals totals(size_t at, int vector, bool wide);
  /// Does it for totals as they are: wide or not, or either if only the form's numbers say it.
  void for_totals(size_t at, const std::function<void(bool wide)>& work);
  llvm::Value* has_wide_totals();
  bool may_have_wide_totals(const loops::Instruction& line) const {
    return plan_.wide_totals != 0 && has_wide_total(line);
  }
  void write_totals(size_t at);
  llvm::Value* read_total(size_t at, int vector, bool wide);
  void add_to_totals(size_t at);
  void read_totals(size_t at);
  void begin_reduction(size_t at);
  void accumulate(size_t at);
  void finish_block(size_t at, int vectors);
  void finish_reduction(size_t at);
  llvm::Value* combine(const loops::Instruction& line, llvm::Value* a, llvm::Value* b);
  struct Best {
    llvm::Value *element, *index;
  };
  Best better(const loops::Instruction& line, const Best& a, const Best& b);
  c10::ScalarType accumulated(const loops::Instruction& line) const {
    return is_arg(line.op) ? kernel_.body[static_cast<size_t>(line.a)].dtype : line.dtype;
  }

  const Schedule& plan_;
  const loops::Kernel& kernel_;
  llvm::Function& function_;
  llvm::Value* const numbers_;
  std::vector<llvm::Value*> given_;  // by place, as far as they have been read
  llvm::IRBuilder<> b_;
  OpEmitter ops_;
  std::vector<llvm::Value*> buffers_;
  // Slot 0 is a scalar; vectors are slots 1 to side_by_side_.
  std::vector<std::vector<llvm::Value*>> values_;
  std::vector<llvm::Value*> index_;  // of each dim; of the vector's: that of the first lane
  std::vector<Accumulator> accumulators_;
  std::vector<size_t> summed_in_blocks_;  // lines of the phase that is being emitted
  llvm::Value* mask_ = nullptr;           // lanes that exist; null: all
  int side_by_side_ = 1;
  bool inside_inner_ = false;
  bool last_sweep_ = false;        // over a row that several phases walk
  llvm::Value* column_ = nullptr;  // of a blocked walk: within its chunk
  struct BlockRow {
    llvm::Value* first = nullptr;  // row of the block
    int64_t row = 0;               // after it
  };
  BlockRow block_row_{};
  std::vector<llvm::Value*> totals_memory_;  // by line; null: not a reduction
  llvm::Value* failed_ = nullptr;            // i32 in memory
  llvm::Value* zeros_ = nullptr;             // memory that is read in place of what a mask forbids
};

}  // namespace tandem::backends::llvm_cpu
