#include "backends/llvm_cpu/emit/vector_math.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <limits>
#include <vector>

// Coefficients: scripts/fit_polynomials.py. Comparisons are written so that a NaN operand falls
// through to a result that is NaN too.
namespace tandem::backends::llvm_cpu {

using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLog2E = 1.4426950408889634;
// ln 2 in two parts; a product of the first with an exponent is exact.
constexpr double kLn2HighSingle = 0.693359375, kLn2LowSingle = -2.1219444005469058e-4;
constexpr double kLn2HighDouble = 6.93147180369123816490e-01,
                 kLn2LowDouble = 1.90821492927058770002e-10;

int lane_count(Type* type) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector ? static_cast<int>(vector->getNumElements()) : 0;
}

Type* with_lanes_of(Type* type, Type* like) {
  const int lanes = lane_count(like);
  return lanes ? llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes)) : type;
}

}  // namespace

Value* VectorMath::constant(Value* like, double value) const {
  return llvm::ConstantFP::get(like->getType(), value);
}

Value* VectorMath::integer(Type* type, int64_t value) const {
  return llvm::ConstantInt::getSigned(type, value);
}

Type* VectorMath::integers_of(Type* type) const {
  return with_lanes_of(b_.getIntNTy(type->getScalarSizeInBits()), type);
}

Value* VectorMath::multiply_add(Value* x, Value* y, Value* z) {
  // Without the instruction it would be a call of libm.
  if (!has_fma()) return b_.CreateFAdd(b_.CreateFMul(x, y), z);
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
}

Value* VectorMath::polynomial(Value* x, std::initializer_list<double> highest_first) {
  const auto* next = highest_first.begin();
  Value* result = constant(x, *next++);
  for (; next != highest_first.end(); ++next) result = multiply_add(result, x, constant(x, *next));
  return result;
}

Value* VectorMath::magnitude(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

Value* VectorMath::with_sign_of(Value* x, Value* sign) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign);
}

Value* VectorMath::nearest_integer(Value* x) {
  if (set_ != InstructionSet::Baseline)
    return b_.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, x);
  // Adding this pushes the fraction out; right for the small arguments that occur here.
  Value* shift = constant(x, is_single(x) ? 0x1.8p23 : 0x1.8p52);
  return b_.CreateFSub(b_.CreateFAdd(x, shift), shift);
}

Value* VectorMath::clamp(Value* x, double low, double high) {
  Value *lowest = constant(x, low), *highest = constant(x, high);
  x = b_.CreateSelect(b_.CreateFCmpOLT(highest, x), highest, x);
  return b_.CreateSelect(b_.CreateFCmpOGT(lowest, x), lowest, x);
}

// A NaN converts to anything, but not to poison, which would spread.
Value* VectorMath::whole_number(Value* x, Type* type) {
  return b_.CreateFreeze(b_.CreateFPToSI(x, type));
}

Value* VectorMath::power_of_two(Value* exponent, Type* type) {
  Type* bits = integers_of(type);
  const bool single = type->getScalarType()->isFloatTy();
  Value* biased = b_.CreateAdd(exponent, integer(bits, single ? 127 : 1023));
  return b_.CreateBitCast(b_.CreateShl(biased, integer(bits, single ? 23 : 52)), type);
}

Value* VectorMath::scale(Value* x, Value* exponent) {
  const int lanes = lane_count(x->getType());
  if (set_ == InstructionSet::Avx512 && is_single(x) && lanes == 16) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                              {x, exponent, constant(x, 0), b_.getInt16(0xffff), b_.getInt32(4)});
  }
  if (set_ == InstructionSet::Avx512 && !is_single(x) && lanes == 8) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_pd_512, {},
                              {x, exponent, constant(x, 0), b_.getInt8(0xff), b_.getInt32(4)});
  }
  // In two steps, so that subnormal results and those next to infinity come out right. Through 32
  // bits: AVX2 converts no doubles to 64.
  Type* bits = integers_of(x->getType());
  Value* whole = whole_number(exponent, with_lanes_of(b_.getInt32Ty(), x->getType()));
  whole = b_.CreateSExt(whole, bits);
  Value* half = b_.CreateAShr(whole, integer(bits, 1));
  x = b_.CreateFMul(x, power_of_two(half, x->getType()));
  return b_.CreateFMul(x, power_of_two(b_.CreateSub(whole, half), x->getType()));
}

