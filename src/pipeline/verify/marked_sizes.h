#pragma once

#include "pipeline/settings/size_marks.h"
#include "pipeline/verify/difference.h"
#include "runtime/guards/guards.h"

namespace tandem::pipeline {

/// Of a call whose ops differ from those of an entry that could have served it. A UserError if
/// nothing but sizes that are marked as dynamic can be the reason. Not for the sizes 0 and 1, at
/// which broadcasting and autograd do other things.
void refuse_if_marked(const runtime::Guards& call, const runtime::Guards& entry,
                      const SizeMarks& marks, const Difference& difference);

}  // namespace tandem::pipeline
