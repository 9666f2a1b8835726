#include "backends/llvm_cpu/emit/emit_kernel.h"

#include "backends/llvm_cpu/emit/kernel_emitter.h"
#include "backends/llvm_cpu/emit/op_emitter.h"
#include "backends/llvm_cpu/form.h"
#include "base/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Metadata.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace tandem::backends::llvm_cpu {

using llvm::Type;
using llvm::Value;
using loops::Buffer;
using loops::BufferRole;
using loops::Instruction;
using loops::kNone;
using loops::LoopOp;
using loops::Phase;

// ---- numbers ----

/// Read where the function begins, before anything is written: no loop reads it again.
Value* KernelEmitter::given(int64_t place, Type* type) {
  const size_t at = place_of(place);
  if (at >= given_.size()) given_.resize(at + 1);
  if (given_[at] == nullptr) {
    llvm::IRBuilder<> entry(&function_.getEntryBlock(), function_.getEntryBlock().begin());
    Value* where = entry.CreateConstInBoundsGEP1_64(entry.getInt64Ty(), numbers_, at);
    given_[at] = entry.CreateAlignedLoad(type, where, llvm::Align(8));
  }
  return given_[at];
}

Value* KernelEmitter::number(int64_t number) {
  return sizes_vary() && is_place(number) ? given(number, b_.getInt64Ty())
                                          : b_.getInt64(static_cast<uint64_t>(number));
}

Value* KernelEmitter::times(int64_t number, int64_t factor) {
  return factor == 1
             ? this->number(number)
             : b_.CreateMul(this->number(number), b_.getInt64(static_cast<uint64_t>(factor)));
}

/// The place `count` strides after another. With a stride that is given it goes by fours, so that
/// few of its multiples take up registers.
Value* KernelEmitter::places_on(Type* type, Value* place, int64_t stride, int64_t count) {
  if (!sizes_vary() || !is_place(stride))
    return b_.CreateConstInBoundsGEP1_64(type, place, static_cast<uint64_t>(count * stride));
  for (; count >= 4; count -= 4) place = b_.CreateGEP(type, place, times(stride, 4));
  return count == 0 ? place : b_.CreateGEP(type, place, times(stride, count));
}

// ---- loops ----

