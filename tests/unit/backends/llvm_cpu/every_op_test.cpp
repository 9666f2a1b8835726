#include "base/error.h"
#include "loops/ir/loop_op_table.h"
#include "unit/backends/llvm_cpu/kernel_runs.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

// Every op of the loop IR, for every dtype it takes and every set of instructions.
namespace tandem {
namespace {

using c10::ScalarType;
using loops::BufferRole;
using loops::Instruction;
using loops::Kernel;
using loops::LoopOp;
using loops::OpKind;
using test::KernelMemory;

constexpr int64_t kCount = 203;

const std::vector<ScalarType> kFloats = {ScalarType::Float, ScalarType::Double};
const std::vector<ScalarType> kIntegers = {ScalarType::Byte, ScalarType::Char, ScalarType::Short,
                                           ScalarType::Int, ScalarType::Long};
const std::vector<ScalarType> kBool = {ScalarType::Bool};

std::vector<ScalarType> joined(std::initializer_list<std::vector<ScalarType>> lists) {
  std::vector<ScalarType> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

struct Case {
  LoopOp op;
  ScalarType operand, result;
};

std::vector<ScalarType> operand_dtypes(LoopOp op, OpKind kind) {
  switch (kind) {
    case OpKind::Round:
      return {ScalarType::Float};
    case OpKind::RandomBits:
      return {ScalarType::Long};
    case OpKind::FloatUnary:
    case OpKind::FloatBinary:
    case OpKind::FloatToBool:
    case OpKind::Fma:
      return kFloats;
    case OpKind::BoolOrInt:
      return op == LoopOp::ShiftLeft || op == LoopOp::ShiftRight ? kIntegers
                                                                 : joined({kBool, kIntegers});
    case OpKind::AnyUnary:
    case OpKind::AnyBinary:
      return joined({kFloats, kIntegers});
    default:
      return joined({kFloats, kIntegers, kBool});
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int i = 0; i <= static_cast<int>(LoopOp::ReduceArgmin); ++i) {
    const auto op = static_cast<LoopOp>(i);
    const OpKind kind = loops::row(op).kind;
    if (kind == OpKind::Source || kind == OpKind::Store || kind == OpKind::CheckIndex ||
        kind == OpKind::Reduction) {
      continue;  // kernel_test.cpp
    }
    for (ScalarType dtype : operand_dtypes(op, kind)) {
      if (kind == OpKind::Cast) {
        for (ScalarType to : joined({kFloats, kIntegers, kBool})) cases.push_back({op, dtype, to});
      } else {
        const bool to_bool = kind == OpKind::Comparison || kind == OpKind::FloatToBool;
        cases.push_back({op, dtype, to_bool ? ScalarType::Bool : dtype});
      }
    }
  }
  return cases;
}

/// y[i] = op(x0[i], x1[i], x2[i])
Kernel kernel_of(const Case& it) {
  Kernel kernel;
  kernel.name = "k";
  kernel.dims = {{"i", kCount}};
  kernel.kept = 1;
  const int operands = loops::operand_count(it.op);
  const bool select = it.op == LoopOp::Select;
  Instruction line{.op = it.op, .dtype = it.result};
  int32_t* const places[] = {&line.a, &line.b, &line.c};
  for (int i = 0; i < operands; ++i) {
    const ScalarType dtype = select && i == 0 ? ScalarType::Bool : it.operand;
    kernel.buffers.push_back({base::str("x", i), BufferRole::In, dtype, kCount});
    kernel.accesses.push_back({.buffer = i, .strides = {1}});
    kernel.body.push_back({.op = LoopOp::Load, .dtype = dtype, .slot = i});
    *places[i] = i;
  }
  kernel.body.push_back(line);
  kernel.buffers.push_back({"y", BufferRole::Out, it.result, kCount});
  kernel.accesses.push_back({.buffer = operands, .strides = {1}});
  kernel.body.push_back({.op = LoopOp::Store, .dtype = it.result, .a = operands, .slot = operands});
  kernel.phases = {{false, 0, static_cast<int32_t>(kernel.body.size())}};
  return kernel;
}

/// Functions that are rounded more than once; the table of accuracies has tighter bounds.
double allowed_units(const Case& it) {
  static const std::set<LoopOp> exact = {
      LoopOp::Neg,   LoopOp::Abs,   LoopOp::Sign, LoopOp::Floor, LoopOp::Ceil,
      LoopOp::Trunc, LoopOp::Round, LoopOp::Sqrt, LoopOp::Rsqrt, LoopOp::Reciprocal};
  const OpKind kind = loops::row(it.op).kind;
  if (exact.contains(it.op)) return 0;
  if (kind == OpKind::FloatUnary) return 4;
  if (it.op == LoopOp::Pow || it.op == LoopOp::Atan2 || it.op == LoopOp::Hypot) return 2;
  return 0;
}

TEST(CpuKernel, EveryOpOfEveryDtypeIsAsTheReferenceSays) {
  std::vector<Case> cases;
  std::vector<Kernel> kernels;
  for (const Case& it : all_cases()) {
    // Good to an absolute error; tests/unit/backends/llvm/gelu_test.cpp.
    if (it.op == LoopOp::NormalCdf && it.operand == ScalarType::Float) continue;
    cases.push_back(it);
    kernels.push_back(kernel_of(it));
  }
  ASSERT_GT(kernels.size(), 300u);
  std::vector<const Kernel*> pointers;
  for (const Kernel& kernel : kernels) {
    loops::verify(kernel);
    pointers.push_back(&kernel);
  }
  const auto reference = loops::make_reference_compiler()->compile(pointers);
  for (auto set : test::instruction_sets()) {
    const auto made = backends::llvm_cpu::make_cpu_compiler(set)->compile(pointers);
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Case& it = cases[i];
      SCOPED_TRACE(base::str(name(set), " ", loops::to_string(it.op), " ",
                             c10::toString(it.operand), " -> ", c10::toString(it.result)));
      ASSERT_TRUE(made[i].kernel) << made[i].reason;
      KernelMemory got(kernels[i], KernelMemory::Values::Anything, 7),
          expected(kernels[i], KernelMemory::Values::Anything, 7);
      made[i].kernel->launch(got.pointers(), test::kHostStream);
      reference[i].kernel->launch(expected.pointers(), test::kHostStream);
      EXPECT_EQ(test::difference(kernels[i], got, expected, allowed_units(it)), "");
    }
  }
}

TEST(CpuKernel, WhatHasNoCodeSaysSo) {
  const Kernel kernel = kernel_of({LoopOp::Exp, ScalarType::Long, ScalarType::Long});
  const Kernel* const kernels[] = {&kernel};
  const auto made = backends::llvm_cpu::make_cpu_compiler()->compile(kernels);
  EXPECT_FALSE(made[0].kernel);
  EXPECT_EQ(made[0].reason, "lower: no code is generated for exp of integers");
}

}  // namespace
}  // namespace tandem
