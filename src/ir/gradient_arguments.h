#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace tandem::ir {

/// What the function of a call's gradients takes, by name: as tensors, as what to call them, or as
/// positions in the one list that is called and traced.
template <class T>
struct GradientArguments {
  std::vector<T> arguments{};  // of the call, undefined ones included
  std::vector<T> replaced{};   // closed-over tensors that the call changes, as they were before
  std::vector<T> histories{};  // tensors that nobody reads, each passed for the history that it has
  std::vector<T> states{};     // of the generators, before the call
  std::vector<T> tangents{};   // the defined ones

  std::array<std::vector<T>*, 5> lists() {
    return {&arguments, &replaced, &histories, &states, &tangents};
  }
};

/// The one list.
template <class T>
std::vector<T> pack(GradientArguments<T> named) {
  std::vector<T> all;
  for (std::vector<T>* list : named.lists()) {
    all.insert(all.end(), std::make_move_iterator(list->begin()),
               std::make_move_iterator(list->end()));
  }
  return all;
}

/// Where the arguments of each name are in the list; `sizes`: how many there are, in the order of
/// `lists()`.
inline GradientArguments<size_t> unpack(const std::array<size_t, 5>& sizes) {
  GradientArguments<size_t> positions;
  size_t next = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (size_t k = 0; k < sizes[i]; ++k) positions.lists()[i]->push_back(next++);
  }
  return positions;
}

}  // namespace tandem::ir
