#include "backends/eager/eager_backend.h"

#include "backends/eager/program.h"
#include "base/error.h"
#include "ir/ivalue.h"
#include "shapes/evaluate.h"
#include "tandem/ir/type.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem::backends::eager {

bool may_overwrite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.use_count() != 1 || !tensor.has_storage()) return false;
  constexpr c10::DispatchKeySet kLazyBits(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  if (tensor.key_set().has_any(kLazyBits)) return false;
  const c10::Storage& storage = tensor.storage();
  // Memory that libtorch did not allocate is not resizable: it may belong to the user.
  return storage.use_count() == 1 && storage.unsafeGetStorageImpl()->resizable();
}

namespace {

/// One run of a program, with its values.
class Interpreter {
 public:
  Interpreter(const Program& program, std::span<at::Tensor> inputs)
      : program_(program), inputs_(inputs), slots_(program.slot_count) {
    stack_.reserve(program.stack_size);
  }

  std::vector<at::Tensor> run() {
    for (const SizedTensor& sized : program_.sized_inputs) note_sizes(sized, inputs_[sized.index]);
    for (int32_t input : program_.unread_inputs) inputs_[static_cast<size_t>(input)].reset();
    for (const Instruction& instruction : program_.instructions) execute(instruction);
    std::vector<at::Tensor> outputs;
    outputs.reserve(program_.outputs.size());
    for (const Source& source : program_.outputs) outputs.push_back(take(source).toTensor());
    return outputs;
  }

 private:
  c10::IValue take(const Source& source) {
    const auto at = static_cast<size_t>(source.index);
    switch (source.kind) {
      case Source::Kind::Constant:
        return program_.constants[at];
      case Source::Kind::Slot:
        return source.last_use ? std::move(slots_[at]) : slots_[at];
      case Source::Kind::Input:
        return source.last_use ? c10::IValue(std::move(inputs_[at])) : c10::IValue(inputs_[at]);
      case Source::Kind::Sized:
        return sized_argument(program_.sized_arguments[at]);
      case Source::Kind::Undefined:
        break;
    }
    return c10::IValue(at::Tensor());
  }

  int64_t number_of(const ir::Size& size) const {
    return shapes::evaluate(size, [this](const std::string& name) {
      const auto at = std::ranges::find(program_.symbols, name);
      return sizes_[static_cast<size_t>(at - program_.symbols.begin())];
    });
  }

  c10::IValue sized_argument(const SizedArgument& argument) const {
    static const ir::Graph kNone;
    ir::Operand operand;
    if (const auto* size = argument.operand.get_if<ir::Size>()) {
      operand = ir::Operand(ir::Size(number_of(*size)));
    } else {
      ir::Operand::Sizes numbers;
      for (const ir::Size& size : *argument.operand.get_if<ir::Operand::Sizes>())
        numbers.push_back(number_of(size));
      operand = ir::Operand(std::move(numbers));
    }
    return ir::to_ivalue(kNone, operand, argument.type, [](ir::ValueId) { return at::Tensor(); });
  }

  /// What the types say was found out at a few sizes. Here it is checked at these.
  void note_sizes(const SizedTensor& sized, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    TANDEM_CHECK(tensor.dim() == sized.type->rank(), "call", "a tensor has ", tensor.dim(),
                 " dimensions, its type is ", ir::to_string(*sized.type));
    for (const auto& [dim, symbol] : sized.binds)
      sizes_[symbol] = tensor.size(static_cast<int64_t>(dim));
    for (size_t dim = 0; dim < sized.type->sizes.size(); ++dim) {
      const int64_t expected = number_of(sized.type->sizes[dim]);
      TANDEM_CHECK(tensor.size(static_cast<int64_t>(dim)) == expected, "call",
                   "a size that depends on data is ", tensor.size(static_cast<int64_t>(dim)),
                   ", and should be ", expected, ", of ", ir::to_string(*sized.type));
    }
  }

  void execute(const Instruction& instruction) {
    for (const Argument& argument : instruction.arguments)
      ops::push(stack_, argument, [this](const Source& source) { return take(source); });
    // Asked when all operands are on the stack: if one of them is a view of operand 0, it counts as
    // a second owner.
    const bool overwrite =
        instruction.inplace.has_value() && may_overwrite(stack_.front().toTensor());
    const bool copy = instruction.reshape.has_value() && !stack_.front().toTensor().is_contiguous();
    (overwrite ? *instruction.inplace
     : copy    ? *instruction.reshape
               : instruction.op)
        .callBoxed(stack_);
    // A write whose result is an argument may be recorded without a result.
    if (instruction.results.empty()) return stack_.clear();
    if (!instruction.sized.empty()) note_sizes_of_results(instruction);
    ops::pop_results(stack_, instruction.shape, [&](size_t index, c10::IValue value) {
      const int32_t slot = instruction.results[index];
      if (slot != kDropped) slots_[static_cast<size_t>(slot)] = std::move(value);
    });
  }

  void note_sizes_of_results(const Instruction& instruction) {
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : stack_) {
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
      } else {
        results.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
      }
    }
    for (const SizedTensor& sized : instruction.sized) note_sizes(sized, results[sized.index]);
  }

  const Program& program_;
  std::span<at::Tensor> inputs_;
  std::vector<int64_t> sizes_ = std::vector<int64_t>(program_.symbols.size(), 0);  // by symbol
  std::vector<c10::IValue> slots_;
  torch::jit::Stack stack_;
};

class EagerExecutable final : public Executable {
 public:
  explicit EagerExecutable(Program program) : program_(std::move(program)) {}

  std::vector<at::Tensor> run(std::span<at::Tensor> inputs) override {
    TANDEM_REQUIRE(inputs.size() == program_.input_count, "call", "the graph takes ",
                   program_.input_count, " inputs, got ", inputs.size(),
                   "\n  remedy: pass one tensor per input, undefined ones too");
    // The graph was recorded below autograd, version counting and autocast, and runs there.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
    return Interpreter(program_, inputs).run();
  }

 private:
  Program program_;
};

class EagerBackend final : public Backend {
 public:
  std::string_view name() const override { return "eager"; }

  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    const size_t inputs = graph.inputs().size();
    TANDEM_REQUIRE(context.releasable_inputs.empty() || context.releasable_inputs.size() == inputs,
                   "lower", "graph ", graph.name(), " has ", inputs, " inputs, got ",
                   context.releasable_inputs.size(),
                   " flags\n  remedy: leave releasable_inputs empty, or give one flag per input");
    ir::verify(graph, "lower");
    return std::make_unique<EagerExecutable>(assemble(graph, context));
  }
};

}  // namespace

std::shared_ptr<Backend> make_backend() { return std::make_shared<EagerBackend>(); }

}  // namespace tandem::backends::eager
