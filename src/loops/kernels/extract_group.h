#pragma once

#include "loops/fusion/fuse.h"
#include "loops/kernels/build_kernel.h"

#include <vector>

namespace tandem::loops {

/// The nodes of a kernel as a graph of their own, with the views and constants they read through:
/// what eager does in its place.
struct ExtractedGroup {
  ir::Graph graph{};
  std::vector<ir::ValueId> inputs{};  // values of the whole graph, all of them in memory
  std::vector<ir::ValueId> outputs{};
};

ExtractedGroup extract_group(const ir::Graph& graph, const Views& views, const FusionPlan& plan,
                             const KernelGroup& group, const std::vector<ir::ValueId>& stored);

}  // namespace tandem::loops
