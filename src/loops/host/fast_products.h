#pragma once

#include "loops/rules/call.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace tandem::loops {

/// The operator that computes what the node does, perhaps rounded otherwise: for matrix products in
/// f32 oneDNN's where it is faster than the library that libtorch calls. For Rounding::fast.
c10::OperatorHandle faster_operator(const Call& call);

}  // namespace tandem::loops
