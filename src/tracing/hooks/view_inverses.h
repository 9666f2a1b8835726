#pragma once

#include "tracing/hooks/interception.h"

namespace tandem::tracing {

/// Before an op writes a view: the base shall get back exactly what is written, and keep all else.
///
/// libtorch's inverse of `expand` adds the difference to the base, which loses bits and makes a NaN
/// of an infinity. That of `unfold` is zero between the windows.
std::any keep_places(BoxedCall& call);

}  // namespace tandem::tracing
