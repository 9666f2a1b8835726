#include "base/error.h"
#include "loops/ir/loop_ir.h"
#include "loops/ir/loop_op_table.h"
#include "tandem/ir/type.h"

#include <algorithm>
#include <string>

namespace tandem::loops {
namespace {

bool is_compute_dtype(c10::ScalarType dtype) {
  return is_kernel_dtype(dtype) && compute_dtype(dtype) == dtype;
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel) {}

  std::vector<std::string> run() && {
    check_head();
    if (!found_.empty()) return std::move(found_);  // the body is read through the head
    int32_t next = 0;
    for (size_t i = 0; i < kernel_.phases.size(); ++i) {
      const Phase& phase = kernel_.phases[i];
      if (phase.begin != next || phase.end < phase.begin ||
          phase.end > static_cast<int32_t>(kernel_.body.size())) {
        say("phase ", i, " spans ", phase.begin, " to ", phase.end, ", expected to begin at ",
            next);
        return std::move(found_);
      }
      next = phase.end;
      if (phase.inner && !has_reduced())
        say("phase ", i, " is inner and the kernel has no reduced dims");
      for (int32_t at = phase.begin; at < phase.end; ++at) check_line(phase, at);
    }
    if (next != static_cast<int32_t>(kernel_.body.size()))
      say("the phases end at line ", next, " of ", kernel_.body.size());
    return std::move(found_);
  }

 private:
  bool has_reduced() const { return static_cast<size_t>(kernel_.kept) < kernel_.dims.size(); }

  void check_head() {
    if (kernel_.kept < 0 || static_cast<size_t>(kernel_.kept) > kernel_.dims.size())
      say("kept is ", kernel_.kept, " of ", kernel_.dims.size(), " dims");
    for (const Dim& dim : kernel_.dims) {
      if (dim.extent < 1) say("dim ", dim.name, " has extent ", dim.extent);
    }
    for (size_t i = 0; i < kernel_.accesses.size(); ++i) {
      const Access& access = kernel_.accesses[i];
      if (access.buffer < 0 || static_cast<size_t>(access.buffer) >= kernel_.buffers.size())
        say("access ", i, " names buffer ", access.buffer, " of ", kernel_.buffers.size());
      if (access.strides.size() != kernel_.dims.size())
        say("access ", i, " has ", access.strides.size(), " strides for ", kernel_.dims.size(),
            " dims");
    }
  }

  void check_line(const Phase& phase, int32_t at) {
    const Instruction& it = kernel_.body[static_cast<size_t>(at)];
    const OpFacts& facts = row(it.op);
    if (!is_compute_dtype(it.dtype))
      say(name(at), " has dtype ", ir::dtype_name(it.dtype), ", which exists in memory only");
    const int32_t operands[] = {it.a, it.b, it.c};
    for (int i = 0; i < 3; ++i) {
      const bool expected = i < facts.operands;
      const bool optional = it.op == LoopOp::Load;
      if (!expected && operands[i] != kNone) {
        say(name(at), " (", facts.name, ") has an operand too many");
      } else if (expected && operands[i] == kNone && !optional) {
        say(name(at), " (", facts.name, ") lacks operand ", i);
      } else if (operands[i] != kNone && !visible(phase, at, operands[i])) {
        say(name(at), " reads v", operands[i], ", which is not visible there");
      }
      if (!found_.empty() && operands[i] != kNone && (operands[i] < 0 || operands[i] >= at)) return;
    }
    if (is_reduction(it.op) && !phase.inner) say(name(at), " reduces in an outer phase");
    check_dtypes(at, it, facts.kind);
    if (it.op == LoopOp::Load || it.op == LoopOp::Store) check_access(phase, at, it);
    if (it.op == LoopOp::Index) {
      if (it.slot < 0 || static_cast<size_t>(it.slot) >= kernel_.dims.size())
        say(name(at), " names dim ", it.slot, " of ", kernel_.dims.size());
      else if (!phase.inner && it.slot >= kernel_.kept)
        say(name(at), " reads a reduced index in an outer phase");
    }
  }

  bool visible(const Phase& phase, int32_t at, int32_t operand) const {
    if (operand < 0 || operand >= at) return false;
    const Instruction& made = kernel_.body[static_cast<size_t>(operand)];
    if (!has_value(made.op)) return false;
    const bool here = operand >= phase.begin;
    if (is_reduction(made.op)) return !here;
    if (here) return true;
    const auto home = std::ranges::find_if(
        kernel_.phases, [&](const Phase& p) { return operand >= p.begin && operand < p.end; });
    return home != kernel_.phases.end() && !home->inner;
  }

