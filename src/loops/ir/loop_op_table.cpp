#include "loops/ir/loop_op_table.h"

#include <array>
#include <unordered_map>

namespace tandem::loops {
namespace {

// In the order of the enumeration: `row` indexes by it.
constexpr std::array kRows = {
    OpFacts{LoopOp::Constant, "constant", 0, OpKind::Source},
    OpFacts{LoopOp::Index, "index", 0, OpKind::Source},
    OpFacts{LoopOp::Load, "load", 2, OpKind::Source},
    OpFacts{LoopOp::Store, "store", 1, OpKind::Store},
    OpFacts{LoopOp::CheckIndex, "check_index", 1, OpKind::CheckIndex},
    OpFacts{LoopOp::Cast, "cast", 1, OpKind::Cast},
    OpFacts{LoopOp::RoundBF16, "round_bf16", 1, OpKind::Round},
    OpFacts{LoopOp::RoundF16, "round_f16", 1, OpKind::Round},
    OpFacts{LoopOp::Neg, "neg", 1, OpKind::AnyUnary},
    OpFacts{LoopOp::Abs, "abs", 1, OpKind::AnyUnary},
    OpFacts{LoopOp::Sign, "sign", 1, OpKind::AnyUnary},
    OpFacts{LoopOp::Floor, "floor", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Ceil, "ceil", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Trunc, "trunc", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Round, "round", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Sqrt, "sqrt", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Rsqrt, "rsqrt", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Reciprocal, "reciprocal", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Exp, "exp", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Exp2, "exp2", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Expm1, "expm1", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Log, "log", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Log1p, "log1p", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Log2, "log2", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Log10, "log10", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Sin, "sin", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Cos, "cos", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Tan, "tan", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Asin, "asin", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Acos, "acos", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Atan, "atan", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Sinh, "sinh", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Cosh, "cosh", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Tanh, "tanh", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Asinh, "asinh", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Acosh, "acosh", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Atanh, "atanh", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Erf, "erf", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Erfc, "erfc", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Lgamma, "lgamma", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Sigmoid, "sigmoid", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::NormalCdf, "normal_cdf", 1, OpKind::FloatUnary},
    OpFacts{LoopOp::Not, "not", 1, OpKind::BoolOrInt},
    OpFacts{LoopOp::IsNan, "is_nan", 1, OpKind::FloatToBool},
    OpFacts{LoopOp::Add, "add", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Sub, "sub", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Mul, "mul", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Div, "div", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::FloorDiv, "floor_div", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Remainder, "remainder", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Fmod, "fmod", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Pow, "pow", 2, OpKind::FloatBinary},
    OpFacts{LoopOp::Atan2, "atan2", 2, OpKind::FloatBinary},
    OpFacts{LoopOp::Hypot, "hypot", 2, OpKind::FloatBinary},
    OpFacts{LoopOp::Copysign, "copysign", 2, OpKind::FloatBinary},
    OpFacts{LoopOp::Max, "max", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Min, "min", 2, OpKind::AnyBinary},
    OpFacts{LoopOp::Fmax, "fmax", 2, OpKind::FloatBinary},
    OpFacts{LoopOp::Fmin, "fmin", 2, OpKind::FloatBinary},
    OpFacts{LoopOp::And, "and", 2, OpKind::BoolOrInt},
    OpFacts{LoopOp::Or, "or", 2, OpKind::BoolOrInt},
    OpFacts{LoopOp::Xor, "xor", 2, OpKind::BoolOrInt},
    OpFacts{LoopOp::ShiftLeft, "shift_left", 2, OpKind::BoolOrInt},
    OpFacts{LoopOp::ShiftRight, "shift_right", 2, OpKind::BoolOrInt},
    OpFacts{LoopOp::RandomBits, "random_bits", 2, OpKind::RandomBits},
    OpFacts{LoopOp::Eq, "eq", 2, OpKind::Comparison},
    OpFacts{LoopOp::Ne, "ne", 2, OpKind::Comparison},
    OpFacts{LoopOp::Lt, "lt", 2, OpKind::Comparison},
    OpFacts{LoopOp::Le, "le", 2, OpKind::Comparison},
    OpFacts{LoopOp::Gt, "gt", 2, OpKind::Comparison},
    OpFacts{LoopOp::Ge, "ge", 2, OpKind::Comparison},
    OpFacts{LoopOp::Select, "select", 3, OpKind::Select},
    OpFacts{LoopOp::Fma, "fma", 3, OpKind::Fma},
    OpFacts{LoopOp::ReduceSum, "reduce_sum", 1, OpKind::Reduction},
    OpFacts{LoopOp::ReduceProd, "reduce_prod", 1, OpKind::Reduction},
    OpFacts{LoopOp::ReduceMax, "reduce_max", 1, OpKind::Reduction},
    OpFacts{LoopOp::ReduceMin, "reduce_min", 1, OpKind::Reduction},
    OpFacts{LoopOp::ReduceAny, "reduce_any", 1, OpKind::Reduction},
    OpFacts{LoopOp::ReduceAll, "reduce_all", 1, OpKind::Reduction},
    OpFacts{LoopOp::ReduceArgmax, "reduce_argmax", 2, OpKind::Reduction},
    OpFacts{LoopOp::ReduceArgmin, "reduce_argmin", 2, OpKind::Reduction},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].op) != i) return false;
  }
  return static_cast<size_t>(LoopOp::ReduceArgmin) + 1 == kRows.size();
}
static_assert(in_order(), "one row per op, in the order of the enumeration");

}  // namespace

const OpFacts& row(LoopOp op) { return kRows[static_cast<size_t>(op)]; }

std::optional<LoopOp> find_op(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, LoopOp>();
    for (const OpFacts& facts : kRows) map->emplace(facts.name, facts.op);
    return map;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? std::nullopt : std::optional(found->second);
}

}  // namespace tandem::loops
