#pragma once

#include "backends/llvm_common/build_kernel.h"
#include "backends/llvm_common/fuse.h"

#include <vector>

namespace tandem::backends::llvm_common {

/// The nodes of a kernel as a graph of their own, with the views and constants they read through:
/// what eager does in its place.
struct ExtractedGroup {
  ir::Graph graph{};
  std::vector<ir::ValueId> inputs{};  // values of the whole graph, all of them in memory
  std::vector<ir::ValueId> outputs{};
};

ExtractedGroup extract_group(const ir::Graph& graph, const FusionPlan& plan, const Group& group,
                             const std::vector<ir::ValueId>& stored);

}  // namespace tandem::backends::llvm_common
