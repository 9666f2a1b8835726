#pragma once

#include "tandem/function.h"

#include <string>

namespace tandem::runtime {

/// `3`, `"mean"`, `true`, `-0.0`: equal texts are the same bits.
std::string constant_text(const detail::Constant& constant);

}  // namespace tandem::runtime
