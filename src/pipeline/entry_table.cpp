#include "pipeline/entry_table.h"

#include "runtime/guards/sizes_key.h"

#include <algorithm>

namespace tandem::pipeline {
namespace {

/// With so many the guards themselves are as quick as a key.
constexpr size_t kFew = 4;

size_t node_count(const runtime::EntryState& state) {
  const Split& split = state.split();
  return state.joint().node_count() + split.forward.node_count() + split.backward.node_count();
}

int64_t size_at(const runtime::Guards& guards, const SizeMark& mark) {
  const auto sizes = guards.arguments()[mark.argument].sizes();
  return sizes[static_cast<size_t>(mark.dim)];
}

bool has_size(const runtime::Guards& guards, const SizeMark& mark) {
  return mark.argument < guards.arguments().size() &&
         mark.dim < static_cast<int64_t>(guards.arguments()[mark.argument].sizes().size());
}

}  // namespace

size_t most_variants(size_t nodes) {
  // Graphs, plans and guards; docs/design/0019-sizes-that-change.md has the figures.
  constexpr size_t kBytes = size_t{256} << 20, kBytesOfVariant = 20'000, kBytesOfNode = 4'000;
  constexpr size_t kLeast = 64, kMost = 1'024;
  return std::clamp(kBytes / (kBytesOfVariant + nodes * kBytesOfNode), kLeast, kMost);
}

Variant::Variant(std::shared_ptr<const runtime::EntryState> made, std::shared_ptr<EntryShare> of,
                 uint64_t sizes_key)
    : state(std::move(made)), entry(std::move(of)), sizes(sizes_key) {
  entry->holders->fetch_add(1, std::memory_order_relaxed);
  state->guards().share_lifted(entry->holders);
}

// Before the handles go: with too few holders a tensor looks owned by somebody else, which it was a
// moment ago.
Variant::~Variant() { entry->holders->fetch_sub(1, std::memory_order_relaxed); }

size_t EntryTable::entry_of(const Variant& variant) const {
  const auto it = std::ranges::find(entries_, variant.entry, &Entry::share);
  return it == entries_.end() ? kNone : static_cast<size_t>(it - entries_.begin());
}

std::vector<VariantPtr> EntryTable::variants_of(size_t entry) const {
  std::vector<VariantPtr> result;
  for (const VariantPtr& variant : variants_) {
    if (variant->entry == entries_[entry].share) result.push_back(variant);
  }
  return result;
}

VariantPtr EntryTable::last_used(size_t entry) const {
  const std::vector<VariantPtr> all = variants_of(entry);
  // The newest of several that were used at one moment.
  return *std::ranges::max_element(all.rbegin(), all.rend(), {}, [](const VariantPtr& variant) {
    return variant->last_use.load(std::memory_order_relaxed);
  });
}

const Variant& EntryTable::newest(size_t entry) const {
  const auto it = std::find_if(variants_.rbegin(), variants_.rend(), [&](const VariantPtr& one) {
    return one->entry == entries_[entry].share;
  });
  return **it;
}

const Variant& EntryTable::nearest(size_t entry, const runtime::Guards& guards) const {
  const std::vector<VariantPtr> all = variants_of(entry);
  return **std::ranges::min_element(all, {}, [&](const VariantPtr& variant) {
    return variant->guards().differing_numbers(guards);
  });
}

size_t EntryTable::find(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                        size_t first) const {
  const auto serves = [&](size_t i) { return variants_[i]->guards().hold(thread, arguments); };
  if (first < variants_.size() && serves(first)) return first;
  if (variants_.size() <= kFew) {
    for (size_t i = variants_.size(); i-- > 0;) {
      if (i != first && serves(i)) return i;
    }
    return kNone;
  }
  const auto same = by_sizes_.find(runtime::sizes_key(arguments));
  if (same == by_sizes_.end()) return kNone;
  for (size_t i = same->second.size(); i-- > 0;) {
    if (same->second[i] != first && serves(same->second[i])) return same->second[i];
  }
  return kNone;
}

int64_t EntryTable::with_other_numbers(const libtorch::ThreadState& thread,
                                       const detail::Flat& arguments) const {
  return std::ranges::count_if(variants_, [&](const VariantPtr& variant) {
    return variant->guards().hold_but_for_numbers(thread, arguments);
  });
}

bool EntryTable::marks_allow(size_t entry, const runtime::Guards& call,
                             const SizeMarks& marks) const {
  for (const VariantPtr& variant : variants_of(entry)) {
    const runtime::Guards& guards = variant->guards();
    const auto allows = [&](const SizeMark& mark, const runtime::Guards& size,
                            const runtime::Guards& in_place_of) {
      return !has_size(size, mark) || !has_size(in_place_of, mark) ||
             mark.allows(size_at(size, mark), size_at(in_place_of, mark));
    };
    for (const SizeMark& mark : entries_[entry].marks) {
      if (!allows(mark, call, guards)) return false;
    }
    for (const SizeMark& mark : marks) {
      if (!allows(mark, guards, call)) return false;
    }
  }
  return true;
}

std::vector<size_t> EntryTable::candidates(const runtime::Guards& before_trace,
                                           const SizeMarks& marks) const {
  std::vector<size_t> result;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (newest(i).guards().alike_before_trace(before_trace) && marks_allow(i, before_trace, marks))
      result.push_back(i);
  }
  return result;
}

size_t EntryTable::home(const runtime::Guards& guards, uint64_t shape_free,
                        const SizeMarks& marks) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].share->shape_free == shape_free && newest(i).guards().alike(guards) &&
        marks_allow(i, guards, marks))
      return i;
  }
  return kNone;
}

EntryTable EntryTable::with(VariantPtr variant, size_t home, const SizeMarks& marks,
                            VariantPtr& dropped) const {
  EntryTable table = *this;
  if (home == kNone) {
    table.entries_.push_back({variant->entry, {}, 0});
  } else if (entries_[home].variants >= most_variants(node_count(*variant->state))) {
    const std::vector<VariantPtr> all = variants_of(home);
    dropped = *std::ranges::min_element(all, {}, [](const VariantPtr& one) {
      return one->last_use.load(std::memory_order_relaxed);
    });
    table = without({dropped});
  }
  Entry& entry = home == kNone ? table.entries_.back() : table.entries_[home];
  ++entry.variants;
  for (const SizeMark& mark : marks) {
    const auto is_same = [&](const SizeMark& other) {
      return other.is_about(mark.argument, mark.dim);
    };
    if (std::ranges::none_of(entry.marks, is_same)) entry.marks.push_back(mark);
  }
  table.variants_.push_back(std::move(variant));
  table.add_to_index(table.variants_.size() - 1);
  return table;
}

EntryTable EntryTable::without(const std::vector<VariantPtr>& gone) const {
  EntryTable table;
  table.entries_ = entries_;
  for (Entry& entry : table.entries_) entry.variants = 0;
  for (const VariantPtr& variant : variants_) {
    if (std::ranges::count(gone, variant) > 0) continue;
    ++table.entries_[entry_of(*variant)].variants;
    table.variants_.push_back(variant);
    table.add_to_index(table.variants_.size() - 1);
  }
  std::erase_if(table.entries_, [](const Entry& entry) { return entry.variants == 0; });
  return table;
}

void EntryTable::add_to_index(size_t variant) {
  by_sizes_[variants_[variant]->sizes].push_back(static_cast<uint32_t>(variant));
}

}  // namespace tandem::pipeline