Value* VectorMath::small_expm1(Value* r) {
  Value* p =
      is_single(r)
          ? polynomial(
                r, {0.000198909911, 0.00139336498, 0.00833331048, 0.0416664667, 0.166666672, 0.5})
          : polynomial(r, {1.6086627956780369e-10, 2.0918137737642736e-09, 2.5052071094293548e-08,
                           2.7557263279088498e-07, 2.7557319247218731e-06, 2.4801587336442236e-05,
                           0.00019841269841263298, 0.0013888888888879073, 0.0083333333333333332,
                           0.041666666666666678, 0.16666666666666666, 0.5});
  return multiply_add(p, b_.CreateFMul(r, r), r);
}

Value* VectorMath::exp(Value* x) {
  const bool single = is_single(x);
  x = single ? clamp(x, -104.0, 88.8) : clamp(x, -745.2, 709.9);
  Value* n = nearest_integer(b_.CreateFMul(x, constant(x, kLog2E)));
  Value* r = multiply_add(n, constant(x, single ? -kLn2HighSingle : -kLn2HighDouble), x);
  r = multiply_add(n, constant(x, single ? -kLn2LowSingle : -kLn2LowDouble), r);
  if (!single) return scale(b_.CreateFAdd(small_expm1(r), constant(x, 1)), n);
  return scale(polynomial(r, {0.00139504427, 0.00836889446, 0.041666206, 0.166665182, 0.5, 1, 1}),
               n);
}

Value* VectorMath::exp2(Value* x) {
  x = is_single(x) ? clamp(x, -151, 129) : clamp(x, -1077, 1025);
  Value* n = nearest_integer(x);
  Value* r = b_.CreateFMul(b_.CreateFSub(x, n), constant(x, 0.69314718055994531));
  return scale(b_.CreateFAdd(small_expm1(r), constant(x, 1)), n);
}

Value* VectorMath::expm1(Value* x) {
  if (!is_single(x)) return one_call("expm1", x);
  Value* clamped = clamp(x, -20.0, 88.8);
  Value* n = nearest_integer(b_.CreateFMul(clamped, constant(x, kLog2E)));
  Value* r = multiply_add(n, constant(x, -kLn2HighSingle), clamped);
  r = multiply_add(n, constant(x, -kLn2LowSingle), r);
  Value* p = small_expm1(r);
  // e^x - 1 = 2^n p + (2^n - 1), halved, since 2^128 is no float; 2^n - 1 is exact where it
  // matters.
  Type* bits = integers_of(x->getType());
  Value* exponent = b_.CreateSub(whole_number(n, bits), integer(bits, 1));
  Value* power = power_of_two(exponent, x->getType());
  Value* half = multiply_add(p, power, b_.CreateFSub(power, constant(x, 0.5)));
  Value* result = with_sign_of(b_.CreateFAdd(half, half), x);
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result);
}

Value* VectorMath::log_of_mantissa(Value* f) {
  Value* p = polynomial(f, {0.0697161183, -0.114797339, 0.116854198, -0.124256872, 0.142490581,
                            -0.166678026, 0.200007156, -0.24999997, 0.333333313});
  Value* square = b_.CreateFMul(f, f);
  return multiply_add(b_.CreateFMul(p, f), square, b_.CreateFMul(square, constant(f, -0.5)));
}

