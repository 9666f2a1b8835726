#pragma once

#include "tandem/function.h"

#include <string>

namespace tandem::runtime {

/// `3`, `"mean"`, `true`.
std::string constant_text(const detail::Constant& constant);

}  // namespace tandem::runtime
