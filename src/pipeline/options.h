#pragma once

#include "tandem/options.h"

namespace tandem::pipeline {

/// Refuses what cannot be done: a UserError for a value that makes no sense, an UnsupportedError
/// for a field that is not built yet and is not at its default. Call it on what `apply_environment`
/// returns.
void check_options(const Options& options);

}  // namespace tandem::pipeline
