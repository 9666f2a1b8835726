#pragma once

#include "tandem/pass.h"

namespace tandem::passes {

/// Erases the effects of nodes up to `last`, and what was kept for the errors that it may raise:
/// calls before have had them. Draws stay.
///
/// For the function of a call's gradients, whose trace runs the call again. An UnsupportedError if
/// something reads what such an op returned, which cannot be had again.
PassResult drop_happened(ir::Graph& graph, ir::NodeId last);

}  // namespace tandem::passes
