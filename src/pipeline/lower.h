#pragma once

#include "pipeline/reports/stage_log.h"
#include "runtime/artifact.h"
#include "tandem/backend.h"

#include <vector>

namespace tandem::pipeline {

/// lower: gives an artifact its kernels, those of the forward and of the backward for every set of
/// tangents that a node of a call can meet first: no backward compiles when it runs for the first
/// time.
runtime::Artifact lower(runtime::Artifact artifact, Backend& backend, StageLog& log);

/// One backward of an artifact. `whole`: the graph of all tangents and gradients, as it was cut or
/// as it was recorded again for a state of autocast.
runtime::Backward lower_backward(const runtime::Artifact& artifact, const ir::Graph& whole,
                                 const partition::Asked& asked, Backend& backend);

}  // namespace tandem::pipeline