VectorMath::LogParts VectorMath::split_log(Value* x) {
  Type* bits = integers_of(x->getType());
  // Subnormals get an exponent by a multiplication.
  Value* tiny = b_.CreateFCmpOLT(x, constant(x, 0x1p-126));
  Value* normal = b_.CreateSelect(tiny, b_.CreateFMul(x, constant(x, 0x1p24)), x);
  Value* raw = b_.CreateBitCast(normal, bits);
  // The mantissa is to lie in [sqrt(1/2), sqrt(2)): what is above one's exponent is taken away.
  Value* above = b_.CreateSub(raw, integer(bits, 0x3f3504f3));
  Value* exponent = b_.CreateAShr(above, integer(bits, 23));
  Value* mantissa =
      b_.CreateBitCast(b_.CreateSub(raw, b_.CreateShl(exponent, integer(bits, 23))), x->getType());
  Value* e = b_.CreateSIToFP(exponent, x->getType());
  e = b_.CreateSelect(tiny, b_.CreateFSub(e, constant(x, 24)), e);
  return {b_.CreateFSub(mantissa, constant(x, 1)), e};
}

Value* VectorMath::finish_log(Value* x, Value* result) {
  Value* infinity = constant(x, kInfinity);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, infinity), infinity, result);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), constant(x, -kInfinity), result);
  // Negative or NaN.
  return b_.CreateSelect(b_.CreateFCmpUGE(x, constant(x, 0)),
                         b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result),
                         constant(x, std::numeric_limits<double>::quiet_NaN()));
}

Value* VectorMath::log(Value* x) {
  if (!is_single(x)) return one_call("log", x);
  auto [f, e] = split_log(x);
  Value* y = multiply_add(e, constant(x, kLn2LowSingle), log_of_mantissa(f));
  return finish_log(x, multiply_add(e, constant(x, kLn2HighSingle), b_.CreateFAdd(f, y)));
}

Value* VectorMath::log2(Value* x) {
  if (!is_single(x)) return one_call("log2", x);
  auto [f, e] = split_log(x);
  Value* y = log_of_mantissa(f);
  // f * log2(e) in two parts: log2(e) - 1 is small, and f itself exact.
  Value* less = constant(x, kLog2E - 1);
  Value* rest = multiply_add(f, less, multiply_add(y, less, y));
  return finish_log(x, b_.CreateFAdd(e, b_.CreateFAdd(f, rest)));
}

Value* VectorMath::log10(Value* x) {
  if (!is_single(x)) return one_call("log10", x);
  auto [f, e] = split_log(x);
  Value* natural = b_.CreateFAdd(f, log_of_mantissa(f));
  // log10(2) in two parts, the product with the first exact.
  Value* low = b_.CreateFMul(e, constant(x, 4.6050389811952e-6));
  Value* sum = multiply_add(natural, constant(x, 0.43429448190325182), low);
  return finish_log(x, multiply_add(e, constant(x, 0.301025390625), sum));
}

Value* VectorMath::log1p(Value* x) {
  if (!is_single(x)) return one_call("log1p", x);
  Value* one = constant(x, 1);
  Value* sum = b_.CreateFAdd(one, x);
  // What the sum lost.
  Value* back = b_.CreateFSub(sum, one);
  Value* lost = b_.CreateFAdd(b_.CreateFSub(one, b_.CreateFSub(sum, back)), b_.CreateFSub(x, back));
  auto [f, e] = split_log(sum);
  Value* whole = clamp(e, -60, 60);
  Type* bits = integers_of(x->getType());
  Value* inverse = power_of_two(b_.CreateNeg(whole_number(whole, bits)), x->getType());
  Value* corrected = b_.CreateFAdd(f, b_.CreateFMul(lost, inverse));
  f = b_.CreateSelect(b_.CreateFCmpOEQ(e, constant(x, 0)), x, corrected);
  Value* y = multiply_add(e, constant(x, kLn2LowSingle), log_of_mantissa(f));
  Value* result = multiply_add(e, constant(x, kLn2HighSingle), b_.CreateFAdd(f, y));
  result = finish_log(sum, result);
  // Tiny arguments are their own result, the zeros' sign included.
  return b_.CreateSelect(b_.CreateFCmpOLT(magnitude(x), constant(x, 0x1p-25)), x, result);
}

