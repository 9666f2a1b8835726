#pragma once

#include "tandem/ir/signature.h"

#include <vector>

namespace tandem::partition {

/// What a backward of a call is asked for.
struct Asked {
  std::vector<bool> defined{};  // by tangent of the signature: whether it is there
  std::vector<bool> wanted{};   // by gradient of the signature; empty: all that there are

  friend auto operator<=>(const Asked&, const Asked&) = default;
};

/// Which formulas of the signature eager's engine runs then: those that a tangent leads to and, if
/// only some gradients are wanted, that lead to one of them.
std::vector<bool> formulas_run(const ir::Signature& signature, const Asked& asked);

}  // namespace tandem::partition
