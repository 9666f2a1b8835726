#pragma once

#include "ops/metadata/metadata.h"

#include <optional>
#include <vector>

namespace tandem::ops {

/// What libtorch's Meta kernel says; nullopt if there is none, its own or that of an op that it
/// calls. An error of the op itself (sizes that do not fit) comes as eager raises it.
std::optional<std::vector<MetaResult>> ask_meta_kernel(const MetaCall& call);

/// Runs the real kernel on fresh zeros of the operands' layout. Throws an UnsupportedError where
/// zeros could mislead, or would cost too much. Leaves the default generators as they were.
std::vector<MetaResult> ask_kernel_on_zeros(const MetaCall& call);

/// The same for rules that have no other way, whatever it costs: the caller knows that zeros do not
/// mislead.
std::vector<MetaResult> run_on_zeros(const MetaCall& call);
/// The same, with the kernel's own error if it has none for such operands.
std::vector<MetaResult> try_on_zeros(const MetaCall& call);

}  // namespace tandem::ops
