#pragma once

#include "shapes/size_samples.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::ir {

/// A number that follows from the symbols in no way that is known.
struct Unexplained {
  std::string what;             // `a size of %3`, `an operand of aten.div.Scalar`
  std::vector<int64_t> seen{};  // in the runs; may be empty
  Location line{};
};

/// Recordings of the same ops at different values of symbols.
struct Recordings {
  const shapes::SizeSamples& samples;
  /// The same, without the runs in which a symbol is 0 or 1. Strides of tensors without elements
  /// say nothing, and nobody steps along a dimension of 1.
  const shapes::SizeSamples& larger;
  std::vector<bool> is_small{};  // by run: it is left out there
  std::vector<Symbol> symbols{};
};

/// Puts an expression in place of each size, stride and integer of `graph` that differs in the
/// other recordings. `graph` is that of the first run; all have one `shape_free_hash`. With an
/// answer the graph is half done and of no use.
std::optional<Unexplained> generalise(Graph& graph, std::span<const Graph* const> others,
                                      const Recordings& recordings);
/// The same for the sizes in a signature.
std::optional<Unexplained> generalise(Signature& signature,
                                      std::span<const Signature* const> others,
                                      const Recordings& recordings);

}  // namespace tandem::ir
