#pragma once

#include "tracing/trace.h"

#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <vector>

namespace tandem::joint {

/// While it lives, closed-over tensors have the versions that the function's writes give them. A
/// custom function is handed such a tensor itself, not its stand-in: what it saved of one that is
/// written later is then found to be modified, as in eager.
class WrittenVersions {
 public:
  explicit WrittenVersions(const tracing::Trace& trace);
  ~WrittenVersions();
  WrittenVersions(const WrittenVersions&) = delete;
  WrittenVersions& operator=(const WrittenVersions&) = delete;

 private:
  struct Raised {
    c10::VariableVersion counter;
    uint32_t by;
  };
  std::vector<Raised> raised_;
};

}  // namespace tandem::joint
