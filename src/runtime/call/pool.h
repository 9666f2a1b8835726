#pragma once

#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <utility>

namespace tandem::runtime {

/// Keeps a list of a dead node for the next call of the entry: most of it is the same in every
/// call, and making it anew costs a count of references for each parameter, or more.
template <class List>
class Pool {
 public:
  /// Takes the kept list, if there is one. Any thread may call; nobody waits.
  bool take(List& list) {
    State expected = State::full;
    if (!state_.compare_exchange_strong(expected, State::busy, std::memory_order_acquire)) {
      return false;
    }
    list = std::move(kept_);
    kept_.clear();
    state_.store(State::empty, std::memory_order_release);
    return true;
  }

  /// Keeps the list for the next call, or drops it if one is kept already.
  void give(List&& list) {
    State expected = State::empty;
    if (!state_.compare_exchange_strong(expected, State::busy, std::memory_order_acquire)) return;
    kept_ = std::move(list);
    state_.store(State::full, std::memory_order_release);
  }

 private:
  enum class State { empty, busy, full };
  std::atomic<State> state_{State::empty};
  List kept_;
};

/// The edges of a node. Most of them lead to the gradient accumulators of parameters. libtorch lets
/// an accumulator die with the last graph that points to it and builds it anew in the next forward;
/// a list that is kept saves both. Only leaves that the entry owns anyway may be kept alive so:
/// whoever gives a list clears the edges to arguments first.
using EdgePool = Pool<torch::autograd::edge_list>;

}  // namespace tandem::runtime
