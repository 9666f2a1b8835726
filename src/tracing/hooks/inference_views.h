#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// Rows for views and inference mode, which functionalization cannot follow as eager does.

/// Whether libtorch makes the op of others, and does not say that it gives views of its operands.
bool meets_lazy_fallbacks(const c10::OperatorHandle& op);
/// Inside a region autograd does not open up such an op. So the fallbacks for lazy conjugates and
/// negations come first and pass it copies: atleast_2d() of a conjugate has memory of its own.
std::any resolve_in_inference_mode(BoxedCall& call);

/// Inside a region: calls the op, outside of the region if it is asked for a view of a tensor that
/// is none of the region's.
bool call_in_inference_mode(BoxedCall& call);

bool takes_views(const c10::OperatorHandle& op);
/// Takes a view of an inference tensor within a region, wherever it is asked for.
bool view_inference_tensor(BoxedCall& call);

}  // namespace tandem::tracing