/// The body, if the condition holds.
void KernelEmitter::when(Value* condition, const std::function<void()>& body) {
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (known->isOne()) body();
    return;
  }
  auto* inside = llvm::BasicBlock::Create(b_.getContext(), "then", &function_);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "else", &function_);
  b_.CreateCondBr(condition, inside, after);
  b_.SetInsertPoint(inside);
  body();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void KernelEmitter::loop(Value* from, Value* to, int64_t step, const Loop& body) {
  llvm::LLVMContext& context = b_.getContext();
  auto* constant_from = llvm::dyn_cast<llvm::ConstantInt>(from);
  auto* constant_to = llvm::dyn_cast<llvm::ConstantInt>(to);
  if (constant_from && constant_to) {
    const int64_t first = constant_from->getSExtValue(), last = constant_to->getSExtValue();
    if (last <= first) return;
    if (last - first <= step) return body(from);
  }
  auto* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(context, "head", &function_);
  auto* inside = llvm::BasicBlock::Create(context, "inside", &function_);
  auto* after = llvm::BasicBlock::Create(context, "after", &function_);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* index = b_.CreatePHI(b_.getInt64Ty(), 2);
  index->addIncoming(from, before);
  b_.CreateCondBr(b_.CreateICmpSLT(index, to), inside, after);
  b_.SetInsertPoint(inside);
  body(index);
  Value* next = b_.CreateNSWAdd(index, b_.getInt64(static_cast<uint64_t>(step)));
  index->addIncoming(next, b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}

/// Along the vector's dim: several vectors side by side, then single ones, then one that is masked.
void KernelEmitter::vectors(Value* from, Value* to, const std::function<void()>& body) {
  const auto dim = static_cast<size_t>(plan_.vector_dim);
  const int64_t lanes = plan_.lanes, step = lanes * plan_.unroll;
  const auto run = [&](int vectors, Value* index) {
    side_by_side_ = vectors;
    index_[dim] = index;
    body();
    side_by_side_ = plan_.unroll;
  };
  // from + the largest multiple of `size` that fits
  const auto whole = [&](Value* begin, int64_t size) {
    Value* length = b_.CreateNSWSub(to, begin);
    // No length is negative, but LLVM only sees that of a constant.
    Value* rest = sizes_vary() ? b_.CreateAnd(length, b_.getInt64(static_cast<uint64_t>(size - 1)))
                               : b_.CreateSRem(length, b_.getInt64(static_cast<uint64_t>(size)));
    return b_.CreateNSWSub(to, rest);
  };
  const auto walk = [&](Value* begin, Value* end, int vectors) {
    const int64_t width = lanes * vectors;
    const auto part = [&](Value* first, Value* last) {
      loop(first, last, width, [&](Value* index) { run(vectors, index); });
    };
    if (summed_in_blocks_.empty()) return part(begin, end);
    const int64_t size = plan_.sum_block * width;
    loop(begin, end, size, [&](Value* first) {
      Value* last = b_.CreateNSWAdd(first, b_.getInt64(static_cast<uint64_t>(size)));
      part(first, b_.CreateSelect(b_.CreateICmpSLT(last, end), last, end));
      for (size_t at : summed_in_blocks_) finish_block(at, vectors);
    });
  };
  if (plan_.has_no_rest) return walk(from, to, plan_.unroll);
  Value* position = from;
  if (plan_.unroll > 1) {
    Value* end = whole(position, step);
    walk(position, end, plan_.unroll);
    position = end;
  }
  Value* end = whole(position, lanes);
  walk(position, end, 1);
  if (lanes == 1) return;
  // The vector that is only partly there.
  loop(end, to, lanes, [&](Value* index) {
    Value* left = b_.CreateNSWSub(to, index);
    Value* all_lanes = lane_offsets(1);
    mask_ = b_.CreateICmpSLT(all_lanes, splat(left));
    run(1, index);
    mask_ = nullptr;
    for (size_t at : summed_in_blocks_) finish_block(at, 1);
  });
}

void KernelEmitter::over_dims(std::vector<size_t> dims, const std::function<void()>& body) {
  if (dims.empty()) return body();
  const size_t dim = dims.front();
  dims.erase(dims.begin());
  if (static_cast<int32_t>(dim) == plan_.vector_dim) {
    vectors(b_.getInt64(0), extent(dim), [&] { over_dims(dims, body); });
    return;
  }
  loop(b_.getInt64(0), extent(dim), 1, [&](Value* index) {
    index_[dim] = index;
    over_dims(dims, body);
  });
}

/// What the number of a unit counts, what changes fastest first. Tiles come last and take what is
/// left.
std::vector<int64_t> KernelEmitter::unit_extents() const {
  std::vector<int64_t> extents;
  if (plan_.vector_dim != kNone && plan_.vector_is_kept && plan_.chunks != 1)
    extents.push_back(plan_.chunks);
  for (int32_t dim = kernel_.kept; dim-- > 0;) {
    if (dim == plan_.vector_dim || dim == plan_.tile_dim) continue;
    extents.push_back(kernel_.dims[static_cast<size_t>(dim)].extent);
  }
  return extents;
}

/// The index of each extent, then what is left.
std::vector<Value*> KernelEmitter::divided(Value* unit, const std::vector<int64_t>& extents) {
  std::vector<Value*> indices;
  Value* rest = unit;
  for (int64_t extent : extents) {
    Value* divisor = number(extent);
    // A kernel without elements has no units, but its code is called.
    if (sizes_vary())
      divisor = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, divisor, b_.getInt64(1));
    indices.push_back(b_.CreateURem(rest, divisor));
    rest = b_.CreateUDiv(rest, divisor);
  }
  indices.push_back(rest);
  return indices;
}

