#pragma once

#include "tandem/shapes/size.h"

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <string>

namespace tandem::shapes {

/// The name, if it is a symbol and nothing else; else empty.
std::string symbol_name(const Size& size);

/// With a number for each symbol; a UserError for a divisor of zero, and for what leaves 64 bits.
int64_t evaluate(const Size& size, c10::function_ref<int64_t(const std::string&)> number_of);

}  // namespace tandem::shapes