Value* VectorMath::sine_or_cosine(Value* x, bool cosine) {
  if (!is_single(x)) return one_call(cosine ? "cos" : "sin", x);
  Value* n = nearest_integer(b_.CreateFMul(x, constant(x, 0.63661977236758134)));
  // pi/2 in parts; products with n are exact up to the limit below.
  Value* r = multiply_add(n, constant(x, -1.5703125), x);
  r = multiply_add(n, constant(x, -0.0004837512969970703125), r);
  r = multiply_add(n, constant(x, -7.5497901264043321e-8), r);
  r = multiply_add(n, constant(x, 1.7151245100058819e-15), r);
  Value* z = b_.CreateFMul(r, r);
  Value* sine = multiply_add(
      b_.CreateFMul(polynomial(z, {2.72498642e-06, -0.000198400856, 0.00833333191, -0.166666672}),
                    z),
      r, r);
  Value* cosines =
      multiply_add(polynomial(z, {-2.73009078e-07, 2.48005999e-05, -0.00138888881, 0.0416666679}),
                   b_.CreateFMul(z, z), multiply_add(z, constant(x, -0.5), constant(x, 1)));
  Type* bits = integers_of(x->getType());
  Value* quadrant = whole_number(n, bits);
  if (cosine) quadrant = b_.CreateAdd(quadrant, integer(bits, 1));
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, integer(bits, 1)), integer(bits, 0));
  Value* chosen = b_.CreateSelect(odd, cosines, sine);
  Value* sign = b_.CreateShl(b_.CreateAnd(quadrant, integer(bits, 2)), integer(bits, 30));
  Value* fast = b_.CreateBitCast(b_.CreateXor(b_.CreateBitCast(chosen, bits), sign), x->getType());
  if (!cosine) fast = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), x, fast);

  // Far from zero the parts of pi/2 are too few; then, infinity and NaN included, all lanes take
  // libm.
  Value* near = b_.CreateFCmpOLE(magnitude(x), constant(x, has_fma() ? 8192 : 128));
  Value* all_near = lane_count(x->getType()) ? b_.CreateAndReduce(near) : near;
  llvm::Function* function = b_.GetInsertBlock()->getParent();
  llvm::LLVMContext& context = function->getContext();
  auto* from = b_.GetInsertBlock();
  auto* far = llvm::BasicBlock::Create(context, "far", function);
  auto* join = llvm::BasicBlock::Create(context, "joined", function);
  // Marked as rare, so that registers are saved around this call and not on the usual way.
  llvm::MDBuilder weights(context);
  b_.CreateCondBr(all_near, join, far, weights.createBranchWeights(1 << 20, 1));
  b_.SetInsertPoint(far);
  Value* slow = one_call(cosine ? "cos" : "sin", x);
  auto* far_end = b_.GetInsertBlock();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* result = b_.CreatePHI(x->getType(), 2);
  result->addIncoming(fast, from);
  result->addIncoming(slow, far_end);
  return result;
}

Value* VectorMath::sin(Value* x) { return sine_or_cosine(x, false); }
Value* VectorMath::cos(Value* x) { return sine_or_cosine(x, true); }

Value* VectorMath::tanh(Value* x) {
  if (!is_single(x)) return one_call("tanh", x);
  Value* size = magnitude(x);
  Value* large = b_.CreateFSub(
      constant(x, 1),
      b_.CreateFDiv(constant(x, 2), b_.CreateFAdd(exp(b_.CreateFAdd(size, size)), constant(x, 1))));
  Value* z = b_.CreateFMul(x, x);
  Value* p = polynomial(
      z, {0.00229274482, -0.00834394526, 0.0217689183, -0.0539592579, 0.133333042, -0.333333343});
  Value* small = multiply_add(b_.CreateFMul(p, z), size, size);
  Value* result = b_.CreateSelect(b_.CreateFCmpOLT(size, constant(x, 0.625)), small, large);
  return with_sign_of(result, x);
}

