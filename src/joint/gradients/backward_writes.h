#pragma once

#include "joint/gradients/backward_effects.h"
#include "tracing/trace.h"

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::joint {

/// Writes to inputs by hooks and custom functions of the backward: seen by comparing how often each
/// input had been written when the backward began.
class BackwardWrites {
 public:
  explicit BackwardWrites(const tracing::Trace& trace);

  /// Records that the backward gives each input that it has written its new data, with as many
  /// steps of the version counter. `tangents` are those of this part of the backward, as values.
  std::vector<Reached> record(tracing::Recording& recording, const ir::Signature& signature,
                              std::span<const ir::ValueId> tangents);
  /// An UnsupportedError if the backward has written an input.
  void check() const;

 private:
  struct Count {
    uint64_t writes;
    uint32_t version;
  };
  std::vector<Count> count() const;
  [[noreturn]] void refuse(const tracing::StandIn& stand_in, const char* why) const;

  const tracing::Trace& trace_;
  std::vector<Count> before_;
};

}  // namespace tandem::joint
