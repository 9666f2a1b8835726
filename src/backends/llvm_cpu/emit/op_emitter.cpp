#include "backends/llvm_cpu/emit/op_emitter.h"

#include "base/error.h"
#include "base/philox.h"

#include <c10/core/ScalarType.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <vector>

namespace tandem::backends::llvm_cpu {

using c10::ScalarType;
using llvm::Type;
using llvm::Value;
using loops::Instruction;
using loops::LoopOp;

Type* value_type(llvm::LLVMContext& context, ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Bool:
      return Type::getInt1Ty(context);
    case ScalarType::Byte:
    case ScalarType::Char:
      return Type::getInt8Ty(context);
    case ScalarType::Short:
      return Type::getInt16Ty(context);
    case ScalarType::Int:
      return Type::getInt32Ty(context);
    case ScalarType::Long:
      return Type::getInt64Ty(context);
    case ScalarType::Float:
      return Type::getFloatTy(context);
    case ScalarType::Double:
      return Type::getDoubleTy(context);
    default:
      TANDEM_UNSUPPORTED("lower", "no kernel computes in ", c10::toString(dtype));
  }
}

Type* memory_type(llvm::LLVMContext& context, ScalarType dtype) {
  if (dtype == ScalarType::Bool) return Type::getInt8Ty(context);
  if (dtype == ScalarType::BFloat16 || dtype == ScalarType::Half) return Type::getInt16Ty(context);
  return value_type(context, dtype);
}

Type* OpEmitter::like(Type* scalar, Value* shape) const {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape->getType());
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

Value* OpEmitter::number(Value* shape, double value) const {
  return llvm::ConstantFP::get(shape->getType(), value);
}

Value* OpEmitter::integer(Value* shape, int64_t value) const {
  return llvm::ConstantInt::get(shape->getType(), static_cast<uint64_t>(value), true);
}

Value* OpEmitter::call(const char* name, std::initializer_list<Value*> operands) {
  const std::vector<Value*> list(operands);
  return math_.call_each_lane(name, list);
}

// ---- memory ----

Value* OpEmitter::from_bf16_bits(Value* bits) {
  Value* wide = b_.CreateZExt(bits, like(b_.getInt32Ty(), bits));
  return b_.CreateBitCast(b_.CreateShl(wide, integer(wide, 16)), like(b_.getFloatTy(), bits));
}

Value* OpEmitter::to_bf16_bits(Value* x) {
  Value* raw = b_.CreateBitCast(x, like(b_.getInt32Ty(), x));
  Value* odd = b_.CreateAnd(b_.CreateLShr(raw, integer(raw, 16)), integer(raw, 1));
  Value* rounded = b_.CreateAdd(raw, b_.CreateAdd(odd, integer(raw, 0x7fff)));
  Value* high = b_.CreateLShr(rounded, integer(raw, 16));
  // libtorch's NaN.
  high = b_.CreateSelect(b_.CreateFCmpUNO(x, x), integer(raw, 0x7fc0), high);
  return b_.CreateTrunc(high, like(b_.getInt16Ty(), x));
}

Value* OpEmitter::from_f16_bits(Value* bits) {
  if (set_ != InstructionSet::Baseline) {
    Value* half = b_.CreateBitCast(bits, like(b_.getHalfTy(), bits));
    // Behind the fence LLVM does not see halves. It would compare and select them as such, which
    // the machine cannot: lane by lane, and of two zeros it takes the wrong one.
    return b_.CreateUnaryIntrinsic(llvm::Intrinsic::arithmetic_fence,
                                   b_.CreateFPExt(half, like(b_.getFloatTy(), bits)));
  }
  Value* const operands[] = {bits};
  return math_.call_each_lane(
      module_.getOrInsertFunction("tandem_half_to_float", b_.getFloatTy(), b_.getInt16Ty()),
      b_.getFloatTy(), operands);
}

Value* OpEmitter::to_f16_bits(Value* x) {
  if (set_ != InstructionSet::Baseline) {
    return b_.CreateBitCast(b_.CreateFPTrunc(x, like(b_.getHalfTy(), x)), like(b_.getInt16Ty(), x));
  }
  Value* const operands[] = {x};
  return math_.call_each_lane(
      module_.getOrInsertFunction("tandem_float_to_half", b_.getInt16Ty(), b_.getFloatTy()),
      b_.getInt16Ty(), operands);
}

