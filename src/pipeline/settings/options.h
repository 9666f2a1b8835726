#pragma once

#include "tandem/options.h"
#include "tandem/pass.h"

#include <string>
#include <vector>

namespace tandem::pipeline {

/// Refuses what cannot be done: a UserError for a value that makes no sense, an UnsupportedError
/// for a field that is not built yet and is not at its default. Call it on what `apply_environment`
/// returns.
void check_options(const Options& options);

/// Which passes the process leaves out or adds, as TANDEM_PASSES says: names, with a `-` before
/// them to leave them out. False, and nothing changes, if a word names no pass.
bool set_pass_switches(const std::vector<std::string>& words);

/// The last word about a pass counts, otherwise its row.
bool is_switched_on(const PassInfo& pass);
/// The same, but one that is not exact never runs without free rounding.
bool runs(const PassInfo& pass, Rounding rounding);

}  // namespace tandem::pipeline
