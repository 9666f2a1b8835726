#include "backends/llvm_cpu/form.h"

#include "base/error.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace tandem::backends::llvm_cpu {

using loops::Access;
using loops::Buffer;
using loops::BufferRole;
using loops::Instruction;
using loops::Kernel;
using loops::kNone;
using loops::LoopOp;

namespace {

// ---- constants ----

/// Whether the op does the same to an operand that the code generator knows as to one that it does
/// not: it chooses no instruction by it, and folds nothing that it would round otherwise.
bool takes_any_number(LoopOp op) {
  switch (op) {
    case LoopOp::Load:
    case LoopOp::Store:
    case LoopOp::CheckIndex:
    case LoopOp::Cast:
    case LoopOp::RoundBF16:
    case LoopOp::RoundF16:
    case LoopOp::Neg:
    case LoopOp::Add:
    case LoopOp::Sub:
    case LoopOp::Mul:
    case LoopOp::Div:
    case LoopOp::Max:
    case LoopOp::Min:
    case LoopOp::Fmax:
    case LoopOp::Fmin:
    case LoopOp::Select:
    case LoopOp::Fma:
      return true;
    default:
      return loops::is_comparison(op) || loops::is_reduction(op);
  }
}

/// Which values differ from lane to lane while the vector's dim is walked.
std::vector<bool> differing_lines(const Schedule& plan) {
  const Kernel& kernel = plan.kernel;
  std::vector<bool> differs(kernel.body.size());
  if (plan.vector_dim == kNone) return differs;
  const auto dim = static_cast<size_t>(plan.vector_dim);
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    const Instruction& line = kernel.body[at];
    bool differ = line.op == LoopOp::Index && line.slot == plan.vector_dim;
    if (line.op == LoopOp::Load)
      differ = kernel.accesses[static_cast<size_t>(line.slot)].strides[dim] != 0;
    // Of a walk along rows, what a row is reduced to is the same for all of its lanes.
    if (!loops::is_reduction(line.op) || plan.vector_is_kept) {
      for (int32_t operand : {line.a, line.b, line.c})
        differ = differ || (operand != kNone && differs[static_cast<size_t>(operand)]);
    }
    differs[at] = differ;
  }
  return differs;
}

/// By line: whether it is a constant that code can be handed.
std::vector<bool> given_constants(const Schedule& plan) {
  const Kernel& kernel = plan.kernel;
  std::vector<bool> given(kernel.body.size());
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    const Instruction& line = kernel.body[at];
    if (line.op != LoopOp::Constant || line.dtype == c10::ScalarType::Bool) continue;
    given[at] = c10::isFloatingType(line.dtype)
                    ? std::isfinite(line.number) && line.number != 0 && std::abs(line.number) != 1
                    : line.integer < -1 || line.integer > 1;
  }
  const std::vector<bool> differs = differing_lines(plan);
  const bool reduces = kernel.kept < static_cast<int32_t>(kernel.dims.size());
  for (const loops::Phase& phase : kernel.phases) {
    for (int32_t at = phase.begin; at < phase.end; ++at) {
      const Instruction& line = kernel.body[static_cast<size_t>(at)];
      for (int32_t operand : {line.a, line.b, line.c}) {
        if (operand != kNone && !takes_any_number(line.op))
          given[static_cast<size_t>(operand)] = false;
      }
      if (line.op != LoopOp::Div) continue;
      // Integers are divided by a constant in other ways, and floats are multiplied in place of a
      // division by a power of two, which counts where it is done for each element.
      const auto divisor = static_cast<size_t>(line.b);
      int exponent = 0;
      const bool power = std::abs(std::frexp(kernel.body[divisor].number, &exponent)) == 0.5;
      const bool often = (phase.inner || !reduces) && differs[static_cast<size_t>(line.a)];
      if (!c10::isFloatingType(line.dtype) || (power && often)) given[divisor] = false;
    }
  }
  // What looks like a place must not be taken for one.
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    const Instruction& line = kernel.body[at];
    if (line.op == LoopOp::Constant && is_place(line.integer)) given[at] = true;
  }
  return given;
}

/// The bits in which code finds a constant in memory.
int64_t bits_of(const Instruction& line) {
  if (line.dtype == c10::ScalarType::Double) return std::bit_cast<int64_t>(line.number);
  if (line.dtype == c10::ScalarType::Float)
    return std::bit_cast<uint32_t>(static_cast<float>(line.number));
  return line.integer;
}

void set_bits(Instruction& line, int64_t bits) {
  line.integer = c10::isFloatingType(line.dtype) ? 0 : bits;
  if (line.dtype == c10::ScalarType::Double) line.number = std::bit_cast<double>(bits);
  if (line.dtype == c10::ScalarType::Float)
    line.number = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
}

