#pragma once

#include "tandem/options.h"

#include <string>
#include <vector>

namespace tandem::pipeline {

/// The options with every plain field that the environment sets (`TANDEM_BACKEND=eager`) replaced:
/// it is for deployed binaries, so it beats the code. Also sets what is process-wide: the log
/// level from TANDEM_LOG, source lines from TANDEM_SOURCE_LINES.
///
/// A value that cannot be read is a UserError that lists the legal ones. A TANDEM_ name that nobody
/// knows warns once in this process, with the nearest name. An empty value counts as not set.
Options apply_environment(Options options);

/// The same, refused by `check_options` if they cannot be met. What a variable alone is to blame
/// for names it.
Options effective_options(Options options);

/// Which known names are set, for `explain()`: `TANDEM_BACKEND=eager, TANDEM_MAX_ENTRIES=4`; else
/// empty.
std::string describe_environment();

/// `TANDEM_DUMP_DIR=dumps` if the variable is set, else empty: for errors about what it says.
std::string environment_setting(const std::string& name);

/// Every name that is understood, sorted.
std::vector<std::string> environment_names();

}  // namespace tandem::pipeline