void KernelEmitter::emit_units(Value* begin, Value* end) {
  const std::vector<int64_t> extents = unit_extents();
  if (!sizes_vary()) {
    loop(begin, end, 1, [&](Value* unit) { emit_unit(divided(unit, extents)); });
    return;
  }
  // Counted on from unit to unit: a division by what is no constant takes long.
  std::vector<Value*> counters;
  for (Value* index : divided(begin, extents)) {
    counters.push_back(entry_slot(b_.getInt64Ty()));
    b_.CreateStore(index, counters.back());
  }
  loop(begin, end, 1, [&](Value*) {
    std::vector<Value*> indices;
    for (Value* counter : counters) indices.push_back(b_.CreateLoad(b_.getInt64Ty(), counter));
    emit_unit(indices);
    Value* carry = b_.getInt64(1);
    for (size_t i = 0; i < counters.size(); ++i) {
      Value* next = b_.CreateAdd(indices[i], carry);
      if (i < extents.size()) {
        Value* wraps = b_.CreateICmpEQ(next, number(extents[i]));
        next = b_.CreateSelect(wraps, b_.getInt64(0), next);
        carry = b_.CreateZExt(wraps, b_.getInt64Ty());
      }
      b_.CreateStore(next, counters[i]);
    }
  });
}

/// `indices` as unit_extents() has them, and the tile.
void KernelEmitter::emit_unit(const std::vector<Value*>& indices) {
  auto next = indices.begin();
  Value* chunk = nullptr;
  const bool chunked = plan_.vector_dim != kNone && plan_.vector_is_kept;
  if (chunked) chunk = plan_.chunks == 1 ? b_.getInt64(0) : *next++;
  for (int32_t dim = kernel_.kept; dim-- > 0;) {
    if (dim == plan_.vector_dim || dim == plan_.tile_dim) continue;
    index_[static_cast<size_t>(dim)] = *next++;
  }
  if (!chunked) return emit_phases();
  if (plan_.tile_dim == kNone) return emit_chunk(chunk);

  const auto tiled = static_cast<size_t>(plan_.tile_dim);
  Value* first = b_.CreateNSWMul(*next, number(plan_.tile));
  Value* last = b_.CreateNSWAdd(first, number(plan_.tile));
  Value* limit = extent(tiled);
  last = b_.CreateSelect(b_.CreateICmpSLT(last, limit), last, limit);
  loop(first, last, 1, [&](Value* index) {
    index_[tiled] = index;
    emit_chunk(chunk);
  });
}

void KernelEmitter::emit_chunk(Value* chunk) {
  const auto along = static_cast<size_t>(plan_.vector_dim);
  // Counted from the start of its chunk, a walk often has a constant length: then no tail is
  // generated.
  Value* size = number(plan_.chunk);
  Value* base = b_.CreateNSWMul(chunk, size);
  Value* length = size;
  const bool is_whole =
      plan_.chunks == 1 || (!sizes_vary() && kernel_.dims[along].extent % plan_.chunk == 0);
  if (!is_whole) {
    Value* rest = b_.CreateNSWSub(extent(along), base);
    length = b_.CreateSelect(b_.CreateICmpSLT(rest, size), rest, size);
  }
  const Walk walk = [&, base, length](const std::function<void()>& body) {
    vectors(b_.getInt64(0), length, [&] {
      column_ = index_[along];
      index_[along] = b_.CreateNSWAdd(base, column_);
      body();
    });
  };
  if (plan_.row_block > 0) return emit_blocked(walk);
  walk([&] { emit_phases(); });
}

