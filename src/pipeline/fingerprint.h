#pragma once

#include "pipeline/program.h"
#include "tandem/ir/graph.h"
#include "tracing/trace.h"

#include <cstdint>

namespace tandem::pipeline {

/// Tells one run of a program's function from another: which ops it called after the node `after`,
/// in order, with which numbers, on which inputs and results of earlier ones, in which grad mode,
/// and what it returned. Two runs for the same call are alike, whatever was traced before them and
/// however inputs lie in each other's memory. The same in every process.
uint64_t fingerprint(const Program& program, const tracing::Trace& trace, ir::NodeId after);

}  // namespace tandem::pipeline
