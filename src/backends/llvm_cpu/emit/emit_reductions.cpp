#include "backends/llvm_cpu/emit/kernel_emitter.h"

#include <llvm/IR/Constants.h>

#include <limits>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {

using c10::ScalarType;
using llvm::Type;
using llvm::Value;
using loops::Instruction;
using loops::kNone;
using loops::LoopOp;

Value* KernelEmitter::entry_slot(Type* type) {
  llvm::IRBuilder<> entry(&function_.getEntryBlock(), function_.getEntryBlock().begin());
  return entry.CreateAlloca(type);
}

Value* KernelEmitter::identity(const Instruction& line, Type* type) {
  const ScalarType dtype = accumulated(line);
  const bool is_float = c10::isFloatingType(dtype);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto bits = static_cast<unsigned>(type->getScalarSizeInBits());
  const bool is_signed = dtype != ScalarType::Byte && dtype != ScalarType::Bool;
  switch (line.op) {
    case LoopOp::ReduceProd:
      return is_float ? llvm::ConstantFP::get(type, 1) : llvm::ConstantInt::get(type, 1);
    case LoopOp::ReduceMax:
    case LoopOp::ReduceArgmax:
      if (is_float) return llvm::ConstantFP::get(type, -kInfinity);
      return llvm::ConstantInt::get(
          type, is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits));
    case LoopOp::ReduceMin:
    case LoopOp::ReduceArgmin:
      if (is_float) return llvm::ConstantFP::get(type, kInfinity);
      return llvm::ConstantInt::get(
          type, is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
    case LoopOp::ReduceAll:
      return llvm::Constant::getAllOnesValue(type);
    default:
      // -0: adding it changes nothing, not even the sign of a zero.
      return is_float ? llvm::ConstantFP::get(type, -0.0) : llvm::Constant::getNullValue(type);
  }
}

void KernelEmitter::begin_reduction(size_t at) {
  const Instruction& line = kernel_.body[at];
  Accumulator& sum = accumulators_[at];
  Type* scalar = is_wide(line) ? b_.getDoubleTy() : type_of(accumulated(line));
  sum.type = vector_type(scalar);
  for (int vector = 0; vector < side_by_side_; ++vector) {
    sum.slots.push_back(entry_slot(sum.type));
    b_.CreateStore(identity(line, sum.type), sum.slots.back());
    if (!is_arg(line.op)) continue;
    sum.indices.push_back(entry_slot(vector_type(b_.getInt64Ty())));
    Value* last = splat(b_.getInt64(static_cast<uint64_t>(INT64_MAX)));
    b_.CreateStore(last, sum.indices.back());
  }
  if (!is_summed_in_blocks(line)) return;
  Type* wide = vector_type(b_.getDoubleTy());
  sum.blocks = entry_slot(wide);
  b_.CreateStore(identity(line, wide), sum.blocks);
  if (line.dtype != ScalarType::Double) return;
  sum.lost = entry_slot(wide);
  b_.CreateStore(llvm::Constant::getNullValue(wide), sum.lost);
}

/// Adds what the first accumulators hold to the sum of all blocks, and empties them.
void KernelEmitter::finish_block(size_t at, int vectors) {
  const Instruction& line = kernel_.body[at];
  const Accumulator& sum = accumulators_[at];
  std::vector<Value*> parts;
  for (int vector = 0; vector < vectors; ++vector) {
    Value* slot = sum.slots[static_cast<size_t>(vector)];
    parts.push_back(b_.CreateLoad(sum.type, slot));
    b_.CreateStore(identity(line, sum.type), slot);
  }
  for (size_t width = 1; width < parts.size(); width *= 2) {
    for (size_t i = 0; i + width < parts.size(); i += 2 * width)
      parts[i] = b_.CreateFAdd(parts[i], parts[i + width]);
  }
  Type* wide = vector_type(b_.getDoubleTy());
  Value* before = b_.CreateLoad(wide, sum.blocks);
  if (!sum.lost) {
    b_.CreateStore(b_.CreateFAdd(before, b_.CreateFPExt(parts[0], wide)), sum.blocks);
    return;
  }
  const Sum after = add_exactly({before, b_.CreateLoad(wide, sum.lost)}, parts[0]);
  b_.CreateStore(after.total, sum.blocks);
  b_.CreateStore(after.lost, sum.lost);
}

