#pragma once

#include "tandem/ir/operand.h"

#include <ATen/core/jit_type.h>

#include <cstdint>
#include <string_view>

namespace tandem::ir {

/// What an argument of a schema takes, as far as operands tell it apart.
enum class ArgumentKind : uint8_t {
  Tensor,
  TensorList,  // of optional tensors too
  Int,
  IntList,
  Float,
  FloatList,
  Bool,
  BoolList,
  Scalar,
  ScalarList,
  String,
  Dtype,
  Layout,
  MemoryFormat,
  Device,
  Generator,
  Other,  // storages, streams, dictionaries, classes: no operand holds them
};

struct SchemaKind {
  ArgumentKind kind = ArgumentKind::Other;
  bool optional = false;           // may be none
  bool optional_elements = false;  // of a TensorList
};

/// Of `Argument::real_type()`.
SchemaKind schema_kind(const c10::Type& type);

/// `a tensor`, `a list of integers`, ... for messages.
std::string_view describe(ArgumentKind kind);

/// Whether a node may have this operand for such an argument. A number where a tensor belongs is
/// one of libtorch's wrapped numbers: it promotes dtypes like a Scalar. A value stands for a tensor
/// or for a number that is computed at run time; `none` also for an undefined tensor.
bool accepts(SchemaKind kind, const Operand& operand);

}  // namespace tandem::ir
