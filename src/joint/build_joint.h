#pragma once

#include "signature/read_signature.h"
#include "tandem/stages.h"
#include "tracing/trace.h"

namespace tandem::joint {

/// Runs autograd's own backward of the traced results into the same recording, and closes the
/// recording into a graph in calling order. Fills the tangents and gradients of the signature.
Joint build_joint(tracing::Trace& trace, signature::Reading reading, std::string name);

}  // namespace tandem::joint
