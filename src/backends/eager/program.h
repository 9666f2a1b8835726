#pragma once

#include "ops/boxed_call.h"
#include "tandem/backend.h"
#include "tandem/ir/graph.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::backends::eager {

/// Where an operand or output comes from, decided at compile time.
struct Source {
  enum class Kind : uint8_t { Constant, Slot, Input, Sized, Undefined };
  Kind kind = Kind::Undefined;
  bool last_use = false;  // the handle moves on; an input moves only if the caller gave it away
  int32_t index = 0;      // into the constants, the slots, the inputs or the sized arguments
};

/// An argument that follows from sizes which are known only when the program runs.
struct SizedArgument {
  ir::Operand operand{};
  c10::TypePtr type{};
};

/// A tensor whose sizes follow from symbols.
struct SizedTensor {
  size_t index = 0;  // which input, or which result of its instruction
  ir::TypePtr type{};
  std::vector<std::pair<size_t, size_t>> binds{};  // dimensions that are a symbol met for the first
                                                   // time, and which
};

using Argument = ops::BoxedArgument<Source>;

/// One call of an operator with everything ready that does not depend on the data.
struct Instruction {
  c10::OperatorHandle op;
  /// Writes the result over operand 0: same bits, one allocation less. Used when `may_overwrite`
  /// allows it.
  std::optional<c10::OperatorHandle> inplace{};
  /// `reshape` in place of a `view`, for an operand with gaps. Zero tensors, which formulas make of
  /// derivatives that vanish, leave a sum with other strides than the types say.
  std::optional<c10::OperatorHandle> reshape{};
  std::vector<Argument> arguments{};
  ir::ResultShape shape{};         // per return of the schema: kSingle or the length of a list
  std::vector<int32_t> results{};  // flat: slot, or kDropped if nobody reads it
  std::vector<SizedTensor> sized{};
};
inline constexpr int32_t kDropped = -1;

/// A graph made ready to be interpreted. Immutable after `assemble`; a run keeps its state in an
/// interpreter.
struct Program {
  std::vector<c10::IValue> constants{};
  std::vector<Instruction> instructions{};
  std::vector<std::string> symbols{};
  std::vector<SizedTensor> sized_inputs{};
  std::vector<SizedArgument> sized_arguments{};
  std::vector<Source> outputs{};
  std::vector<int32_t> unread_inputs{};  // the caller gave them away and nobody reads them
  size_t input_count = 0;
  size_t slot_count = 0;
  size_t stack_size = 0;  // enough for the operands of any call
};

/// Regions are laid out in place. Each symbol is the size of an input, or of a result of a node
/// before its first use.
Program assemble(const ir::Graph& graph, const CompileContext& context);

/// Whether a tensor is an intermediate that nobody else can see: one handle, storage of its own.
bool may_overwrite(const at::Tensor& tensor);

}  // namespace tandem::backends::eager
