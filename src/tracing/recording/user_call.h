#pragma once

#include "tandem/ir/location.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::tracing {

/// Whether an argument of this name, if it is a bool, says that a module is in training mode:
/// functions of torch::nn pass its mode on so.
bool is_mode(std::string_view argument);

/// An op that the function itself calls, as its author sees it, before it is decomposed: for words
/// about what differs between two runs.
struct UserCall {
  UserCall(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> operands, ir::Location line);

  c10::OperatorHandle op;
  /// Everything but tensors and generators: position among the arguments, and value. A list of
  /// tensors counts as its length, a tensor that is not there as none.
  c10::SmallVector<std::pair<int32_t, c10::IValue>, 4> settings{};
  /// Tensors from outside that it reads, and at which argument. Addresses for comparison only.
  c10::SmallVector<std::pair<int32_t, const c10::TensorImpl*>, 2> outside{};
  ir::Location line;

  /// `batch_norm`
  std::string op_name() const;
  /// `training=true`, one for each of `settings`.
  std::vector<std::string> setting_texts() const;
  /// It is told that a module is in training mode, and that makes a difference: dropout of nothing
  /// is none, and a norm without running statistics uses those of the batch in any mode.
  bool trains() const;

 private:
  const c10::IValue* setting(const char* name) const;
};

}  // namespace tandem::tracing
