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
/// The variants of an entry share it: that calls go from one size to another is no reason for a
/// check. But a number that host code gives to an op may be right in one variant and out of date in
/// another, so each of them has calls of its own at which it is due.
///
/// Every call passes here, so nothing waits for other threads. Of calls that begin at one moment
/// one may go uncounted; the next check then comes a call later.
class CheckSchedule {
 public:
  /// The calls of one variant.
  class Variant {
   public:
    Variant() = default;

   private:
    friend class CheckSchedule;
    std::atomic<int64_t> calls_{0}, next_{0};
    std::atomic<uint64_t> failures_{0};  // of the entry, that it knows of
  };

  /// As Options::verify_every: each so many calls, 0 for none, or `automatic`: the 2nd, 4th, 8th,
  /// ... call, the 1st, 2nd, 4th, ... that follows a call which another entry served or that is the
  /// first of an older variant after a new one was made, and the 8th, 64th, 512th, ... of a variant
  /// that none of those has looked at.
  explicit CheckSchedule(int64_t every)
      : every_(every),
        next_(every == automatic ? 2
              : every == 0       ? kNever
                                 : every) {}

  /// A variant that was just made, before its first call. Its trace says nothing of the others: a
  /// number that has changed since is one more that differs from size to size.
  void add(Variant& variant, bool has_others) {
    variant.next_.store(every_ > 0 ? every_ : own_next(1), std::memory_order_relaxed);
    variant.failures_.store(failures_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    if (has_others) newest_.store(&variant, std::memory_order_relaxed);
  }

  /// The call that has made the variant: what it ran is new.
  void count_first(Variant& variant) {
    count(calls_);
    count(variant.calls_);
  }

  /// A later one. If it says that a check is due, `passed`, `put_off` or `failed` ends it.
  bool is_due(Variant& variant, bool after_another_entry) {
    if (every_ == 0) return false;
    const bool of_entry = count(calls_) >= next_.load(std::memory_order_relaxed);
    const bool of_variant =
        count(variant.calls_) >= variant.next_.load(std::memory_order_relaxed) ||
        variant.failures_.load(std::memory_order_relaxed) !=
            failures_.load(std::memory_order_relaxed);
    const bool back = looks_back(variant);
    const bool changes = (back || after_another_entry) && every_ == automatic && counts_as_change();
    const bool due = of_entry || of_variant;
    return (due || changes) && !under_way_.exchange(true, std::memory_order_relaxed);
  }

  void passed(Variant& variant) {
    const int64_t calls = calls_.load(std::memory_order_relaxed);
    if (calls >= next_.load(std::memory_order_relaxed))
      next_.store(every_ == automatic ? power_after(calls) : calls + every_,
                  std::memory_order_relaxed);
    variant.next_.store(own_next(variant.calls_.load(std::memory_order_relaxed)),
                        std::memory_order_relaxed);
    variant.failures_.store(failures_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    under_way_.store(false, std::memory_order_relaxed);
  }

  /// A check that is due has not been made: it is due at the next call.
  void put_off() { under_way_.store(false, std::memory_order_relaxed); }

  /// The next call is checked, too, and the next one of each variant: a function that has changed
  /// is not run in silence.
  void failed() {
    next_.store(0, std::memory_order_relaxed);
    failures_.fetch_add(1, std::memory_order_relaxed);
    under_way_.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  static int64_t power_after(int64_t calls) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(calls) + 1));
  }

  /// Rarer than those of the entry: there may be dozens of variants.
  int64_t own_next(int64_t calls) const {
    if (every_ == 0) return kNever;
    return every_ == automatic ? 4 * power_after(calls) : calls + every_;
  }

  static int64_t count(std::atomic<int64_t>& calls) {
    const int64_t call = calls.load(std::memory_order_relaxed) + 1;
    calls.store(call, std::memory_order_relaxed);
    return call;
  }

  /// Whether the variant is older than one that was made since such a call was last looked for.
  bool looks_back(const Variant& variant) {
    const Variant* newest = newest_.load(std::memory_order_relaxed);
    return newest != nullptr && newest != &variant &&
           newest_.exchange(nullptr, std::memory_order_relaxed) != nullptr;
  }

  /// Where calls alternate between entries, fewer and fewer changes are looked at.
  bool counts_as_change() {
    return std::has_single_bit(changes_.fetch_add(1, std::memory_order_relaxed) + 1);
  }

  const int64_t every_;
  std::atomic<int64_t> calls_{0}, next_;
  std::atomic<uint64_t> changes_{0}, failures_{0};
  std::atomic<const Variant*> newest_{nullptr};  // compared only
  std::atomic<bool> under_way_{false};
};

}  // namespace tandem::runtime
