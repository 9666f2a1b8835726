#pragma once

#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem::signature {

/// What is known of a base beside its facts, by position in Signature::bases.
struct Base {
  at::Tensor tensor;  // stand-in that autograd knows as the base; undefined if it needs no gradient
  ir::ValueId value = ir::kNoValue;
};

/// Fills in outputs and bases of the signature, first match wins: the same tensor as an earlier
/// output, an input itself, memory of an input, a view of memory that the call made, new memory.
/// `inputs` are the stand-ins in the order of the signature's inputs.
std::vector<Base> add_output_facts(const tracing::Trace& trace,
                                   const std::vector<const tracing::StandIn*>& inputs,
                                   ir::Signature& signature);

}  // namespace tandem::signature