/// Doubles have nothing wider to be summed in. So what an addition loses is worked out.
KernelEmitter::Sum KernelEmitter::add_exactly(const Sum& sum, Value* x) {
  Value* after = b_.CreateFAdd(sum.total, x);
  Value* taken = b_.CreateFSub(after, sum.total);
  Value* lost =
      b_.CreateFAdd(b_.CreateFSub(sum.total, b_.CreateFSub(after, taken)), b_.CreateFSub(x, taken));
  return {after, b_.CreateFAdd(sum.lost, lost)};
}

Value* KernelEmitter::joined(const Sum& sum) {
  // Nothing, or of an infinite sum NaN: neither may change the sum.
  Value* is_some = b_.CreateFCmpONE(sum.lost, llvm::Constant::getNullValue(sum.lost->getType()));
  return b_.CreateSelect(is_some, b_.CreateFAdd(sum.total, sum.lost), sum.total);
}

Value* KernelEmitter::combine(const Instruction& line, Value* a, Value* b) {
  const ScalarType dtype = accumulated(line);
  const bool is_float = c10::isFloatingType(dtype);
  switch (line.op) {
    case LoopOp::ReduceSum:
      return is_float ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    case LoopOp::ReduceProd:
      return is_float ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
    case LoopOp::ReduceMax:
      return ops_.max(b, a, dtype);
    case LoopOp::ReduceMin:
      return ops_.min(b, a, dtype);
    case LoopOp::ReduceAny:
      return b_.CreateOr(a, b);
    default:
      return b_.CreateAnd(a, b);
  }
}

KernelEmitter::Best KernelEmitter::better(const Instruction& line, const Best& a, const Best& b) {
  const ScalarType dtype = accumulated(line);
  const bool is_max = line.op == LoopOp::ReduceArgmax;
  Value *takes_b = nullptr, *equal = nullptr;
  if (c10::isFloatingType(dtype)) {
    Value *a_nan = b_.CreateFCmpUNO(a.element, a.element),
          *b_nan = b_.CreateFCmpUNO(b.element, b.element);
    Value* beyond =
        is_max ? b_.CreateFCmpOGT(b.element, a.element) : b_.CreateFCmpOLT(b.element, a.element);
    takes_b = b_.CreateOr(beyond, b_.CreateAnd(b_nan, b_.CreateNot(a_nan)));
    equal = b_.CreateOr(b_.CreateFCmpOEQ(a.element, b.element), b_.CreateAnd(a_nan, b_nan));
  } else {
    const bool is_signed = dtype != ScalarType::Byte && dtype != ScalarType::Bool;
    Value *first = is_max ? a.element : b.element, *second = is_max ? b.element : a.element;
    takes_b = is_signed ? b_.CreateICmpSLT(first, second) : b_.CreateICmpULT(first, second);
    equal = b_.CreateICmpEQ(first, second);
  }
  takes_b = b_.CreateOr(takes_b, b_.CreateAnd(equal, b_.CreateICmpSLT(b.index, a.index)));
  return {b_.CreateSelect(takes_b, b.element, a.element),
          b_.CreateSelect(takes_b, b.index, a.index)};
}

void KernelEmitter::accumulate(size_t at) {
  const Instruction& line = kernel_.body[at];
  Accumulator& sum = accumulators_[at];
  // Lanes that do not exist leave the accumulator alone; those of kept dims have one that nobody
  // reads.
  Value* mask = plan_.vector_is_kept ? nullptr : mask_;
  const bool vector_here = plan_.vector_dim != kNone;
  // A value that is the same in all lanes of a reduced dim still counts once per lane.
  for (int vector = 0; vector < side_by_side_; ++vector) {
    Value* x = operand(line.a, vector, vector_here);
    Value* slot = sum.slots[static_cast<size_t>(vector)];
    Value* old = b_.CreateLoad(sum.type, slot);
    if (is_arg(line.op)) {
      Value* index_slot = sum.indices[static_cast<size_t>(vector)];
      Type* type = vector_type(b_.getInt64Ty());
      const Best before{old, b_.CreateLoad(type, index_slot)};
      Best after = better(line, before, {x, operand(line.b, vector, vector_here)});
      if (mask) {
        after.element = b_.CreateSelect(mask, after.element, before.element);
        after.index = b_.CreateSelect(mask, after.index, before.index);
      }
      b_.CreateStore(after.element, slot);
      b_.CreateStore(after.index, index_slot);
      continue;
    }
    if (is_wide(line)) x = b_.CreateFPExt(x, sum.type);
    Value* next = combine(line, old, x);
    if (mask) next = b_.CreateSelect(mask, next, old);
    b_.CreateStore(next, slot);
  }
}