Value* OpEmitter::widen(Value* stored, ScalarType dtype) {
  if (dtype == ScalarType::Bool) return b_.CreateICmpNE(stored, integer(stored, 0));
  if (dtype == ScalarType::BFloat16) return from_bf16_bits(stored);
  if (dtype == ScalarType::Half) return from_f16_bits(stored);
  return stored;
}

Value* OpEmitter::narrow(Value* value, ScalarType dtype) {
  if (dtype == ScalarType::Bool) return b_.CreateZExt(value, like(b_.getInt8Ty(), value));
  if (dtype == ScalarType::BFloat16) return to_bf16_bits(value);
  if (dtype == ScalarType::Half) return to_f16_bits(value);
  return value;
}

// ---- values ----

Value* OpEmitter::max(Value* a, Value* b, ScalarType dtype) {
  if (!c10::isFloatingType(dtype)) {
    const bool is_signed = dtype != ScalarType::Byte && dtype != ScalarType::Bool;
    return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a,
                                    b);
  }
  // One instruction, which gives b if either is NaN; so only a NaN in a is left to carry over.
  Value* larger = b_.CreateSelect(b_.CreateFCmpOGT(a, b), a, b);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, larger);
}

Value* OpEmitter::min(Value* a, Value* b, ScalarType dtype) {
  if (!c10::isFloatingType(dtype)) {
    const bool is_signed = dtype != ScalarType::Byte && dtype != ScalarType::Bool;
    return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a,
                                    b);
  }
  Value* smaller = b_.CreateSelect(b_.CreateFCmpOLT(a, b), a, b);
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, smaller);
}

Value* OpEmitter::cast(Value* x, ScalarType from, ScalarType to) {
  if (from == to) return x;
  const bool from_float = c10::isFloatingType(from), to_float = c10::isFloatingType(to);
  Type* type = like(value_type(b_.getContext(), to), x);
  if (to == ScalarType::Bool) {
    return from_float ? b_.CreateFCmpUNE(x, number(x, 0)) : b_.CreateICmpNE(x, integer(x, 0));
  }
  const bool from_unsigned = from == ScalarType::Byte || from == ScalarType::Bool;
  if (from_float && to_float) return b_.CreateFPCast(x, type);
  if (to_float) return from_unsigned ? b_.CreateUIToFP(x, type) : b_.CreateSIToFP(x, type);
  if (!from_float) return b_.CreateIntCast(x, type, !from_unsigned);
  // By way of the machine's conversion, as libtorch: to 32 bits, of u8 and i64 to 64. What does not
  // fit there gives its smallest integer.
  const bool by_64_bits = to == ScalarType::Byte || to == ScalarType::Long;
  Type* machine = by_64_bits ? b_.getInt64Ty() : b_.getInt32Ty();
  const double limit = by_64_bits ? 0x1p63 : 0x1p31;
  Value* frozen = b_.CreateFreeze(b_.CreateFPToSI(x, like(machine, x)));
  Value* inside =
      b_.CreateAnd(b_.CreateFCmpOGE(x, number(x, -limit)), b_.CreateFCmpOLT(x, number(x, limit)));
  Value* whole =
      b_.CreateSelect(inside, frozen, integer(frozen, by_64_bits ? INT64_MIN : INT32_MIN));
  return b_.CreateTrunc(whole, type);
}

