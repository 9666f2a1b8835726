#pragma once

#include "runtime/entry_state.h"
#include "tandem/entry.h"

#include <string>

namespace tandem::pipeline {

/// One entry on about a page: kind, signature, saved values with bytes, guards.
std::string describe_entry(const runtime::EntryState& entry);

/// The counters, the environment and what took how long.
std::string describe_stats(const Stats& stats);

}  // namespace tandem::pipeline
