// Lines that touch memory: addresses, loads, stores, and what is asked for in advance.

#include "backends/llvm_cpu/emit/kernel_emitter.h"
#include "backends/llvm_cpu/emit/op_emitter.h"
#include "backends/llvm_cpu/form.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Metadata.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {

using llvm::Type;
using llvm::Value;
using loops::Access;
using loops::Buffer;
using loops::BufferRole;
using loops::Instruction;
using loops::kNone;
using loops::LoopOp;

Value* KernelEmitter::lane_offsets(int64_t stride) {
  std::vector<llvm::Constant*> lanes;
  for (int lane = 0; lane < plan_.lanes; ++lane)
    lanes.push_back(b_.getInt64(static_cast<uint64_t>(lane)));
  if (plan_.lanes == 1) return lanes[0];
  Value* numbers = llvm::ConstantVector::get(lanes);
  return stride == 1 ? numbers : b_.CreateMul(numbers, splat(number(stride)));
}

/// The parts of the offset are added in the order of the loops, so that each is computed outside
/// the loops that do not change it.
Value* KernelEmitter::address(const Access& access, int vector, Value* indirect) {
  const Buffer& buffer = buffer_of(access);
  Type* type = memory_type(b_.getContext(), buffer.dtype);
  // Lanes of a kept dim have scratch of their own, side by side.
  const bool in_columns =
      buffer.role == BufferRole::Scratch && plan_.vector_is_kept && plan_.vector_dim != kNone;
  const int64_t columns = in_columns ? plan_.lanes * plan_.unroll : 1;
  Value* place = buffers_[static_cast<size_t>(access.buffer)];
  const auto add = [&](Value* elements) { place = b_.CreateInBoundsGEP(type, place, elements); };
  Value* fixed = times(access.offset, columns);
  if (in_columns)
    fixed = b_.CreateAdd(fixed, b_.getInt64(static_cast<uint64_t>(vector * plan_.lanes)));
  const auto add_dim = [&](size_t dim) {
    const bool along = static_cast<int32_t>(dim) == plan_.vector_dim;
    if (access.strides[dim] == 0 || (along && in_columns)) return;
    Value* index = index_[dim];
    if (sizes_vary() && block_row_.first != nullptr && dim + 1 == kernel_.dims.size()) {
      add(b_.CreateNSWMul(block_row_.first, times(access.strides[dim], columns)));
      place = places_on(type, place, access.strides[dim], block_row_.row);
      return;
    }
    if (along && vector > 0)
      index = b_.CreateNSWAdd(index, b_.getInt64(static_cast<uint64_t>(vector * plan_.lanes)));
    add(b_.CreateNSWMul(index, times(access.strides[dim], columns)));
  };
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(fixed);
  if (known == nullptr || !known->isZero()) add(fixed);
  const auto kept = static_cast<size_t>(kernel_.kept);
  const auto along = static_cast<size_t>(plan_.vector_dim);
  for (size_t dim = 0; dim < kept; ++dim)
    if (dim != along) add_dim(dim);
  if (plan_.vector_dim != kNone && plan_.vector_is_kept) add_dim(along);
  for (size_t dim = kept; dim < kernel_.dims.size(); ++dim)
    if (dim != along) add_dim(dim);
  if (plan_.vector_dim != kNone && !plan_.vector_is_kept) add_dim(along);
  if (indirect) add(b_.CreateMul(indirect, times(access.indirect_stride, columns)));
  return place;
}

/// One load a lane: on several CPUs faster than the instruction that gathers.
Value* KernelEmitter::load_each_lane(Type* type, Value* place, Value* offsets, llvm::Align align) {
  Value* result = llvm::PoisonValue::get(type);
  for (int lane = 0; lane < plan_.lanes; ++lane) {
    Value* offset = b_.CreateExtractElement(offsets, static_cast<uint64_t>(lane));
    Value* there = b_.CreateInBoundsGEP(type->getScalarType(), place, offset);
    result =
        b_.CreateInsertElement(result, b_.CreateAlignedLoad(type->getScalarType(), there, align),
                               static_cast<uint64_t>(lane));
  }
  return result;
}

Value* KernelEmitter::load_each_lane(Type* type, Value* place, int64_t stride, llvm::Align align) {
  Value* result = llvm::PoisonValue::get(type);
  for (int lane = 0; lane < plan_.lanes; ++lane) {
    Value* there = places_on(type->getScalarType(), place, stride, lane);
    result =
        b_.CreateInsertElement(result, b_.CreateAlignedLoad(type->getScalarType(), there, align),
                               static_cast<uint64_t>(lane));
  }
  return result;
}

int64_t KernelEmitter::lane_stride(const Access& access) const {
  if (!has_lanes()) return 0;
  if (plan_.vector_is_kept && buffer_of(access).role == BufferRole::Scratch) return 1;
  return access.strides[static_cast<size_t>(plan_.vector_dim)];
}