Value* OpEmitter::unary_float(LoopOp op, Value* x) {
  switch (op) {
    case LoopOp::Neg:
      return b_.CreateFNeg(x);
    case LoopOp::Abs:
      // InstCombine of LLVM 19 wrongly turns |x| > 0, joined with a test for NaN, into x > 0. It
      // does not look through this fence, which costs no instruction.
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::arithmetic_fence,
                                     b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x));
    case LoopOp::Sign: {
      Value* zero = number(x, 0);
      Value* positive = b_.CreateSelect(b_.CreateFCmpOGT(x, zero), number(x, 1), zero);
      return b_.CreateSelect(b_.CreateFCmpOLT(x, zero), number(x, -1), positive);
    }
    case LoopOp::Floor:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case LoopOp::Ceil:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case LoopOp::Trunc:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case LoopOp::Round:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, x);
    case LoopOp::Sqrt:
      return math_.sqrt(x);
    case LoopOp::Rsqrt:
      return b_.CreateFDiv(number(x, 1), math_.sqrt(x));
    case LoopOp::Reciprocal:
      return b_.CreateFDiv(number(x, 1), x);
    case LoopOp::Exp:
      return math_.exp(x);
    case LoopOp::Exp2:
      return math_.exp2(x);
    case LoopOp::Expm1:
      return math_.expm1(x);
    case LoopOp::Log:
      return math_.log(x);
    case LoopOp::Log1p:
      return math_.log1p(x);
    case LoopOp::Log2:
      return math_.log2(x);
    case LoopOp::Log10:
      return math_.log10(x);
    case LoopOp::Sin:
      return math_.sin(x);
    case LoopOp::Cos:
      return math_.cos(x);
    case LoopOp::Tanh:
      return math_.tanh(x);
    case LoopOp::Erf:
      return math_.erf(x);
    case LoopOp::Sigmoid:
      return math_.sigmoid(x);
    case LoopOp::NormalCdf:
      return math_.normal_cdf(x);
    case LoopOp::Tan:
      return call("tan", {x});
    case LoopOp::Asin:
      return call("asin", {x});
    case LoopOp::Acos:
      return call("acos", {x});
    case LoopOp::Atan:
      return call("atan", {x});
    case LoopOp::Sinh:
      return call("sinh", {x});
    case LoopOp::Cosh:
      return call("cosh", {x});
    case LoopOp::Asinh:
      return call("asinh", {x});
    case LoopOp::Acosh:
      return call("acosh", {x});
    case LoopOp::Atanh:
      return call("atanh", {x});
    case LoopOp::Erfc:
      return call("erfc", {x});
    case LoopOp::Lgamma:
      return call("tandem_lgamma", {x});
    default:
      TANDEM_UNSUPPORTED("lower", "no code is generated for ", loops::to_string(op));
  }
}

Value* OpEmitter::unary(const Instruction& line, const Operands& operands) {
  Value* x = operands.a;
  switch (line.op) {
    case LoopOp::Cast:
      return cast(x, operands.dtype, line.dtype);
    case LoopOp::RoundBF16:
      return from_bf16_bits(to_bf16_bits(x));
    case LoopOp::RoundF16:
      return from_f16_bits(to_f16_bits(x));
    case LoopOp::Not:
      return b_.CreateNot(x);
    case LoopOp::IsNan:
      return b_.CreateFCmpUNO(x, x);
    default:
      break;
  }
  if (c10::isFloatingType(operands.dtype)) return unary_float(line.op, x);
  const bool is_signed = operands.dtype != ScalarType::Byte && operands.dtype != ScalarType::Bool;
  switch (line.op) {
    case LoopOp::Neg:
      return b_.CreateNeg(x);
    case LoopOp::Abs:
      return is_signed ? b_.CreateSelect(b_.CreateICmpSLT(x, integer(x, 0)), b_.CreateNeg(x), x)
                       : x;
    case LoopOp::Sign: {
      Value* positive = b_.CreateZExt(b_.CreateICmpNE(x, integer(x, 0)), x->getType());
      if (!is_signed) return positive;
      return b_.CreateSelect(b_.CreateICmpSLT(x, integer(x, 0)), integer(x, -1), positive);
    }
    default:
      TANDEM_UNSUPPORTED("lower", "no code is generated for ", loops::to_string(line.op),
                         " of integers");
  }
}

Value* OpEmitter::remainder(Value* a, Value* b) {
  Value *mod = call("fmod", {a, b}), *zero = number(a, 0);
  Value* signs = b_.CreateXor(b_.CreateFCmpOLT(b, zero), b_.CreateFCmpOLT(mod, zero));
  Value* off = b_.CreateAnd(b_.CreateFCmpUNE(mod, zero), signs);
  return b_.CreateSelect(off, b_.CreateFAdd(mod, b), mod);
}

// As libtorch's div_floor: exact where the quotient is, and right at the edges of fmod.
Value* OpEmitter::floor_divide(Value* a, Value* b) {
  Value *mod = call("fmod", {a, b}), *zero = number(a, 0), *one = number(a, 1);
  Value* quotient = b_.CreateFDiv(a, b);
  Value* div = b_.CreateFDiv(b_.CreateFSub(a, mod), b);
  Value* signs = b_.CreateXor(b_.CreateFCmpOLT(b, zero), b_.CreateFCmpOLT(mod, zero));
  Value* off = b_.CreateAnd(b_.CreateFCmpUNE(mod, zero), signs);
  div = b_.CreateSelect(off, b_.CreateFSub(div, one), div);
  Value* floored = b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, div);
  Value* up = b_.CreateFCmpOGT(b_.CreateFSub(div, floored), number(a, 0.5));
  floored = b_.CreateSelect(up, b_.CreateFAdd(floored, one), floored);
  Value* signed_zero = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, quotient);
  floored = b_.CreateSelect(b_.CreateFCmpOEQ(div, zero), signed_zero, floored);
  return b_.CreateSelect(b_.CreateFCmpOEQ(b, zero), quotient, floored);
}