Value* KernelEmitter::has_wide_totals() {
  return b_.CreateICmpNE(number(plan_.wide_totals), b_.getInt64(0));
}

void KernelEmitter::for_totals(size_t at, const std::function<void(bool wide)>& work) {
  const Instruction& line = kernel_.body[at];
  if (!may_have_wide_totals(line)) return work(has_wide_total(line));
  Value* wide = has_wide_totals();
  when(wide, [&] { work(true); });
  when(b_.CreateNot(wide), [&] { work(false); });
}

KernelEmitter::Totals KernelEmitter::totals(size_t at, int vector, bool wide) {
  const Instruction& line = kernel_.body[at];
  Type* scalar = wide ? b_.getDoubleTy() : type_of(accumulated(line));
  // Lanes of i1 have no place of their own in memory.
  if (scalar->isIntegerTy(1)) scalar = b_.getInt8Ty();
  Value* column =
      b_.CreateNSWAdd(column_, b_.getInt64(static_cast<uint64_t>(vector * plan_.lanes)));
  Value* elements = b_.CreateInBoundsGEP(scalar, totals_memory_[at], column);
  Value* second = nullptr;
  if (totals_of(line) > 1) {
    second = b_.CreateInBoundsGEP(b_.getInt8Ty(), totals_memory_[at], number(plan_.totals_bytes));
    second = b_.CreateInBoundsGEP(b_.getInt64Ty(), second, column);
  }
  const bool arg = is_arg(line.op);
  return {elements, arg ? second : nullptr, arg ? nullptr : second, vector_type(scalar)};
}

/// What the accumulators hold becomes the total.
void KernelEmitter::write_totals(size_t at) {
  const Accumulator& sum = accumulators_[at];
  const auto write = [&](int vector, bool wide) {
    const auto slot = static_cast<size_t>(vector);
    const Totals total = totals(at, vector, wide);
    Value* value = b_.CreateLoad(sum.type, sum.slots[slot]);
    if (value->getType() != total.type) {
      value = value->getType()->isFPOrFPVectorTy() ? b_.CreateFPExt(value, total.type)
                                                   : b_.CreateZExt(value, total.type);
    }
    b_.CreateAlignedStore(value, total.elements, llvm::Align(1));
    if (total.lost)
      b_.CreateAlignedStore(llvm::Constant::getNullValue(total.type), total.lost, llvm::Align(8));
    if (!total.indices) return;
    Value* index = b_.CreateLoad(vector_type(b_.getInt64Ty()), sum.indices[slot]);
    b_.CreateAlignedStore(index, total.indices, llvm::Align(8));
  };
  for_totals(at, [&](bool wide) {
    for (int vector = 0; vector < side_by_side_; ++vector) write(vector, wide);
  });
}

void KernelEmitter::add_to_totals(size_t at) {
  const Instruction& line = kernel_.body[at];
  const Accumulator& sum = accumulators_[at];
  Type* indices = vector_type(b_.getInt64Ty());
  const auto add = [&](int vector, bool wide) {
    const auto slot = static_cast<size_t>(vector);
    const Totals total = totals(at, vector, wide);
    Value* old = b_.CreateAlignedLoad(total.type, total.elements, llvm::Align(1));
    Value* value = b_.CreateLoad(sum.type, sum.slots[slot]);
    if (is_arg(line.op)) {
      const Best best =
          better(line, {old, b_.CreateAlignedLoad(indices, total.indices, llvm::Align(8))},
                 {value, b_.CreateLoad(indices, sum.indices[slot])});
      b_.CreateAlignedStore(best.element, total.elements, llvm::Align(1));
      b_.CreateAlignedStore(best.index, total.indices, llvm::Align(8));
      return;
    }
    if (value->getType() != total.type) {
      value = value->getType()->isFPOrFPVectorTy() ? b_.CreateFPExt(value, total.type)
                                                   : b_.CreateZExt(value, total.type);
    }
    if (total.lost) {
      const Sum after =
          add_exactly({old, b_.CreateAlignedLoad(total.type, total.lost, llvm::Align(8))}, value);
      b_.CreateAlignedStore(after.total, total.elements, llvm::Align(1));
      b_.CreateAlignedStore(after.lost, total.lost, llvm::Align(8));
      return;
    }
    b_.CreateAlignedStore(combine(line, old, value), total.elements, llvm::Align(1));
  };
  for_totals(at, [&](bool wide) {
    for (int vector = 0; vector < side_by_side_; ++vector) add(vector, wide);
  });
}

