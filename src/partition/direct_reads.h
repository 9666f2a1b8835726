#pragma once

#include "tandem/ir/graph.h"
#include "tandem/stages.h"

#include <cstdint>
#include <vector>

namespace tandem::partition {

/// How a backward reads an input to which set_data() has given other data since the call. What
/// eager's formulas have saved of the tensor itself they read as it is by then. What they have
/// saved of anything else, a view of it too, stays as it was.
enum class ReadAs : uint8_t {
  Found,    // as it was when the call ended
  Now,      // as it is
  Several,  // in both ways, or nobody can tell any more
};

/// Which nodes of a backward read inputs themselves, as it was recorded: one per input.
struct DirectReads {
  std::vector<ir::NodeId> nodes{};
  bool viewed = false;   // what the forward has made of the input's memory is read, too
  bool unclear = false;  // whether the tensor itself was saved is not to be seen
};

std::vector<DirectReads> direct_reads(const Joint& recorded);

/// How the backward of a cut reads each input. The clean-up may have merged what reads an input
/// with what the forward computes, and the backward may compute something again from the input:
/// both are as it was.
std::vector<ReadAs> reads_after_exchange(const std::vector<DirectReads>& reads,
                                         const Joint& cleaned, const Split& split);

}  // namespace tandem::partition