/// Each phase walks all columns of the chunk before the next begins. What happens once per column
/// is computed anew where it is read; reductions are read from where the blocks left them.
void KernelEmitter::emit_blocked(const Walk& walk) {
  const auto innermost = kernel_.dims.size() - 1;
  Value* rows = extent(innermost);
  Value* rest = b_.CreateURem(rows, b_.getInt64(static_cast<uint64_t>(plan_.row_block)));
  Value* whole = b_.CreateSub(rows, rest);
  for (size_t p = 0; p < kernel_.phases.size(); ++p) {
    const Phase& phase = kernel_.phases[p];
    if (!phase.inner) {
      walk([&] {
        emit_before(p);
        emit_lines(phase);
      });
      continue;
    }
    std::vector<size_t> reductions;
    for (int32_t at = phase.begin; at < phase.end; ++at)
      if (loops::is_reduction(kernel_.body[static_cast<size_t>(at)].op))
        reductions.push_back(static_cast<size_t>(at));
    if (!reductions.empty()) {
      walk([&] {
        accumulators_.assign(kernel_.body.size(), {});
        for (size_t at : reductions) {
          begin_reduction(at);
          write_totals(at);
        }
      });
    }
    std::vector<size_t> outer_dims;
    for (auto dim = static_cast<size_t>(kernel_.kept); dim < innermost; ++dim)
      outer_dims.push_back(dim);
    const auto block = [&](const std::function<void()>& emit_rows) {
      walk([&] {
        emit_before(p);
        accumulators_.assign(kernel_.body.size(), {});
        for (size_t at : reductions) begin_reduction(at);
        inside_inner_ = true;
        emit_rows();
        inside_inner_ = false;
        for (size_t at : reductions) add_to_totals(at);
      });
    };
    over_dims(outer_dims, [&] {
      loop(b_.getInt64(0), whole, plan_.row_block, [&](Value* first) {
        block([&] {
          for (int64_t row = 0; row < plan_.row_block; ++row) {
            block_row_ = {first, row};
            index_[innermost] = b_.CreateNSWAdd(first, b_.getInt64(static_cast<uint64_t>(row)));
            emit_lines(phase);
          }
          block_row_ = {};
        });
      });
      when(b_.CreateICmpNE(whole, rows), [&] {
        block([&] {
          loop(whole, rows, 1, [&](Value* row) {
            index_[innermost] = row;
            emit_lines(phase);
          });
        });
      });
    });
  }
}

/// The values that phase `p` may read from the phases before it.
void KernelEmitter::emit_before(size_t p) {
  for (size_t q = 0; q < p; ++q) {
    const Phase& phase = kernel_.phases[q];
    for (int32_t at = phase.begin; at < phase.end; ++at) {
      const Instruction& line = kernel_.body[static_cast<size_t>(at)];
      if (!phase.inner && line.op != LoopOp::Store) emit_line(static_cast<size_t>(at));
      if (phase.inner && loops::is_reduction(line.op)) read_totals(static_cast<size_t>(at));
    }
  }
}

void KernelEmitter::emit_phases() {
  for (const Phase& phase : kernel_.phases) {
    if (phase.inner) {
      emit_inner(phase);
    } else if (plan_.vector_dim != kNone && !plan_.vector_is_kept) {
      // Rows: what happens once per row happens in scalars.
      std::vector<Value*> saved = index_;
      index_[static_cast<size_t>(plan_.vector_dim)] = b_.getInt64(0);
      emit_lines(phase);
      index_ = saved;
    } else {
      emit_lines(phase);
    }
  }
}

void KernelEmitter::emit_inner(const Phase& phase) {
  accumulators_.assign(kernel_.body.size(), {});
  // In the vector's own walk a group may be narrower than the schedule says.
  const int group = plan_.vector_is_kept ? side_by_side_ : plan_.unroll;
  const int saved = std::exchange(side_by_side_, group);
  for (int32_t at = phase.begin; at < phase.end; ++at) {
    const Instruction& line = kernel_.body[static_cast<size_t>(at)];
    if (loops::is_reduction(line.op)) begin_reduction(static_cast<size_t>(at));
    if (is_summed_in_blocks(line)) summed_in_blocks_.push_back(static_cast<size_t>(at));
  }
  std::vector<size_t> dims;
  for (size_t dim = static_cast<size_t>(kernel_.kept); dim < kernel_.dims.size(); ++dim)
    if (static_cast<int32_t>(dim) != plan_.vector_dim) dims.push_back(dim);
  if (!plan_.vector_is_kept && plan_.vector_dim != kNone)
    dims.push_back(static_cast<size_t>(plan_.vector_dim));
  inside_inner_ = true;
  last_sweep_ = std::none_of(kernel_.phases.begin(), kernel_.phases.end(), [&](const Phase& later) {
    return later.inner && later.begin > phase.begin;
  });
  over_dims(dims, [&] { emit_lines(phase); });
  summed_in_blocks_.clear();
  last_sweep_ = false;
  inside_inner_ = false;
  side_by_side_ = group;
  for (int32_t at = phase.begin; at < phase.end; ++at)
    if (loops::is_reduction(kernel_.body[static_cast<size_t>(at)].op))
      finish_reduction(static_cast<size_t>(at));
  side_by_side_ = saved;
}

