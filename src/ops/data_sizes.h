#pragma once

#include "ops/metadata/metadata.h"
#include "tandem/ir/graph.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tandem::ops {

/// The size that data decides in the results of a call.
struct DataSize {
  int64_t min = 0;
  std::optional<int64_t> max{};
  /// Calls that ask the same of the same operand get the same size. Empty: of another call nothing
  /// is known.
  std::string_view what{};
  size_t decided_by = 0;  // with `what`: which operand
};

/// Whether calls of the op can have such results, and it is one that is known here.
bool may_size_by_data(const c10::OperatorHandle& op);
/// Nullopt: nothing in the results of this call depends on data.
std::optional<DataSize> data_size(const MetaCall& call);
/// The results, if that is the size.
std::vector<MetaResult> results_of_size(const MetaCall& call, int64_t size);

/// Whether a node of a graph makes a size that is not known before it runs. It stays as long as
/// anything of the graph has such sizes, and runs once.
bool makes_size(const ir::Node& node);

}  // namespace tandem::ops
