#pragma once

#include <cstddef>
#include <type_traits>

namespace tandem::shapes {

/// How many elements of memory a strided tensor reaches over, from its first element to its last,
/// both included; 0 if it has none. Sizes and strides are integers or Sizes; no stride is negative.
template <class Sizes, class Strides>
auto reach(const Sizes& sizes, const Strides& strides) {
  using Int = std::decay_t<decltype(sizes[0])>;
  Int last(0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == Int(0)) return Int(0);
    last = last + (sizes[i] - Int(1)) * strides[i];
  }
  return last + Int(1);
}

}  // namespace tandem::shapes