Value* OpEmitter::float_binary(LoopOp op, Value* a, Value* b) {
  switch (op) {
    case LoopOp::Add:
      return b_.CreateFAdd(a, b);
    case LoopOp::Sub:
      return b_.CreateFSub(a, b);
    case LoopOp::Mul:
      return b_.CreateFMul(a, b);
    case LoopOp::Div:
      return b_.CreateFDiv(a, b);
    case LoopOp::FloorDiv:
      return floor_divide(a, b);
    case LoopOp::Remainder:
      return remainder(a, b);
    case LoopOp::Fmod:
      return call("fmod", {a, b});
    case LoopOp::Pow:
      return call("pow", {a, b});
    case LoopOp::Atan2:
      return call("atan2", {a, b});
    case LoopOp::Hypot:
      return call("hypot", {a, b});
    case LoopOp::Copysign:
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
    case LoopOp::Fmax: {
      Value* larger = b_.CreateSelect(b_.CreateFCmpUGE(a, b), a, b);
      return b_.CreateSelect(b_.CreateFCmpUNO(a, a), b, larger);
    }
    case LoopOp::Fmin: {
      Value* smaller = b_.CreateSelect(b_.CreateFCmpULE(a, b), a, b);
      return b_.CreateSelect(b_.CreateFCmpUNO(a, a), b, smaller);
    }
    default:
      TANDEM_UNSUPPORTED("lower", "no code is generated for ", loops::to_string(op), " of floats");
  }
}

Value* OpEmitter::integer_binary(LoopOp op, const Operands& operands) {
  Value *a = operands.a, *b = operands.b;
  const bool is_signed = operands.dtype != ScalarType::Byte && operands.dtype != ScalarType::Bool;
  switch (op) {
    case LoopOp::Add:
      return b_.CreateAdd(a, b);
    case LoopOp::Sub:
      return b_.CreateSub(a, b);
    case LoopOp::Mul:
      return b_.CreateMul(a, b);
    case LoopOp::And:
      return b_.CreateAnd(a, b);
    case LoopOp::Or:
      return b_.CreateOr(a, b);
    case LoopOp::Xor:
      return b_.CreateXor(a, b);
    case LoopOp::ShiftLeft:
    case LoopOp::ShiftRight: {
      // An unsigned comparison: negative counts are too large as well.
      const auto bits = static_cast<int64_t>(a->getType()->getScalarSizeInBits());
      Value* inside = b_.CreateICmpULT(b, integer(b, bits));
      if (op == LoopOp::ShiftLeft) {
        Value* count = b_.CreateSelect(inside, b, integer(b, 0));
        return b_.CreateSelect(inside, b_.CreateShl(a, count), integer(a, 0));
      }
      if (!is_signed) {
        Value* count = b_.CreateSelect(inside, b, integer(b, 0));
        return b_.CreateSelect(inside, b_.CreateLShr(a, count), integer(a, 0));
      }
      return b_.CreateAShr(a, b_.CreateSelect(inside, b, integer(b, bits - 1)));
    }
    case LoopOp::Div:
    case LoopOp::FloorDiv:
    case LoopOp::Remainder:
    case LoopOp::Fmod:
      break;
    default:
      TANDEM_UNSUPPORTED("lower", "no code is generated for ", loops::to_string(op),
                         " of integers");
  }
  // The machine's division traps on a zero divisor and on the smallest integer by -1. Neither may
  // happen: lanes beyond the end hold anything.
  Value* zero = integer(a, 0);
  const bool quotient = op == LoopOp::Div || op == LoopOp::FloorDiv;
  Value* by_zero = b_.CreateICmpEQ(b, zero);
  if (!is_signed) {
    Value* divisor = b_.CreateSelect(by_zero, integer(b, 1), b);
    Value* result = quotient ? b_.CreateUDiv(a, divisor) : b_.CreateURem(a, divisor);
    return b_.CreateSelect(by_zero, zero, result);
  }
  Value* by_minus_one = b_.CreateICmpEQ(b, integer(b, -1));
  Value* divisor = b_.CreateSelect(b_.CreateOr(by_zero, by_minus_one), integer(b, 1), b);
  Value* whole = b_.CreateSDiv(a, divisor);
  Value* rest = b_.CreateSub(a, b_.CreateMul(whole, divisor));
  if (op == LoopOp::FloorDiv || op == LoopOp::Remainder) {
    Value* signs = b_.CreateICmpSLT(b_.CreateXor(rest, divisor), zero);
    Value* off = b_.CreateAnd(b_.CreateICmpNE(rest, zero), signs);
    whole = b_.CreateSelect(off, b_.CreateSub(whole, integer(a, 1)), whole);
    rest = b_.CreateSelect(off, b_.CreateAdd(rest, divisor), rest);
  }
  Value* result = quotient ? b_.CreateSelect(by_minus_one, b_.CreateNeg(a), whole)
                           : b_.CreateSelect(by_minus_one, zero, rest);
  return b_.CreateSelect(by_zero, zero, result);
}

