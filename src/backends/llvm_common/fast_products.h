#pragma once

#include "backends/llvm_common/call.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::backends::llvm_common {

/// The operator that computes what the node does, perhaps rounded otherwise: for matrix products in
/// f32 oneDNN's where it is faster than the library that libtorch calls. For Rounding::fast.
c10::OperatorHandle faster_operator(const Call& call);

}  // namespace tandem::backends::llvm_common
