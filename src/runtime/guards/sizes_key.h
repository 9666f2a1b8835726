#pragma once

#include "tandem/function.h"

#include <cstdint>
#include <variant>

namespace tandem::runtime {

/// Whether an argument that is no tensor may have another value in each variant of an entry: an
/// integer or a floating-point number.
inline bool varies(const detail::Constant& constant) {
  return std::holds_alternative<int64_t>(constant) || std::holds_alternative<double>(constant);
}

/// Of all that may differ between the variants of an entry and is compared bit for bit by their
/// guards: sizes of arguments, integers, floating-point numbers. Calls that one variant serves have
/// one key.
uint64_t sizes_key(const detail::Flat& arguments);

}  // namespace tandem::runtime