// As base::philox, all lanes at once: factors are known to be below 2^32, for which there is a fast
// multiplication.
Value* OpEmitter::random_bits(Value* counter, Value* key) {
  Value* low = integer(counter, 0xffffffff);
  Value* thirty_two = integer(counter, 32);
  Value* x = b_.CreateAnd(counter, low);
  Value* y = b_.CreateXor(b_.CreateLShr(counter, thirty_two), b_.CreateLShr(key, thirty_two));
  for (int round = 0; round < base::kPhiloxRounds; ++round) {
    const uint64_t step = static_cast<uint64_t>(round) * base::kPhiloxKeyStep;
    Value* round_key =
        b_.CreateAnd(b_.CreateAdd(key, integer(key, static_cast<int64_t>(step))), low);
    Value* product = b_.CreateMul(x, integer(x, static_cast<int64_t>(base::kPhiloxFactor)));
    x = b_.CreateXor(b_.CreateXor(b_.CreateLShr(product, thirty_two), y), round_key);
    y = b_.CreateAnd(product, low);
  }
  return b_.CreateOr(x, b_.CreateShl(y, thirty_two));
}

Value* OpEmitter::binary(const Instruction& line, const Operands& operands) {
  if (line.op == LoopOp::RandomBits) return random_bits(operands.a, operands.b);
  if (line.op == LoopOp::Max) return max(operands.a, operands.b, operands.dtype);
  if (line.op == LoopOp::Min) return min(operands.a, operands.b, operands.dtype);
  if (c10::isFloatingType(operands.dtype)) return float_binary(line.op, operands.a, operands.b);
  return integer_binary(line.op, operands);
}

Value* OpEmitter::compare(LoopOp op, const Operands& operands) {
  using Predicate = llvm::CmpInst::Predicate;
  const bool is_float = c10::isFloatingType(operands.dtype);
  const bool is_unsigned = operands.dtype == ScalarType::Byte || operands.dtype == ScalarType::Bool;
  const auto choose = [&](Predicate of_floats, Predicate of_signed, Predicate of_unsigned) {
    return is_float ? of_floats : is_unsigned ? of_unsigned : of_signed;
  };
  Predicate predicate;
  switch (op) {
    case LoopOp::Eq:
      predicate = choose(Predicate::FCMP_OEQ, Predicate::ICMP_EQ, Predicate::ICMP_EQ);
      break;
    case LoopOp::Ne:
      predicate = choose(Predicate::FCMP_UNE, Predicate::ICMP_NE, Predicate::ICMP_NE);
      break;
    case LoopOp::Lt:
      predicate = choose(Predicate::FCMP_OLT, Predicate::ICMP_SLT, Predicate::ICMP_ULT);
      break;
    case LoopOp::Le:
      predicate = choose(Predicate::FCMP_OLE, Predicate::ICMP_SLE, Predicate::ICMP_ULE);
      break;
    case LoopOp::Gt:
      predicate = choose(Predicate::FCMP_OGT, Predicate::ICMP_SGT, Predicate::ICMP_UGT);
      break;
    default:
      predicate = choose(Predicate::FCMP_OGE, Predicate::ICMP_SGE, Predicate::ICMP_UGE);
      break;
  }
  return b_.CreateCmp(predicate, operands.a, operands.b);
}

Value* OpEmitter::emit(const Instruction& line, const Operands& operands) {
  if (loops::is_comparison(line.op)) return compare(line.op, operands);
  if (line.op == LoopOp::Select) return b_.CreateSelect(operands.a, operands.b, operands.c);
  if (line.op == LoopOp::Fma) {
    if (set_ == InstructionSet::Baseline) return call("fma", {operands.a, operands.b, operands.c});
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {operands.a->getType()},
                              {operands.a, operands.b, operands.c});
  }
  return loops::operand_count(line.op) == 1 ? unary(line, operands) : binary(line, operands);
}

}  // namespace tandem::backends::llvm_cpu
