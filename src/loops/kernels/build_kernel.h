#pragma once

#include "loops/fusion/fuse.h"
#include "loops/fusion/views.h"
#include "loops/ir/loop_ir.h"

#include <vector>

namespace tandem::loops {

/// A kernel and what its buffers are in the graph.
struct BuiltKernel {
  Kernel kernel{};
  std::vector<ir::ValueId> buffers{};  // per buffer the value whose memory it is; none for scratch
  std::vector<ir::ValueId> stored{};   // the values it computes for others
  int64_t bytes_read = 0, bytes_written = 0;
};

/// The kernel of a group: its loops in the order of the strides, neighbours joined where no access
/// can tell. Names of buffers are those of the graph's text.
BuiltKernel build_kernel(const ir::Graph& graph, const FusionPlan& plan, const KernelGroup& group,
                         const Views& views, const std::vector<std::string>& names,
                         const Target& target);

}  // namespace tandem::loops
