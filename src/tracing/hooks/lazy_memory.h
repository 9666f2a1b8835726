#pragma once

#include "tracing/recording/boxed_call.h"

#include <any>

namespace tandem::tracing {

/// Whether the memory of what the op is given is lazily conjugated or negated.
std::any note_lazy_memory(BoxedCall& call);

/// Behind a write. Functionalization takes what was written to a lazy view back to the memory by
/// the inverse view, so that the value of the memory itself becomes a lazy one, or one that was
/// lazy does not stay so. In eager it is what it was; a later `view_as_real` relies on that.
void keep_memory_as_lazy(BoxedCall& call, std::any& noted);

/// Within a write, views are taken of such a value before that is put right. What is read of it as
/// real numbers is a copy, which nobody keeps. So is what is read of lazily negated real numbers as
/// complex ones: libtorch negates a complex number by a subtraction, which makes 0 of 0.
std::any resolve_within_write(BoxedCall& call);

}  // namespace tandem::tracing
