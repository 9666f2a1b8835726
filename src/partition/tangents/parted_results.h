#pragma once

#include "tandem/ir/signature.h"

#include <cstddef>
#include <vector>

namespace tandem::partition {

/// The results of a call, divided by what they lead to.
struct PartedResults {
  std::vector<std::vector<size_t>> tangents;  // per autograd node
  std::vector<size_t> node_of_gradient;       // by gradient of the signature; 0 for other parts
};

/// Divides the tangents of the results' autograd node (part 0) where nothing connects them.
///
/// A node hands something on to all that it leads to, if only an undefined gradient. What lies
/// behind a history outside may raise then, or compute with zeros, where eager does not get to. So
/// results that have no input in common get nodes of their own, if one of these inputs has a
/// history. One node otherwise: sums inside are eager's, and a backward draws in one order.
PartedResults parted_results(const ir::Signature& signature);

}  // namespace tandem::partition