void KernelEmitter::emit_lines(const Phase& phase) {
  for (int32_t at = phase.begin; at < phase.end; ++at) emit_line(static_cast<size_t>(at));
}

void KernelEmitter::emit(std::vector<Value*> buffers, Value* begin, Value* end, Value* scratch) {
  buffers_ = std::move(buffers);
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", &function_));
  failed_ = b_.CreateAlloca(b_.getInt32Ty());
  b_.CreateStore(b_.getInt32(0), failed_);
  zeros_ = b_.CreateAlloca(b_.getInt64Ty());
  b_.CreateStore(b_.getInt64(0), zeros_);
  Value* offset = b_.getInt64(0);
  totals_memory_.resize(kernel_.body.size());
  for (size_t at = 0; plan_.row_block > 0 && at < kernel_.body.size(); ++at) {
    if (!loops::is_reduction(kernel_.body[at].op)) continue;
    totals_memory_[at] = b_.CreateInBoundsGEP(b_.getInt8Ty(), scratch, offset);
    offset = b_.CreateAdd(offset, times(plan_.totals_bytes, totals_of(kernel_.body[at])));
  }
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& buffer = kernel_.buffers[i];
    if (buffer.role != BufferRole::Scratch) continue;
    buffers_[i] = b_.CreateInBoundsGEP(b_.getInt8Ty(), scratch, offset);
    const int64_t columns = plan_.vector_is_kept ? plan_.lanes * plan_.unroll : 1;
    Value* bytes = times(buffer.elements, element_bytes(buffer.dtype) * columns);
    Value* rounded = b_.CreateAnd(b_.CreateAdd(bytes, b_.getInt64(63)), ~uint64_t{63});
    offset = b_.CreateAdd(offset, rounded);
  }
  side_by_side_ = plan_.unroll;
  emit_units(begin, end);
  // Streamed results may still be on their way to memory. Whoever reads them next must find them.
  if (plan_.streams) b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
  b_.CreateRet(b_.CreateLoad(b_.getInt32Ty(), failed_));
}

// ---- lines ----

Value* KernelEmitter::operand(int32_t at, int vector, bool as_vector) {
  if (at == kNone) return nullptr;
  const std::vector<Value*>& all = values_[static_cast<size_t>(at)];
  if (all.size() > 1) return all[static_cast<size_t>(vector) + 1];
  return as_vector ? splat(all[0]) : all[0];
}

bool KernelEmitter::in_vector(const Instruction& line) const {
  return has_lanes() && (lanes_differ(line.a) || lanes_differ(line.b) || lanes_differ(line.c));
}

void KernelEmitter::emit_line(size_t at) {
  const Instruction& line = kernel_.body[at];
  std::vector<Value*>& value = values_[at];
  switch (line.op) {
    case LoopOp::Constant: {
      Type* type = type_of(line.dtype);
      if (sizes_vary() && is_place(line.integer)) {
        value = {given(line.integer, type)};
        return;
      }
      value = {type->isFloatingPointTy()
                   ? static_cast<Value*>(llvm::ConstantFP::get(type, line.number))
                   : llvm::ConstantInt::get(type, static_cast<uint64_t>(line.integer), true)};
      return;
    }
    case LoopOp::Index: {
      Value* index = index_[static_cast<size_t>(line.slot)];
      value = {index};
      if (line.slot != plan_.vector_dim) return;
      for (int vector = 0; vector < side_by_side_; ++vector) {
        Value* first = b_.CreateNSWAdd(
            index, b_.getInt64(static_cast<uint64_t>(vector) * static_cast<uint64_t>(plan_.lanes)));
        value.push_back(b_.CreateAdd(splat(first), lane_offsets(1)));
      }
      return;
    }
    case LoopOp::Load:
      return emit_load(at);
    case LoopOp::Store:
      return emit_store(line);
    case LoopOp::CheckIndex:
      return emit_check(at);
    default:
      break;
  }
  if (loops::is_reduction(line.op)) return accumulate(at);
  const bool as_vector = in_vector(line);
  const auto one = [&](int vector) {
    return ops_.emit(line, {operand(line.a, vector, as_vector), operand(line.b, vector, as_vector),
                            operand(line.c, vector, as_vector),
                            kernel_.body[static_cast<size_t>(line.a)].dtype});
  };
  if (!as_vector) {
    value = {one(0)};
    return;
  }
  value = {nullptr};
  for (int vector = 0; vector < side_by_side_; ++vector) value.push_back(one(vector));
}

