#include "fuzz/program_patterns.h"

#include "fuzz/random.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

namespace tandem::fuzz {
namespace {

/// Of a hundred programs so many have a pattern.
constexpr int64_t kShare = 4;

// A row that finds defects which are known and not mended yet is off.
constexpr std::array kPatterns = {
    PatternRow{ProgramPattern::LeafViews, "leaf_views", true,
               "leaves that are parts of one flat tensor"},
    PatternRow{ProgramPattern::EntryReuse, "entry_reuse", true,
               "four calls, in turn with parts of one tensor and with tensors of their own"},
    PatternRow{ProgramPattern::MixedBackward, "mixed_backward", true,
               "custom functions of two results whose backward is not linear in the gradients"},
    PatternRow{ProgramPattern::UndefinedTangents, "undefined_tangents", true,
               "custom functions with set_materialize_grads(false) that ask what is defined"},
    PatternRow{ProgramPattern::LazyViews, "lazy_views", true,
               "conjugated and negated views as arguments, read and written through"},
    PatternRow{ProgramPattern::WrappedNumbers, "wrapped_numbers", true,
               "tensors that stand for numbers, as arguments and inside"},
    PatternRow{ProgramPattern::ShortScalars, "short_scalars", true,
               "tensors without dimensions, of any dtype, left and right of 16-bit ones"},
    PatternRow{ProgramPattern::SpecialValues, "special_values", true,
               "data with both zeros, infinities, no numbers, huge and denormal ones"},
    PatternRow{ProgramPattern::LargeMean, "large_mean", true,
               "data whose mean is much larger than its deviation, and long sums"},
    PatternRow{ProgramPattern::UnfitNumbers, "unfit_numbers", true,
               "numbers that the dtype cannot hold: eager raises, mostly"},
    PatternRow{ProgramPattern::Empties, "empties", true,
               "sizes of zero, empty slices and empty indices"},
    PatternRow{ProgramPattern::HostState, "host_state", true,
               "host state that guard_on and closes_over name changes between call and backward"},
    PatternRow{
        ProgramPattern::SetData, "set_data", true,
        "leaves get other data, of other sizes, too: between calls, between call and backward"},
    PatternRow{ProgramPattern::ChangingSizes, "changing_sizes", true,
               "several calls, with arguments of other sizes; programs ask for sizes"},
    PatternRow{ProgramPattern::NewHistories, "new_histories", true,
               "closed-over tensors get a history of their own before each call"},
    PatternRow{ProgramPattern::RefusedData, "refused_data", true,
               "indices and classes out of range, whole numbers divided by zero: eager raises"},
    PatternRow{ProgramPattern::InferenceTensors, "inference_tensors", false,
               "tensors made in inference mode, viewed, written and read outside of it"},
    PatternRow{ProgramPattern::BackwardWrites, "backward_writes", false,
               "custom functions whose backward writes a tensor that the function may write, too"},
    PatternRow{ProgramPattern::SpreadNumbers, "spread_numbers", true,
               "large tensors, and single numbers that come from them and are spread over them"},
};

}  // namespace

std::span<const PatternRow> program_patterns() { return kPatterns; }

std::string_view name_of(ProgramPattern pattern) {
  return std::ranges::find(kPatterns, pattern, &PatternRow::pattern)->name;
}

PatternSet switched_on(const std::string& changes) {
  PatternSet on;
  for (const PatternRow& row : kPatterns) {
    if (row.on) on.insert(row.pattern);
  }
  std::istringstream words(changes);
  for (std::string word; std::getline(words, word, ',');) {
    const std::string name = word.empty() ? word : word.substr(1);
    bool known = name == "all" || std::ranges::count(kPatterns, name, &PatternRow::name) == 1;
    known = known && (word[0] == '+' || word[0] == '-');
    if (!known) {
      std::string text =
          "fuzz: --patterns: expected +name or -name, got " + word + "\n  known:  all";
      for (const PatternRow& row : kPatterns) text += ' ' + std::string(row.name);
      throw std::runtime_error(text);
    }
    for (const PatternRow& row : kPatterns) {
      if (name != "all" && name != row.name) continue;
      if (word[0] == '+') {
        on.insert(row.pattern);
      } else {
        on.erase(row.pattern);
      }
    }
  }
  return on;
}

PatternSet patterns_of(uint64_t seed, const PatternSet& on) {
  PatternSet patterns;
  for (const ProgramPattern pattern : on) {
    Random random(seed ^ ((static_cast<uint64_t>(pattern) + 1) << 48));
    if (random.percent(kShare)) patterns.insert(pattern);
  }
  return patterns;
}

}  // namespace tandem::fuzz