void KernelEmitter::emit_load(size_t at) {
  const Instruction& line = kernel_.body[at];
  const Access& access = kernel_.accesses[static_cast<size_t>(line.slot)];
  const Buffer& buffer = buffer_of(access);
  std::vector<Value*>& value = values_[at];
  Type* type = memory_type(b_.getContext(), buffer.dtype);
  const llvm::Align align(static_cast<uint64_t>(element_bytes(buffer.dtype)));
  const int64_t stride = lane_stride(access);
  const bool indirect_differs = has_lanes() && lanes_differ(line.a);
  const bool mask_differs = has_lanes() && lanes_differ(line.b);

  if (stride == 0 && !indirect_differs) {
    Value* place = address(access, 0, line.a == kNone ? nullptr : scalar(line.a));
    if (line.b != kNone && !mask_differs) place = b_.CreateSelect(scalar(line.b), place, zeros_);
    if (!mask_differs) {
      value = {ops_.widen(b_.CreateAlignedLoad(type, place, align), buffer.dtype)};
      return;
    }
  }
  value = {nullptr};
  for (int vector = 0; vector < side_by_side_; ++vector) {
    Value* mask = mask_;
    if (line.b != kNone) {
      Value* wanted = operand(line.b, vector, true);
      mask = mask ? b_.CreateAnd(mask, wanted) : wanted;
    }
    if (inside_inner_ && !plan_.prefetched.empty() &&
        plan_.prefetched[static_cast<size_t>(line.slot)])
      prefetch(access, vector);
    if (last_sweep_ && plan_.prefetch_next_row) prefetch_next_row(access, vector);
    Type* loaded = vector_type(type);
    Value* none = llvm::Constant::getNullValue(loaded);
    Value* result = nullptr;
    if (stride == 1 && !indirect_differs) {
      Value* place = address(access, vector, line.a == kNone ? nullptr : scalar(line.a));
      result = mask ? static_cast<Value*>(b_.CreateMaskedLoad(loaded, place, align, mask, none))
                    : b_.CreateAlignedLoad(loaded, place, align);
    } else {
      Value* place =
          address(access, vector, indirect_differs || line.a == kNone ? nullptr : scalar(line.a));
      if (!mask && !indirect_differs) {
        result = load_each_lane(loaded, place, stride, align);
      } else {
        Value* offsets = lane_offsets(stride);
        if (indirect_differs) {
          Value* rows = operand(line.a, vector, true);
          Value* factor = splat(number(access.indirect_stride));
          offsets = b_.CreateAdd(offsets, b_.CreateMul(rows, factor));
        }
        result = mask ? static_cast<Value*>(b_.CreateMaskedGather(
                            loaded, b_.CreateInBoundsGEP(type, place, offsets), align, mask, none))
                      : load_each_lane(loaded, place, offsets, align);
      }
    }
    value.push_back(ops_.widen(result, buffer.dtype));
  }
}

/// Asks for what a later row of a column walk will read here; beyond the end that does no harm.
void KernelEmitter::prefetch(const Access& access, int vector) {
  Value* place = nullptr;
  if (sizes_vary() && block_row_.first != nullptr) {
    const BlockRow here = block_row_;
    block_row_.row += plan_.prefetch_rows;
    place = address(access, vector, nullptr);
    block_row_ = here;
  } else {
    Value* bytes =
        times(access.strides.back(), element_bytes(buffer_of(access).dtype) * plan_.prefetch_rows);
    place = b_.CreateGEP(b_.getInt8Ty(), address(access, vector, nullptr), bytes);
  }
  // A whole block ahead is too much for the first cache.
  const uint32_t nearness = plan_.row_block > 0 ? 2 : 3;
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {place->getType()},
                     {place, b_.getInt32(0), b_.getInt32(nearness), b_.getInt32(1)});
}

void KernelEmitter::prefetch_next_row(const Access& access, int vector) {
  const Buffer& buffer = buffer_of(access);
  if (buffer.role != BufferRole::In || kernel_.kept == 0) return;
  const int64_t stride = access.strides[static_cast<size_t>(kernel_.kept) - 1];
  if (stride == 0) return;
  Value* place = b_.CreateGEP(b_.getInt8Ty(), address(access, vector, nullptr),
                              times(stride, element_bytes(buffer.dtype)));
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {place->getType()},
                     {place, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
}

void KernelEmitter::emit_store(const Instruction& line) {
  const Access& access = kernel_.accesses[static_cast<size_t>(line.slot)];
  const Buffer& buffer = buffer_of(access);
  const llvm::Align align(static_cast<uint64_t>(element_bytes(buffer.dtype)));
  const int64_t stride = lane_stride(access);
  if (stride == 0) {
    // All lanes write the same place; the first one stands for them.
    Value* value = operand(line.a, 0, false);
    if (lanes_differ(line.a)) value = b_.CreateExtractElement(value, uint64_t{0});
    b_.CreateAlignedStore(ops_.narrow(value, buffer.dtype), address(access, 0, nullptr), align);
    return;
  }
  Type* type = memory_type(b_.getContext(), buffer.dtype);
  for (int vector = 0; vector < side_by_side_; ++vector) {
    Value* value = ops_.narrow(operand(line.a, vector, true), buffer.dtype);
    Value* place = address(access, vector, nullptr);
    if (stride == 1) {
      if (mask_) {
        b_.CreateMaskedStore(value, place, align, mask_);
      } else if (plan_.streams && plan_.streamed[static_cast<size_t>(line.slot)]) {
        llvm::StoreInst* store = b_.CreateAlignedStore(
            value, place,
            llvm::Align(static_cast<uint64_t>(element_bytes(buffer.dtype) * plan_.lanes)));
        llvm::Metadata* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
        store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                           llvm::MDNode::get(b_.getContext(), one));
      } else {
        b_.CreateAlignedStore(value, place, align);
      }
      continue;
    }
    if (mask_) {
      Value* places = b_.CreateInBoundsGEP(type, place, lane_offsets(stride));
      b_.CreateMaskedScatter(value, places, align, mask_);
      continue;
    }
    for (int lane = 0; lane < plan_.lanes; ++lane) {
      Value* there = places_on(type, place, stride, lane);
      b_.CreateAlignedStore(b_.CreateExtractElement(value, static_cast<uint64_t>(lane)), there,
                            align);
    }
  }
}

}  // namespace tandem::backends::llvm_cpu
