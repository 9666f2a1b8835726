#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// The strides of what an in-place op, or one with an `out` argument, is about to write.
//
// Functionalization gives a written tensor the strides that the out-of-place form chooses for its
// result. Eager writes into the memory that is there: strides stay, and host code decides by them
// (`contiguous()`, `reshape()` and `view()` copy, alias or raise).

bool writes_one_tensor(const c10::OperatorHandle& op);
/// Also tells the recording that a traced tensor is being written.
std::any note_strides(BoxedCall& call);
/// Lays the new value out as before, by recorded ops, if it is not.
void restore_strides(BoxedCall& call, std::any& left);

/// The value with the strides of another one of its sizes, by recorded ops if it has others.
at::Tensor laid_out_like(const at::Tensor& value, const at::Tensor& like);

/// Fills memory with gaps as eager does, one number after the other: what functionalization fills
/// has none, and there the kernel draws 16 at once. False: there are no gaps, or fewer numbers.
bool draw_into_gaps(BoxedCall& call);

}  // namespace tandem::tracing
