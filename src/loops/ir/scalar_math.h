#pragma once

#include "loops/ir/loop_ir.h"

#include <cstdint>

namespace tandem::loops {

/// One value of the loop IR. Which member counts follows from its dtype: `number` of a float (an
/// f32 is held exactly), else `integer`.
struct Scalar {
  double number = 0;
  int64_t integer = 0;
};

/// An element of memory, widened to the dtype it computes in; and back.
Scalar read_element(const void* memory, int64_t index, c10::ScalarType stored);
void write_element(void* memory, int64_t index, c10::ScalarType stored, const Scalar& value);

Scalar convert(const Scalar& value, c10::ScalarType from, c10::ScalarType to);

/// An op on values, the meaning of `LoopOp`; `operand_dtype` is that of a (of b for Select).
/// f32 functions that are not exact are computed in f64 and rounded once.
Scalar evaluate(const Instruction& line, c10::ScalarType operand_dtype, const Scalar& a,
                const Scalar& b, const Scalar& c);

/// The state of a reduction, and one step: `b` is the index that came with `a`.
struct Accumulator {
  Scalar value{};  // of arg-reductions: the best element
  Scalar index{};
  bool empty = true;
};
void accumulate(const Instruction& line, c10::ScalarType operand_dtype, Accumulator& sum,
                const Scalar& a, const Scalar& b);
/// The result. Extents are positive, so there is at least one element.
Scalar finish(const Instruction& line, const Accumulator& sum);

}  // namespace tandem::loops
