#pragma once

#include <c10/core/GradMode.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace tandem::ir {

/// What the function of a call's gradients takes, by name: as tensors, as what to call them, or as
/// positions in the one list that is called and traced.
template <class T>
struct GradientArguments {
  std::vector<T> arguments{};  // of the call, undefined ones included
  std::vector<T> replaced{};   // closed-over tensors that the call changes, as they were before
  std::vector<T> exchanged{};  // what set_data() has given to inputs since, whole tensors
  std::vector<T> histories{};  // tensors that nobody reads, each passed for the history that it has
  std::vector<T> states{};     // of the generators, before the call
  std::vector<T> tangents{};   // the defined ones

  std::array<std::vector<T>*, 6> lists() {
    return {&arguments, &replaced, &exchanged, &histories, &states, &tangents};
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

/// How many the list has of each name.
struct GradientArgumentCounts {
  size_t arguments = 0, replaced = 0, exchanged = 0, histories = 0, states = 0, tangents = 0;
};

/// Where the arguments of each name are in the list.
inline GradientArguments<size_t> unpack(const GradientArgumentCounts& counts) {
  size_t next = 0;
  const auto take = [&](size_t count) {
    std::vector<size_t> positions(count);
    std::iota(positions.begin(), positions.end(), next);
    next += count;
    return positions;
  };
  // Initialisers run in this order, which is that of the list.
  return {.arguments = take(counts.arguments),
          .replaced = take(counts.replaced),
          .exchanged = take(counts.exchanged),
          .histories = take(counts.histories),
          .states = take(counts.states),
          .tangents = take(counts.tangents)};
}

/// For errors: which backward traces the function again.
inline const char* name_of_backward() {
  return c10::GradMode::is_enabled() ? "backward with create_graph=true"
                                     : "a backward after set_data()";
}

}  // namespace tandem::ir