Value* KernelEmitter::read_total(size_t at, int vector, bool wide) {
  const Instruction& line = kernel_.body[at];
  const Totals total = totals(at, vector, wide);
  if (is_arg(line.op))
    return b_.CreateAlignedLoad(vector_type(b_.getInt64Ty()), total.indices, llvm::Align(8));
  Value* value = b_.CreateAlignedLoad(total.type, total.elements, llvm::Align(1));
  if (total.lost)
    value = joined({value, b_.CreateAlignedLoad(total.type, total.lost, llvm::Align(8))});
  Type* wanted = vector_type(type_of(line.dtype));
  if (value->getType() == wanted) return value;
  return value->getType()->isFPOrFPVectorTy() ? b_.CreateFPTrunc(value, wanted)
                                              : b_.CreateTrunc(value, wanted);
}

void KernelEmitter::read_totals(size_t at) {
  const Instruction& line = kernel_.body[at];
  values_[at] = {nullptr};
  for (int vector = 0; vector < side_by_side_; ++vector) {
    Value* value = read_total(at, vector, has_wide_total(line));
    // There is room for wide totals in any case.
    if (may_have_wide_totals(line))
      value = b_.CreateSelect(has_wide_totals(), value, read_total(at, vector, false));
    values_[at].push_back(value);
  }
}

void KernelEmitter::finish_reduction(size_t at) {
  const Instruction& line = kernel_.body[at];
  const Accumulator& sum = accumulators_[at];
  Type* indices = vector_type(b_.getInt64Ty());
  std::vector<Best> parts;
  if (sum.blocks) {
    Type* wide = vector_type(b_.getDoubleTy());
    Value* total = b_.CreateLoad(wide, sum.blocks);
    parts.push_back({sum.lost ? joined({total, b_.CreateLoad(wide, sum.lost)}) : total, nullptr});
  }
  for (size_t vector = 0; vector < sum.slots.size() && !sum.blocks; ++vector) {
    parts.push_back({b_.CreateLoad(sum.type, sum.slots[vector]),
                     is_arg(line.op) ? b_.CreateLoad(indices, sum.indices[vector]) : nullptr});
  }
  const auto join = [&](const Best& a, const Best& b) {
    if (is_arg(line.op)) return better(line, a, b);
    return Best{combine(line, a.element, b.element), nullptr};
  };
  const auto result = [&](const Best& part) {
    if (is_arg(line.op)) return part.index;
    if (line.dtype != ScalarType::Float || !part.element->getType()->getScalarType()->isDoubleTy())
      return part.element;
    const bool vector = part.element->getType()->isVectorTy();
    return b_.CreateFPTrunc(part.element, vector ? vector_type(b_.getFloatTy()) : b_.getFloatTy());
  };
  if (plan_.vector_is_kept && plan_.vector_dim != kNone) {
    values_[at] = {nullptr};
    for (const Best& part : parts) values_[at].push_back(result(part));
    return;
  }
  while (parts.size() > 1) {
    std::vector<Best> next;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) next.push_back(join(parts[i], parts[i + 1]));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = std::move(next);
  }
  // Halves of the vector, until one lane is left.
  Best best = parts[0];
  for (int lanes = plan_.lanes; lanes > 1; lanes /= 2) {
    const auto half = [&](Value* value, int first) -> Value* {
      if (!value) return nullptr;
      if (lanes == 2) return b_.CreateExtractElement(value, static_cast<uint64_t>(first));
      std::vector<int> chosen;
      for (int lane = 0; lane < lanes / 2; ++lane) chosen.push_back(first + lane);
      return b_.CreateShuffleVector(value, chosen);
    };
    best = join({half(best.element, 0), half(best.index, 0)},
                {half(best.element, lanes / 2), half(best.index, lanes / 2)});
  }
  values_[at] = {result(best)};
}

}  // namespace tandem::backends::llvm_cpu