  void check_dtypes(int32_t at, const Instruction& it, OpKind kind) {
    using c10::ScalarType;
    auto dtype = [&](int32_t operand) {
      return operand == kNone ? it.dtype : kernel_.body[static_cast<size_t>(operand)].dtype;
    };
    auto expect = [&](bool holds, std::string_view rule) {
      if (!holds) say(name(at), " (", to_string(it.op), "): ", rule);
    };
    const bool is_float = c10::isFloatingType(it.dtype);
    const bool same = dtype(it.a) == it.dtype && dtype(it.b) == it.dtype;
    switch (kind) {
      case OpKind::Source:
        if (it.op == LoopOp::Index) expect(it.dtype == ScalarType::Long, "an index is i64");
        if (it.op == LoopOp::Load) {
          expect(it.a == kNone || dtype(it.a) == ScalarType::Long, "an indirect index is i64");
          expect(it.b == kNone || dtype(it.b) == ScalarType::Bool, "a mask is bool");
        }
        break;
      case OpKind::Store:
        expect(dtype(it.a) == it.dtype, "the dtype is the operand's");
        break;
      case OpKind::RandomBits:
      case OpKind::CheckIndex:
        expect(same && it.dtype == ScalarType::Long, "i64 in, i64 out");
        break;
      case OpKind::Cast:
        break;
      case OpKind::Round:
        expect(same && it.dtype == ScalarType::Float, "f32 in, f32 out");
        break;
      case OpKind::FloatUnary:
      case OpKind::FloatBinary:
        expect(same && is_float, "floats of one dtype");
        break;
      case OpKind::AnyUnary:
      case OpKind::AnyBinary:
        expect(same && (it.dtype != ScalarType::Bool), "numbers of one dtype");
        break;
      case OpKind::BoolOrInt:
        expect(same && !is_float, "bools or integers of one dtype");
        break;
      case OpKind::FloatToBool:
        expect(it.dtype == ScalarType::Bool && c10::isFloatingType(dtype(it.a)),
               "a float in, bool out");
        break;
      case OpKind::Comparison:
        expect(it.dtype == ScalarType::Bool && dtype(it.a) == dtype(it.b),
               "operands of one dtype, bool out");
        break;
      case OpKind::Select:
        expect(
            dtype(it.a) == ScalarType::Bool && dtype(it.b) == it.dtype && dtype(it.c) == it.dtype,
            "a bool and two of the result's dtype");
        break;
      case OpKind::Fma:
        expect(same && dtype(it.c) == it.dtype && is_float, "floats of one dtype");
        break;
      case OpKind::Reduction:
        if (it.op == LoopOp::ReduceArgmax || it.op == LoopOp::ReduceArgmin) {
          expect(it.dtype == ScalarType::Long && dtype(it.b) == ScalarType::Long,
                 "operand b and the result are i64");
        } else if (it.op == LoopOp::ReduceAny || it.op == LoopOp::ReduceAll) {
          expect(dtype(it.a) == ScalarType::Bool && it.dtype == ScalarType::Bool, "bools");
        } else {
          expect(dtype(it.a) == it.dtype && it.dtype != ScalarType::Bool, "numbers of one dtype");
        }
        break;
    }
  }

  void check_access(const Phase& phase, int32_t at, const Instruction& it) {
    if (it.slot < 0 || static_cast<size_t>(it.slot) >= kernel_.accesses.size()) {
      say(name(at), " names access ", it.slot, " of ", kernel_.accesses.size());
      return;
    }
    const Access& access = kernel_.accesses[static_cast<size_t>(it.slot)];
    const Buffer& buffer = kernel_.buffers[static_cast<size_t>(access.buffer)];
    if (it.dtype != compute_dtype(buffer.dtype))
      say(name(at), " has dtype ", ir::dtype_name(it.dtype), ", buffer ", buffer.name,
          " computes in ", ir::dtype_name(compute_dtype(buffer.dtype)));
    if (it.op == LoopOp::Store && buffer.role == BufferRole::In)
      say(name(at), " stores to input ", buffer.name);
    int64_t low = access.offset, high = access.offset;
    for (size_t i = 0; i < access.strides.size(); ++i) {
      const int64_t reach = access.strides[i] * (kernel_.dims[i].extent - 1);
      (reach < 0 ? low : high) += reach;
      const bool reduced = i >= static_cast<size_t>(kernel_.kept);
      if (reduced && !phase.inner && access.strides[i] != 0)
        say(name(at), " depends on a reduced dim in an outer phase");
      if (!reduced && buffer.role == BufferRole::Scratch && access.strides[i] != 0)
        say(name(at), " strides scratch ", buffer.name, " by a kept dim");
    }
    // A masked or indirect load is kept in bounds by its mask or by CheckIndex.
    const bool checked_elsewhere = it.op == LoopOp::Load && (it.a != kNone || it.b != kNone);
    if (!checked_elsewhere && (low < 0 || high >= buffer.elements))
      say(name(at), " touches elements ", low, " to ", high, " of ", buffer.name, ", which has ",
          buffer.elements);
  }

  std::string name(int32_t at) const {
    return kernel_.body[static_cast<size_t>(at)].op == LoopOp::Store ? "line " + std::to_string(at)
                                                                     : "v" + std::to_string(at);
  }

  template <class... Parts>
  void say(const Parts&... parts) {
    found_.push_back(base::str(parts...));
  }

  const Kernel& kernel_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> violations(const Kernel& kernel) { return Verifier(kernel).run(); }

void verify(const Kernel& kernel) {
  const std::vector<std::string> found = violations(kernel);
  TANDEM_CHECK(found.empty(), "lower", "kernel ", kernel.name, " is malformed: ", found.front(),
               "\n", print(kernel));
}

}  // namespace tandem::loops
