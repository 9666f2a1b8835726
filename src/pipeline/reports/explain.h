#pragma once

#include "runtime/entry_state.h"
#include "tandem/entry.h"
#include "tandem/options.h"

#include <string>
#include <vector>

namespace tandem::pipeline {

/// What `explain()` has to tell.
struct Explanation {
  std::string forecast;                                // what the call would do and why, in lines
  const runtime::EntryState* entry = nullptr;          // variant that serves it, or would; or null
  std::vector<const runtime::EntryState*> variants{};  // of the same entry, that one among them
  std::vector<std::string> argument_names{};           // of its tensors, one each
};

/// One page: forecast, what is compiled, when it serves a call, settings, what is worth knowing,
/// and what has happened so far. Lists are shortened to a few lines; `entries()` has all of it.
std::string explain_page(const Explanation& explanation, const Options& options,
                         const Stats& stats);

}  // namespace tandem::pipeline