Value* VectorMath::erf(Value* x) {
  if (!is_single(x)) return one_call("erf", x);
  Value* size = magnitude(x);
  Value* z = b_.CreateFMul(x, x);
  Value* small = polynomial(z, {8.20416972e-05, -0.00081029156, 0.00519748731, -0.0268579591,
                                0.112836696, -0.376126319, 0.128379166});
  small = multiply_add(small, size, size);
  Value* limited = clamp(size, 0.0, 4.0);
  Value* exponent =
      polynomial(limited, {-2.53683538e-07, 4.00812178e-06, -8.45070463e-06, -0.00029760474,
                           0.00373255461, -0.0241388604, 0.10680221, 0.634756029, 1.12875581});
  Value* large =
      b_.CreateFSub(constant(x, 1), exp(b_.CreateFMul(b_.CreateFNeg(exponent), limited)));
  Value* result = b_.CreateSelect(b_.CreateFCmpOLT(size, constant(x, 0.95)), small, large);
  return with_sign_of(result, x);
}

// Near 0 it is 1/2 + x q(x^2). The tail beyond |x| is t p(t) e^(-x^2 / 2), t = 1 / (1 + 0.4 |x| /
// sqrt 2). The exponential is written as gradients of gelu write their density, which is then
// computed once.
Value* VectorMath::normal_cdf(Value* x) {
  if (!is_single(x)) {
    Value* scaled = b_.CreateFMul(x, constant(x, -0.70710678118654752));
    return b_.CreateFMul(one_call("erfc", scaled), constant(x, 0.5));
  }
  Value *one = constant(x, 1), *size = magnitude(x), *square = b_.CreateFMul(x, x);
  Value* near = polynomial(square, {-6.66284313e-06, 0.000110408961, -0.00118284638, 0.00997160375,
                                    -0.0664900169, 0.398942262});
  near = multiply_add(near, x, constant(x, 0.5));
  Value* gauss = exp(b_.CreateFMul(square, constant(x, -0.5)));
  Value* t = b_.CreateFDiv(one, multiply_add(size, constant(x, 0.282842712), one));
  Value* p = polynomial(t, {0.035003908, 0.220123723, -0.0215437915, 0.160909578, 0.106032975});
  Value* tail = b_.CreateFMul(b_.CreateFMul(t, p), gauss);
  Value* far = b_.CreateSelect(b_.CreateFCmpOLT(x, constant(x, 0)), tail, b_.CreateFSub(one, tail));
  return b_.CreateSelect(b_.CreateFCmpOLT(size, constant(x, 1.25)), near, far);
}

Value* VectorMath::sigmoid(Value* x) {
  Value* one = constant(x, 1);
  return b_.CreateFDiv(one, b_.CreateFAdd(one, exp(b_.CreateFNeg(x))));
}

Value* VectorMath::sqrt(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }

Value* VectorMath::one_call(const char* name, Value* x) {
  Value* const operands[] = {x};
  return call_each_lane(name, operands);
}

Value* VectorMath::call_each_lane(const std::string& name, std::span<Value* const> operands) {
  Type* scalar = operands[0]->getType()->getScalarType();
  std::vector<Type*> types(operands.size(), scalar);
  llvm::FunctionCallee callee = module_.getOrInsertFunction(
      scalar->isFloatTy() ? name + "f" : name, llvm::FunctionType::get(scalar, types, false));
  return call_each_lane(callee, scalar, operands);
}

Value* VectorMath::call_each_lane(llvm::FunctionCallee callee, Type* result,
                                  std::span<Value* const> operands) {
  if (auto* function = llvm::dyn_cast<llvm::Function>(callee.getCallee())) {
    function->setDoesNotAccessMemory();
    function->setDoesNotThrow();
    function->setWillReturn();
  }
  std::vector<Value*> arguments(operands.begin(), operands.end());
  const int lanes = lane_count(operands[0]->getType());
  if (lanes == 0) return b_.CreateCall(callee, arguments);
  Value* vector = llvm::PoisonValue::get(with_lanes_of(result, operands[0]->getType()));
  for (int lane = 0; lane < lanes; ++lane) {
    for (size_t i = 0; i < operands.size(); ++i) {
      arguments[i] = b_.CreateExtractElement(operands[i], static_cast<uint64_t>(lane));
    }
    vector = b_.CreateInsertElement(vector, b_.CreateCall(callee, arguments),
                                    static_cast<uint64_t>(lane));
  }
  return vector;
}

}  // namespace tandem::backends::llvm_cpu
