#pragma once

#include "loops/ir/loop_ir.h"
#include "loops/rules/call.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tandem::loops {

/// A value of the body with the dtype that the program gives it: a bf16 is an f32 that is known to
/// be rounded.
struct Val {
  int32_t id = kNone;
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool defined() const { return id != kNone; }
};

/// Collects the lines of a kernel, phase by phase. Equal lines are one, and what does not depend on
/// a reduced loop goes to the outer part of its stage, whoever asked for it.
///
/// Stage k is an outer part followed by an inner part; what stage k reduces, stage k + 1 reads.
class BodyBuilder {
 public:
  explicit BodyBuilder(std::vector<bool> loop_is_reduced) : reduced_(std::move(loop_is_reduced)) {}

  /// Later stages only.
  void begin_stage(int32_t stage, bool inner);

  // ---- lines on values as they are, without rounding to 16 bits ----
  Val constant(c10::ScalarType dtype, const Number& number);
  Val index(int32_t loop);
  Val load(const Access& access, c10::ScalarType stored, Val indirect = {}, Val mask = {});
  void store(const Access& access, Val value);
  Val check_index(Val index, int64_t bound);
  /// Operands must have one compute dtype; the result has it, too.
  Val unary(LoopOp op, Val a);
  Val binary(LoopOp op, Val a, Val b);
  Val compare(LoopOp op, Val a, Val b);
  Val select(Val condition, Val a, Val b);
  Val fma(Val a, Val b, Val c);
  Val is_nan(Val a);
  Val logical_not(Val a);
  Val reduce(LoopOp op, Val a, Val index = {});

  /// The value in another dtype: converted, and rounded to 16 bits if that is what the dtype has.
  Val to(Val value, c10::ScalarType dtype);
  /// The same value in the dtype that kernels compute in.
  Val wide(Val value) const { return {value.id, compute_dtype(value.dtype)}; }

  /// The accesses have one stride per loop; loops are numbered as in `loop_is_reduced`. Lines and
  /// accesses are in an order of their own, not in that of the calls.
  struct Finished {
    std::vector<Instruction> body;
    std::vector<Phase> phases;
    std::vector<Access> accesses;
  };
  Finished finish() &&;

 private:
  Val add(Instruction line, c10::ScalarType dtype);
  int32_t access_slot(const Access& access);
  bool varies(const Instruction& line) const;
  std::vector<std::vector<int32_t>> ordered_parts() const;

  struct Line {
    Instruction line;
    int32_t part;  // 2 * stage + inner
    bool varies;
  };
  std::vector<bool> reduced_;
  std::vector<Line> lines_;
  std::vector<Access> accesses_;
  std::unordered_map<std::string, int32_t> slots_;
  std::unordered_map<std::string, int32_t> known_;       // invariant lines: visible to the end
  std::unordered_map<std::string, int32_t> known_here_;  // lines of the current inner part
  int32_t stage_ = 0;
  bool inner_ = false;
};

}  // namespace tandem::loops
