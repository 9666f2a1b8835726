#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

// Rows for views and inference mode, which functionalization cannot follow as eager does.

/// Inside a region: calls the op, outside of the region if it is asked for a view of a tensor that
/// is none of the region's.
bool call_in_inference_mode(BoxedCall& call);

bool takes_views(const c10::OperatorHandle& op);
/// Takes a view of an inference tensor within a region, wherever it is asked for.
bool view_inference_tensor(BoxedCall& call);

}  // namespace tandem::tracing
