#pragma once

#include "ops/metadata/metadata.h"

#include <span>

namespace tandem::ops {

/// Raises what the kernel raises, whatever its operands hold: a dtype that it does not know, a
/// number that does not fit into one, memory that empty operands do not have.
///
/// Metadata says nothing of these. The kernel is tried on zeros where one of them is likely, and
/// where that costs little; so the error comes in eager's place among other errors, and also if
/// nobody reads the result.
void raise_refusal(const MetaCall& call, std::span<const MetaResult> results);

}  // namespace tandem::ops
