#pragma once

#include "runtime/entry_state.h"
#include "tandem/entry.h"

#include <string>
#include <vector>

namespace tandem::pipeline {

/// One entry on about a page: kind, signature, saved values with bytes, guards.
std::string describe_entry(const runtime::EntryState& entry);

/// How many values and bytes the forward keeps for the backward, the largest by name.
std::string describe_saved(const Split& split, const std::string& indent = "");

/// What a step takes at most, predicted from sizes and last uses, and as the first one took it.
std::string describe_memory(const runtime::EntryState& entry, const std::string& indent = "");

/// The counters, the environment and what took how long.
std::string describe_stats(const Stats& stats);

}  // namespace tandem::pipeline
