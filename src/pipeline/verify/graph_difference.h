#pragma once

#include "pipeline/verify/difference.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <optional>

namespace tandem::pipeline {

/// The first difference of two graphs, ids, names and lines apart; nothing if there is none.
std::optional<Difference> graph_difference(const ir::Graph& compiled, const ir::Graph& now);

/// Of what a call does to arguments and results.
std::optional<Difference> signature_difference(const ir::Signature& compiled,
                                               const ir::Signature& now);

}  // namespace tandem::pipeline
