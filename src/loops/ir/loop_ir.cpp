#include "loops/ir/loop_ir.h"

#include "loops/ir/loop_op_table.h"

#include <bit>

namespace tandem::loops {

int64_t Kernel::kept_count() const {
  int64_t count = 1;
  for (int32_t i = 0; i < kept; ++i) count *= dims[static_cast<size_t>(i)].extent;
  return count;
}

int64_t Kernel::reduced_count() const {
  int64_t count = 1;
  for (size_t i = static_cast<size_t>(kept); i < dims.size(); ++i) count *= dims[i].extent;
  return count;
}

bool is_kernel_dtype(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Half:
      return true;
    default:
      return false;
  }
}

c10::ScalarType compute_dtype(c10::ScalarType stored) {
  const bool narrow = stored == c10::ScalarType::BFloat16 || stored == c10::ScalarType::Half;
  return narrow ? c10::ScalarType::Float : stored;
}

std::string_view to_string(LoopOp op) { return row(op).name; }
int operand_count(LoopOp op) { return row(op).operands; }
bool is_reduction(LoopOp op) { return row(op).kind == OpKind::Reduction; }
bool is_comparison(LoopOp op) { return row(op).kind == OpKind::Comparison; }
bool has_value(LoopOp op) { return op != LoopOp::Store; }

std::string structural_key(const Kernel& kernel) {
  std::string key;
  auto put = [&](int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  put(kernel.kept);
  put(static_cast<int64_t>(kernel.dims.size()));
  for (const Dim& dim : kernel.dims) put(dim.extent);
  put(static_cast<int64_t>(kernel.buffers.size()));
  for (const Buffer& buffer : kernel.buffers) {
    put(static_cast<int64_t>(buffer.role) * 256 + static_cast<int64_t>(buffer.dtype));
    put(buffer.elements);
  }
  put(static_cast<int64_t>(kernel.accesses.size()));
  for (const Access& access : kernel.accesses) {
    put(access.buffer);
    put(access.offset);
    put(access.indirect_stride);
    for (int64_t stride : access.strides) put(stride);
  }
  put(static_cast<int64_t>(kernel.phases.size()));
  for (const Phase& phase : kernel.phases) put(int64_t{phase.end} * 2 + (phase.inner ? 1 : 0));
  for (const Instruction& line : kernel.body) {
    put(static_cast<int64_t>(line.op) * 256 + static_cast<int64_t>(line.dtype));
    put((int64_t{line.a} << 32) | static_cast<uint32_t>(line.b));
    put((int64_t{line.c} << 32) | static_cast<uint32_t>(line.slot));
    put(std::bit_cast<int64_t>(line.number));
    put(line.integer);
  }
  return key;
}

}  // namespace tandem::loops