void KernelEmitter::emit_check(size_t at) {
  const Instruction& line = kernel_.body[at];
  const bool as_vector = in_vector(line);
  std::vector<Value*> checked;
  for (int vector = 0; vector < (as_vector ? side_by_side_ : 1); ++vector) {
    Value* index = operand(line.a, vector, as_vector);
    Value* bound = as_vector ? splat(number(line.integer)) : number(line.integer);
    // Unsigned: a negative index is far too large.
    Value* outside = b_.CreateICmpUGE(index, bound);
    Value* wrong = as_vector && mask_ ? b_.CreateAnd(outside, mask_) : outside;
    if (as_vector && plan_.lanes > 1) wrong = b_.CreateOrReduce(wrong);
    Value* state = b_.CreateLoad(b_.getInt32Ty(), failed_);
    b_.CreateStore(b_.CreateOr(state, b_.CreateZExt(wrong, b_.getInt32Ty())), failed_);
    checked.push_back(
        b_.CreateSelect(outside, llvm::Constant::getNullValue(index->getType()), index));
  }
  values_[at] = {as_vector ? nullptr : checked[0]};
  if (as_vector) values_[at].insert(values_[at].end(), checked.begin(), checked.end());
}

std::unique_ptr<llvm::Module> emit_kernel(const Schedule& schedule, const std::string& symbol,
                                          llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>(symbol, context);
  llvm::IRBuilder<> b(context);
  Type *pointer = b.getPtrTy(), *word = b.getInt64Ty();
  const size_t count = schedule.kernel.buffers.size();
  const bool sizes_vary = schedule.is_form;
  const auto attributes = [&](llvm::Function& function) {
    function.setDoesNotThrow();
    const char* width = schedule.set == InstructionSet::Avx512 ? "512"
                        : schedule.set == InstructionSet::Avx2 ? "256"
                                                               : "128";
    function.addFnAttr("prefer-vector-width", width);
    function.addFnAttr("min-legal-vector-width", width);
  };
  // The work is in a function with one parameter per buffer: only parameters can be said to overlap
  // nothing.
  std::vector<Type*> types(count, pointer);
  types.insert(types.end(), {word, word, pointer});
  if (sizes_vary) types.push_back(pointer);
  auto* body = llvm::Function::Create(llvm::FunctionType::get(b.getInt32Ty(), types, false),
                                      llvm::Function::InternalLinkage, "body", *module);
  attributes(*body);
  body->addFnAttr(llvm::Attribute::NoInline);
  for (unsigned i = 0; i < count; ++i) {
    body->addParamAttr(i, llvm::Attribute::NoAlias);
    body->getArg(i)->setName(schedule.kernel.buffers[i].name);
  }
  std::vector<Value*> buffers;
  for (unsigned i = 0; i < count; ++i) buffers.push_back(body->getArg(i));
  const auto after = static_cast<unsigned>(count);
  if (sizes_vary) body->addParamAttr(after + 3, llvm::Attribute::NoAlias);
  KernelEmitter(schedule, *module, *body, sizes_vary ? body->getArg(after + 3) : nullptr)
      .emit(buffers, body->getArg(after), body->getArg(after + 1), body->getArg(after + 2));

  auto* entry = llvm::Function::Create(
      llvm::FunctionType::get(b.getInt32Ty(), {pointer, word, word, pointer, pointer}, false),
      llvm::Function::ExternalLinkage, symbol, *module);
  attributes(*entry);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", entry));
  std::vector<Value*> arguments;
  for (unsigned i = 0; i < count; ++i) {
    Value* place = b.CreateConstInBoundsGEP1_64(pointer, entry->getArg(0), i);
    arguments.push_back(b.CreateLoad(pointer, place));
  }
  for (unsigned i = 1; i < (sizes_vary ? 5U : 4U); ++i) arguments.push_back(entry->getArg(i));
  b.CreateRet(b.CreateCall(body, arguments));
  return module;
}

}  // namespace tandem::backends::llvm_cpu
