#include "loops/ir/kernel_compiler.h"
#include "loops/ir/scalar_math.h"
#include "loops/target/host_target.h"

#include <utility>
#include <vector>

namespace tandem::loops {
namespace {

/// One run of a kernel, index by index in the order of the dims.
class Interpreter {
 public:
  Interpreter(const Kernel& kernel, std::span<void* const> buffers)
      : kernel_(kernel),
        buffers_(buffers.begin(), buffers.end()),
        index_(kernel.dims.size()),
        values_(kernel.body.size()),
        sums_(kernel.body.size()) {
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      if (kernel.buffers[i].role != BufferRole::Scratch) continue;
      scratch_.emplace_back(static_cast<size_t>(kernel.buffers[i].elements) *
                            c10::elementSize(kernel.buffers[i].dtype));
      buffers_[i] = scratch_.back().data();
    }
  }

  bool run() {
    over(0, static_cast<size_t>(kernel_.kept), [&] {
      for (const Phase& phase : kernel_.phases) run_phase(phase);
    });
    return in_range_;
  }

 private:
  template <class Fn>
  void over(size_t first, size_t last, const Fn& fn) {
    if (first == last) return fn();
    for (index_[first] = 0; index_[first] < kernel_.dims[first].extent; ++index_[first])
      over(first + 1, last, fn);
    index_[first] = 0;
  }

  void run_phase(const Phase& phase) {
    if (!phase.inner) return run_lines(phase);
    for (int32_t at = phase.begin; at < phase.end; ++at)
      sums_[static_cast<size_t>(at)] = Accumulator{};
    over(static_cast<size_t>(kernel_.kept), kernel_.dims.size(), [&] { run_lines(phase); });
    for (int32_t at = phase.begin; at < phase.end; ++at) {
      const Instruction& line = kernel_.body[static_cast<size_t>(at)];
      if (is_reduction(line.op))
        values_[static_cast<size_t>(at)] = finish(line, sums_[static_cast<size_t>(at)]);
    }
  }

  void run_lines(const Phase& phase) {
    for (int32_t at = phase.begin; at < phase.end; ++at) run_line(static_cast<size_t>(at));
  }

  void run_line(size_t at) {
    const Instruction& line = kernel_.body[at];
    switch (line.op) {
      case LoopOp::Constant:
        values_[at] = {line.number, line.integer};
        if (line.dtype == c10::ScalarType::Float)
          values_[at].number = static_cast<float>(line.number);
        return;
      case LoopOp::Index:
        values_[at] = {0, index_[static_cast<size_t>(line.slot)]};
        return;
      case LoopOp::Load:
        if (line.b != kNone && value(line.b).integer == 0) {
          values_[at] = {};
        } else {
          const Access& access = kernel_.accesses[static_cast<size_t>(line.slot)];
          values_[at] = read_element(memory(access), place(access, line.a), dtype(access));
        }
        return;
      case LoopOp::Store: {
        const Access& access = kernel_.accesses[static_cast<size_t>(line.slot)];
        write_element(memory(access), place(access, kNone), dtype(access), value(line.a));
        return;
      }
      case LoopOp::CheckIndex: {
        const int64_t index = value(line.a).integer;
        const bool inside = index >= 0 && index < line.integer;
        in_range_ = in_range_ && inside;
        values_[at] = {0, inside ? index : 0};
        return;
      }
      default:
        break;
    }
    const c10::ScalarType operand = kernel_.body[static_cast<size_t>(line.a)].dtype;
    if (is_reduction(line.op)) {
      accumulate(line, operand, sums_[at], value(line.a), value(line.b));
    } else {
      values_[at] = evaluate(line, operand, value(line.a), value(line.b), value(line.c));
    }
  }

  Scalar value(int32_t at) const {
    return at == kNone ? Scalar{} : values_[static_cast<size_t>(at)];
  }
  void* memory(const Access& access) const { return buffers_[static_cast<size_t>(access.buffer)]; }
  c10::ScalarType dtype(const Access& access) const {
    return kernel_.buffers[static_cast<size_t>(access.buffer)].dtype;
  }
  int64_t place(const Access& access, int32_t indirect) const {
    int64_t at = access.offset;
    for (size_t i = 0; i < index_.size(); ++i) at += access.strides[i] * index_[i];
    if (indirect != kNone) at += access.indirect_stride * value(indirect).integer;
    return at;
  }

  const Kernel& kernel_;
  std::vector<void*> buffers_;
  std::vector<std::vector<char>> scratch_;
  std::vector<int64_t> index_;
  std::vector<Scalar> values_;
  std::vector<Accumulator> sums_;
  bool in_range_ = true;
};

class ReferenceKernel final : public CompiledKernel {
 public:
  explicit ReferenceKernel(Kernel kernel) : kernel_(std::move(kernel)) {}
  bool launch(std::span<void* const> buffers, const c10::Stream&) const override {
    return Interpreter(kernel_, buffers).run();
  }

 private:
  Kernel kernel_;
};

class ReferenceCompiler final : public KernelCompiler {
 public:
  explicit ReferenceCompiler(const Target& target) : target_(target) {}
  const Target& target() const override { return target_; }
  std::vector<Result> compile(std::span<const Kernel* const> kernels, Sizes) override {
    std::vector<Result> results;
    for (const Kernel* kernel : kernels)
      results.push_back({std::make_shared<ReferenceKernel>(*kernel)});
    return results;
  }

 private:
  const Target& target_;
};

}  // namespace

std::shared_ptr<KernelCompiler> make_reference_compiler() {
  static const auto* host = new HostTarget;
  return make_reference_compiler(*host);
}

std::shared_ptr<KernelCompiler> make_reference_compiler(const Target& target) {
  return std::make_shared<ReferenceCompiler>(target);
}

}  // namespace tandem::loops
