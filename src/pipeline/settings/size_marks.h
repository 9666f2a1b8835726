#pragma once

#include "tandem/annotations.h"
#include "tandem/function.h"

#include <optional>
#include <vector>

namespace tandem::pipeline {

/// What mark_dynamic or mark_static has said of one size of an argument.
struct SizeMark {
  size_t argument = 0;  // among the tensors of a call
  int64_t dim = 0;
  std::optional<DynamicRange> dynamic{};  // none: static

  bool is_about(size_t other_argument, int64_t other_dim) const {
    return argument == other_argument && dim == other_dim;
  }
  /// Whether a size may take the place of another one in one entry.
  bool allows(int64_t size, int64_t in_place_of) const {
    return dynamic ? size >= dynamic->min && size <= dynamic->max.value_or(size)
                   : size == in_place_of;
  }
};

/// In the order of arguments and dimensions.
using SizeMarks = std::vector<SizeMark>;

/// The marks of the tensors of a call, as they are now.
SizeMarks marks_of(const detail::Flat& arguments);

}  // namespace tandem::pipeline
