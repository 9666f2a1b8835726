#pragma once

#include "tandem/stages.h"
#include "tracing/trace.h"

namespace tandem::joint {

/// Runs autograd's own backward of the traced results into the same recording, and closes the
/// recording into a graph in calling order. Fills the tangents of the signature.
Joint build_joint(tracing::Trace& trace, ir::Signature signature, std::string name);

}  // namespace tandem::joint
