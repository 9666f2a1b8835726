#pragma once

// Includes LLVM: only for the files that tandem_llvm_sources names.

#include "backends/llvm_cpu/code/instruction_set.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <initializer_list>
#include <span>
#include <string>

namespace tandem::backends::llvm_cpu {

/// Emits mathematical functions of floats and doubles, scalars or vectors, at the builder's
/// insertion point. Common float functions are inlined polynomials, the others one libm call a
/// lane; accuracy is in docs/reference/math-accuracy.md. Zeros, infinities, NaN and subnormals come
/// out as libm's.
class VectorMath {
 public:
  VectorMath(llvm::IRBuilder<>& builder, llvm::Module& module, InstructionSet set)
      : b_(builder), module_(module), set_(set) {}

  llvm::Value* exp(llvm::Value* x);
  llvm::Value* exp2(llvm::Value* x);
  llvm::Value* expm1(llvm::Value* x);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* log2(llvm::Value* x);
  llvm::Value* log10(llvm::Value* x);
  llvm::Value* log1p(llvm::Value* x);
  llvm::Value* sin(llvm::Value* x);
  llvm::Value* cos(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  /// 1 / (1 + exp(-x)), eager's formula.
  llvm::Value* normal_cdf(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);
  /// Correctly rounded.
  llvm::Value* sqrt(llvm::Value* x);

  /// libm's function, one call a lane. `name` is libm's for double ("pow"); floats take its "f"
  /// form. runtime_functions.cpp lists the functions that can be called.
  llvm::Value* call_each_lane(const std::string& name, std::span<llvm::Value* const> operands);

  /// One call without operands that differ by lane: a function of one lane's values. Public for the
  /// kernels' own conversions.
  llvm::Value* call_each_lane(llvm::FunctionCallee callee, llvm::Type* result,
                              std::span<llvm::Value* const> operands);

 private:
  struct LogParts {
    llvm::Value* above_one;  // the mantissa, in [sqrt(1/2), sqrt(2)), less one
    llvm::Value* exponent;   // as a float
  };

  bool is_single(llvm::Value* x) const { return x->getType()->getScalarType()->isFloatTy(); }
  bool has_fma() const { return set_ != InstructionSet::Baseline; }
  llvm::Value* constant(llvm::Value* like, double value) const;
  llvm::Value* integer(llvm::Type* type, int64_t value) const;
  llvm::Type* integers_of(llvm::Type* type) const;
  llvm::Value* multiply_add(llvm::Value* x, llvm::Value* y, llvm::Value* z);
  llvm::Value* polynomial(llvm::Value* x, std::initializer_list<double> highest_first);
  llvm::Value* magnitude(llvm::Value* x);
  llvm::Value* with_sign_of(llvm::Value* x, llvm::Value* sign);
  llvm::Value* nearest_integer(llvm::Value* x);
  llvm::Value* clamp(llvm::Value* x, double low, double high);
  llvm::Value* whole_number(llvm::Value* x, llvm::Type* type);
  llvm::Value* power_of_two(llvm::Value* exponent, llvm::Type* type);
  llvm::Value* scale(llvm::Value* x, llvm::Value* exponent);
  /// e^r - 1 for the small r that remain after whole powers of two.
  llvm::Value* small_expm1(llvm::Value* r);
  llvm::Value* log_of_mantissa(llvm::Value* f);
  LogParts split_log(llvm::Value* x);
  llvm::Value* finish_log(llvm::Value* x, llvm::Value* result);
  llvm::Value* sine_or_cosine(llvm::Value* x, bool cosine);
  llvm::Value* one_call(const char* name, llvm::Value* x);

  llvm::IRBuilder<>& b_;
  llvm::Module& module_;
  InstructionSet set_;
};

}  // namespace tandem::backends::llvm_cpu
