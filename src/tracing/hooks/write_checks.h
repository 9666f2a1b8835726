#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// Rows that raise before an op writes what eager's kernels would raise, or what no trace can
// follow.

/// A wrapped number is no tensor of the trace: what is written to it would be lost.
std::any refuse_written_numbers(BoxedCall& call);

bool is_in_place(const c10::OperatorHandle& op);
/// Before an in-place op writes a traced tensor. Raises what eager's kernels would raise where
/// memory overlaps: a traced tensor has no memory that they could look at. Refuses a write through
/// a view whose base was reshaped in place since, which autograd could not follow here. Members of
/// a group are views of their base here, whatever kind of view they are outside, so the real
/// tensors are asked whether they may be written.
std::any check_write(BoxedCall& call);

bool minds_overlap(const c10::OperatorHandle& op);
/// Before an op that does not work element by element writes what it also reads: raises what
/// eager's kernel raises, or refuses it where eager's result depends on the kernel.
std::any check_operands(BoxedCall& call);

/// Compares the sizes of what is written with those of the mask, in this order.
std::any check_mask(BoxedCall& call);

bool fills_out_on_meta(const c10::OperatorHandle& op);
/// Runs the op on tensors without data, for its errors.
std::any check_filled(BoxedCall& call);

bool writes_list(const c10::OperatorHandle& op);
/// Refuses lists whose tensors overlap. Leaves the tensors for count_writes.
std::any check_written_once(BoxedCall& call);
void count_writes(BoxedCall& call, std::any& written);

}  // namespace tandem::tracing
