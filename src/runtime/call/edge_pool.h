#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

namespace tandem::runtime {

/// Keeps the edge list of a dead node for the next call of the entry.
///
/// Most of a list leads to the gradient accumulators of parameters, which are the same in every
/// call. libtorch lets an accumulator die with the last graph that points to it and builds it anew
/// in the next forward; a list that is kept saves both. Only leaves that the entry owns anyway may
/// be kept alive so: whoever gives a list clears the edges to arguments first.
class EdgePool {
 public:
  /// Takes the kept list, if there is one. Any thread may call; nobody waits.
  bool take(torch::autograd::edge_list& edges) {
    State expected = State::full;
    if (!state_.compare_exchange_strong(expected, State::busy, std::memory_order_acquire)) {
      return false;
    }
    edges = std::move(kept_);
    kept_.clear();
    state_.store(State::empty, std::memory_order_release);
    return true;
  }

  /// Keeps the list for the next call, or drops it if one is kept already.
  void give(torch::autograd::edge_list&& edges) {
    State expected = State::empty;
    if (!state_.compare_exchange_strong(expected, State::busy, std::memory_order_acquire)) return;
    kept_ = std::move(edges);
    state_.store(State::full, std::memory_order_release);
  }

 private:
  enum class State { empty, busy, full };
  std::atomic<State> state_{State::empty};
  torch::autograd::edge_list kept_;
};

}  // namespace tandem::runtime
