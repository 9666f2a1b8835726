#pragma once

#include <cstdint>
#include <span>

namespace tandem::shapes {

/// Where the elements of a strided tensor lie in its storage, all but `element_bytes` in elements.
struct StridedView {
  int64_t offset = 0;
  std::span<const int64_t> sizes{};
  std::span<const int64_t> strides{};
  int64_t element_bytes = 1;
};

/// Whether some byte belongs to both views of one storage.
///
/// Never false for views that share a byte. Exact for contiguous ranges and for slices of one grid,
/// such as columns or blocks of a matrix; true when it cannot tell at a bounded cost.
bool may_overlap(const StridedView& a, const StridedView& b);

}  // namespace tandem::shapes
