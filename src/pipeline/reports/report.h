#pragma once

#include "pipeline/reports/varying_sizes.h"
#include "runtime/entry_state.h"
#include "tandem/entry.h"

#include <span>
#include <string>
#include <vector>

namespace tandem::pipeline {

/// One entry on about a page: kind, signature, saved values with bytes, guards. Of several
/// `variants` what they have in common, and the rest of `shown`, one of them.
std::string describe_entry(std::span<const runtime::EntryState* const> variants,
                           const runtime::EntryState& shown);

/// Which sizes there are, as ranges of symbols.
std::string describe_sizes(const VaryingSizes& varying, size_t variants,
                           const std::string& indent = "");

/// How many values and bytes the forward keeps for the backward, the largest by name.
std::string describe_saved(const Split& split, const std::string& indent = "");

/// What a step takes at most, predicted from sizes and last uses, and as the first one took it.
std::string describe_memory(const runtime::EntryState& entry, const std::string& indent = "");

/// The counters, the environment and what took how long.
std::string describe_stats(const Stats& stats);

}  // namespace tandem::pipeline
