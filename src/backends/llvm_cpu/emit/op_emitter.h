#pragma once

// Includes LLVM: only for the files that tandem_llvm_sources names.

#include "backends/llvm_cpu/emit/vector_math.h"
#include "loops/ir/loop_ir.h"

#include <llvm/IR/IRBuilder.h>

namespace tandem::backends::llvm_cpu {

/// The LLVM type of values of a loop-IR dtype: bool is i1.
llvm::Type* value_type(llvm::LLVMContext& context, c10::ScalarType dtype);
/// The LLVM type of elements in memory: bool is i8, the 16-bit floats are i16.
llvm::Type* memory_type(llvm::LLVMContext& context, c10::ScalarType dtype);

/// Emits the ops of the loop IR that map values to values; operands are scalars or vectors, all
/// alike.
class OpEmitter {
 public:
  OpEmitter(llvm::IRBuilder<>& builder, llvm::Module& module, InstructionSet set)
      : b_(builder), module_(module), set_(set), math_(builder, module, set) {}

  struct Operands {
    llvm::Value *a = nullptr, *b = nullptr, *c = nullptr;
    c10::ScalarType dtype = c10::ScalarType::Float;  // of a
  };
  llvm::Value* emit(const loops::Instruction& line, const Operands& operands);

  /// What is read from memory, as a value; and back.
  llvm::Value* widen(llvm::Value* stored, c10::ScalarType dtype);
  llvm::Value* narrow(llvm::Value* value, c10::ScalarType dtype);

  llvm::Value* max(llvm::Value* a, llvm::Value* b, c10::ScalarType dtype);
  llvm::Value* min(llvm::Value* a, llvm::Value* b, c10::ScalarType dtype);

 private:
  llvm::Value* unary(const loops::Instruction& line, const Operands& operands);
  llvm::Value* unary_float(loops::LoopOp op, llvm::Value* x);
  llvm::Value* binary(const loops::Instruction& line, const Operands& operands);
  llvm::Value* float_binary(loops::LoopOp op, llvm::Value* a, llvm::Value* b);
  llvm::Value* random_bits(llvm::Value* counter, llvm::Value* key);
  llvm::Value* integer_binary(loops::LoopOp op, const Operands& operands);
  llvm::Value* floor_divide(llvm::Value* a, llvm::Value* b);
  llvm::Value* remainder(llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(loops::LoopOp op, const Operands& operands);
  llvm::Value* cast(llvm::Value* x, c10::ScalarType from, c10::ScalarType to);
  llvm::Value* to_bf16_bits(llvm::Value* x);
  llvm::Value* to_f16_bits(llvm::Value* x);
  llvm::Value* from_bf16_bits(llvm::Value* bits);
  llvm::Value* from_f16_bits(llvm::Value* bits);
  llvm::Value* call(const char* name, std::initializer_list<llvm::Value*> operands);
  llvm::Type* like(llvm::Type* scalar, llvm::Value* shape) const;
  llvm::Value* number(llvm::Value* shape, double value) const;
  llvm::Value* integer(llvm::Value* shape, int64_t value) const;

  llvm::IRBuilder<>& b_;
  llvm::Module& module_;
  InstructionSet set_;
  VectorMath math_;
};

}  // namespace tandem::backends::llvm_cpu