/// Every number of a schedule that code may be handed, but for strides and constants.
template <class Fn>
void for_each_size(Schedule& plan, const Fn& fn) {
  Kernel& kernel = plan.kernel;
  for (loops::Dim& dim : kernel.dims) fn(dim.extent);
  for (Buffer& buffer : kernel.buffers) fn(buffer.elements);
  for (Access& access : kernel.accesses) {
    fn(access.offset);
    fn(access.indirect_stride);
  }
  for (Instruction& line : kernel.body)
    if (line.op == LoopOp::CheckIndex) fn(line.integer);
  for (int64_t* number : {&plan.chunk, &plan.chunks, &plan.tile, &plan.totals_bytes}) fn(*number);
}

/// Whether the strides are the same but where one of the two is broadcast.
bool are_of_one_layout(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  for (size_t dim = 0; dim < a.size(); ++dim)
    if (a[dim] != b[dim] && a[dim] != 0 && b[dim] != 0) return false;
  return true;
}

}  // namespace

Form form_of(Schedule schedule) {
  Form form{.schedule = std::move(schedule), .numbers = {}};
  Schedule& plan = form.schedule;
  Kernel& kernel = plan.kernel;
  plan.is_form = true;
  plan.units = plan.grain = plan.tiles = plan.scratch_bytes = 0;
  for (Buffer& buffer : kernel.buffers)
    if (buffer.role != BufferRole::Scratch) buffer.elements = 0;

  const std::vector<bool> given = given_constants(plan);
  const auto take = [&](int64_t number) {
    form.numbers.push_back(number);
    return kFirstPlace + static_cast<int64_t>(form.numbers.size()) - 1;
  };
  for_each_size(plan, [&](int64_t& number) {
    if (number != 0 && number != 1) number = take(number);
  });
  if (plan.row_block > 0 && sums_floats(kernel)) {
    plan.wide_totals = take(plan.wide_sums);
    plan.wide_sums = true;
  }
  // Strides that are equal in one dim only are so by chance, and differ at the next size.
  std::vector<std::vector<int64_t>> strides;
  for (const Access& access : kernel.accesses) strides.push_back(access.strides);
  for (size_t i = 0; i < strides.size(); ++i) {
    for (size_t dim = 0; dim < kernel.dims.size(); ++dim) {
      int64_t& stride = kernel.accesses[i].strides[dim];
      if (stride == 0 || stride == 1) continue;
      const auto like = std::ranges::find_if(
          strides.begin(), strides.begin() + static_cast<ptrdiff_t>(i), [&](const auto& other) {
            return other[dim] == stride && are_of_one_layout(other, strides[i]);
          });
      stride = like == strides.begin() + static_cast<ptrdiff_t>(i)
                   ? take(stride)
                   : kernel.accesses[static_cast<size_t>(like - strides.begin())].strides[dim];
    }
  }
  for (size_t at = 0; at < kernel.body.size(); ++at) {
    if (!given[at]) continue;
    Instruction& line = kernel.body[at];
    line.integer = take(bits_of(line));
    line.number = 0;
  }
  return form;
}

Schedule filled_in(const Form& form) {
  Schedule plan = form.schedule;
  plan.is_form = false;
  const auto fill = [&](int64_t& number) {
    if (!is_place(number)) return;
    TANDEM_CHECK(place_of(number) < form.numbers.size(), "lower", "a form names number ",
                 place_of(number), " of ", form.numbers.size());
    number = form.numbers[place_of(number)];
  };
  for_each_size(plan, fill);
  if (is_place(plan.wide_totals)) {
    fill(plan.wide_totals);
    plan.wide_sums = std::exchange(plan.wide_totals, 0) != 0;
  }
  for (Access& access : plan.kernel.accesses)
    for (int64_t& stride : access.strides) fill(stride);
  for (Instruction& line : plan.kernel.body) {
    if (line.op != LoopOp::Constant || !is_place(line.integer)) continue;
    fill(line.integer);
    set_bits(line, line.integer);
  }
  return plan;
}

std::string form_key(const Schedule& form) {
  std::string key = base::str(name(form.set), " ", loops::structural_key(form.kernel));
  const auto put = [&](int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (int64_t number :
       {int64_t{form.vector_dim}, int64_t{form.tile_dim}, int64_t{form.lanes}, int64_t{form.unroll},
        int64_t{form.prefetch_rows}, form.chunk, form.chunks, form.tile, form.row_block,
        form.totals_bytes, form.sum_block, form.wide_totals})
    put(number);
  for (bool flag : {form.vector_is_kept, form.has_no_rest, form.prefetch_next_row, form.streams,
                    form.wide_sums})
    put(flag);
  for (const std::vector<bool>* flags : {&form.prefetched, &form.streamed}) {
    put(static_cast<int64_t>(flags->size()));
    for (bool flag : *flags) key += flag ? '1' : '0';
  }
  return key;
}

}  // namespace tandem::backends::llvm_cpu
