#pragma once

#include "tandem/options.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>

namespace tandem::runtime {

/// Counts the calls of an entry and says before which of them the function is run again, to see
/// whether it still does what was compiled. Any thread; one check of an entry at a time.
///
/// Every call passes here, so nothing waits for other threads. Of calls that begin at one moment
/// one may go uncounted; the next check then comes a call later.
class CheckSchedule {
 public:
  /// As Options::verify_every: each so many calls, 0 for none, or `automatic`: the 2nd, 4th, 8th,
  /// ... call, and the 1st, 2nd, 4th, ... that follows a call which another entry served.
  explicit CheckSchedule(int64_t every)
      : every_(every),
        next_(every == automatic ? 2
              : every == 0       ? kNever
                                 : every) {}

  /// The call that has compiled the entry: what it ran is new.
  void count_first() { count(); }

  /// A later one. If it says that a check is due, `passed` or `failed` ends it.
  bool is_due(bool after_another_entry) {
    if (every_ == 0) return false;
    const bool due = count() >= next_.load(std::memory_order_relaxed);
    const bool changes = after_another_entry && every_ == automatic && counts_as_change();
    return (due || changes) && !under_way_.exchange(true, std::memory_order_relaxed);
  }

  void passed() {
    const int64_t calls = calls_.load(std::memory_order_relaxed);
    if (calls >= next_.load(std::memory_order_relaxed)) {
      const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(calls) + 1));
      next_.store(every_ == automatic ? power : calls + every_, std::memory_order_relaxed);
    }
    under_way_.store(false, std::memory_order_relaxed);
  }

  /// The next call is checked, too: a function that has changed is not run in silence.
  void failed() {
    next_.store(0, std::memory_order_relaxed);
    under_way_.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t count() {
    const int64_t call = calls_.load(std::memory_order_relaxed) + 1;
    calls_.store(call, std::memory_order_relaxed);
    return call;
  }

  /// Where calls alternate between entries, fewer and fewer changes are looked at.
  bool counts_as_change() {
    return std::has_single_bit(changes_.fetch_add(1, std::memory_order_relaxed) + 1);
  }

  const int64_t every_;
  std::atomic<int64_t> calls_{0}, next_;
  std::atomic<uint64_t> changes_{0};
  std::atomic<bool> under_way_{false};
};

}  // namespace tandem::runtime
