#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <utility>

namespace tandem::tracing {

class Recording;

/// A call of an op on its way through the dispatcher. Its operands lie on the stack, from `first`
/// on.
struct BoxedCall {
  BoxedCall(const c10::OperatorHandle& op, torch::jit::Stack& stack, Recording* recording)
      : op(op),
        stack(stack),
        first(stack.size() - op.schema().arguments().size()),
        recording(recording) {}

  c10::IValue& operand(size_t i) const { return stack[first + i]; }
  c10::ArrayRef<c10::IValue> operands() const {
    return c10::ArrayRef<c10::IValue>(stack).slice(first);
  }
  /// Takes the operands off the stack.
  void drop() const { stack.resize(first); }
  /// Puts the only result in their place.
  void answer(c10::IValue result) const {
    drop();
    stack.push_back(std::move(result));
  }

  const c10::OperatorHandle& op;
  torch::jit::Stack& stack;
  const size_t first;
  Recording* const recording;  // null below autograd if no trace runs
};

}  // namespace tandem::tracing
