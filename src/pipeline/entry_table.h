#pragma once

#include "pipeline/settings/size_marks.h"
#include "runtime/check_schedule.h"
#include "runtime/entry_state.h"
#include "tandem/function.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace tandem::pipeline {

/// How many variants an entry keeps, if one has so many nodes in its three graphs: as many as fit
/// into some memory, but dozens of the largest and not more than a look-up takes lightly. One more,
/// and the one that was used longest ago goes.
size_t most_variants(size_t nodes);

/// What the variants of an entry have in common.
struct EntryShare {
  EntryShare(uint64_t shape_free_hash, int64_t verify_every)
      : shape_free(shape_free_hash), checks(verify_every) {}

  const uint64_t shape_free;  // of what was recorded; with Dynamic::never of no other entry
  runtime::CheckSchedule checks;
  std::atomic<int64_t> made{0};  // variants, those that went included
  /// Variants that hold the entry's closed-over tensors.
  const std::shared_ptr<std::atomic<size_t>> holders = std::make_shared<std::atomic<size_t>>(0);
};

/// An entry for one set of sizes.
struct Variant {
  Variant(std::shared_ptr<const runtime::EntryState> made, std::shared_ptr<EntryShare> of,
          uint64_t sizes_key);
  ~Variant();
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  const std::shared_ptr<const runtime::EntryState> state;
  const std::shared_ptr<EntryShare> entry;
  const uint64_t sizes;  // its key
  mutable runtime::CheckSchedule::Variant calls{};
  mutable std::atomic<int64_t> last_use{0};  // on a clock that counts calls

  const runtime::Guards& guards() const { return state->guards(); }
};
using VariantPtr = std::shared_ptr<const Variant>;

/// The entries of a compiled function and their variants. A value that does not change: calls read
/// one while another one is made.
class EntryTable {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  /// Oldest first, of all entries.
  const std::vector<VariantPtr>& variants() const { return variants_; }
  size_t entry_count() const { return entries_.size(); }
  /// Which entry the variant belongs to; kNone: it is not kept.
  size_t entry_of(const Variant& variant) const;
  /// Oldest first.
  std::vector<VariantPtr> variants_of(size_t entry) const;
  /// Of an entry.
  VariantPtr last_used(size_t entry) const;
  const Variant& newest(size_t entry) const;
  /// That with the fewest other sizes and numbers.
  const Variant& nearest(size_t entry, const runtime::Guards& guards) const;
  const SizeMarks& marks_of(size_t entry) const { return entries_[entry].marks; }

  /// The variant that serves a call, `first` being looked at first.
  size_t find(const libtorch::ThreadState& thread, const detail::Flat& arguments,
              size_t first) const;

  /// How many variants differ from such a call in numbers among the constants only.
  int64_t with_other_numbers(const libtorch::ThreadState& thread,
                             const detail::Flat& arguments) const;

  /// Entries that could have a variant for a call as far as one knows before its trace.
  std::vector<size_t> candidates(const runtime::Guards& before_trace, const SizeMarks& marks) const;
  /// The entry to which a recording belongs, or kNone.
  size_t home(const runtime::Guards& guards, uint64_t shape_free, const SizeMarks& marks) const;
  /// Whether marks of the entry, or of a call, keep the call from being a variant of it.
  bool marks_allow(size_t entry, const runtime::Guards& call, const SizeMarks& marks) const;

  /// With one more variant, of the entry `home` or, if that is kNone, of a new one. If the entry
  /// has as many as it may have, `dropped` gets another one of it.
  EntryTable with(VariantPtr variant, size_t home, const SizeMarks& marks,
                  VariantPtr& dropped) const;
  /// Without those; entries that have no variant left go, too.
  EntryTable without(const std::vector<VariantPtr>& gone) const;

 private:
  struct Entry {
    std::shared_ptr<EntryShare> share;
    SizeMarks marks;
    size_t variants = 0;
  };
  void add_to_index(size_t variant);

  std::vector<Entry> entries_;
  std::vector<VariantPtr> variants_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_sizes_;
};

}  // namespace tandem::pipeline
