#pragma once

#include "loops/ir/loop_ir.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::loops {

/// How the dtypes of operands and value hang together.
enum class OpKind : uint8_t {
  Source,  // Constant, Index, Load
  Store,
  CheckIndex,
  Cast,
  Round,       // f32 -> f32
  FloatUnary,  // float -> the same
  AnyUnary,    // number -> the same
  BoolOrInt,   // bool or integer -> the same; one or two operands
  RandomBits,  // i64, i64 -> i64
  FloatToBool,
  FloatBinary,
  AnyBinary,   // numbers -> the same
  Comparison,  // equal dtypes -> bool
  Select,
  Fma,
  Reduction,
};

struct OpFacts {
  LoopOp op;
  std::string_view name;
  int operands;
  OpKind kind;
};

const OpFacts& row(LoopOp op);
std::optional<LoopOp> find_op(std::string_view name);

}  // namespace tandem::loops
