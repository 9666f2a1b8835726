#pragma once

#include "tracing/trace.h"

#include <cstdint>
#include <vector>

namespace tandem::joint {

/// How often each input of a trace had been written when a backward began.
class BackwardWrites {
 public:
  explicit BackwardWrites(const tracing::Trace& trace);
  /// An UnsupportedError if the backward has written an input.
  void check() const;

 private:
  std::vector<uint64_t> count() const;

  const tracing::Trace& trace_;
  const std::vector<uint64_t> before_;
};

}  // namespace tandem::joint
