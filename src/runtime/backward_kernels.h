#pragma once

#include "partition/tangent_use.h"
#include "tandem/backend.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tandem::runtime {

/// The backward for one set of defined tangents.
struct Backward {
  std::unique_ptr<Executable> kernels;
  std::vector<bool> reads;  // which saved values
};

/// The compiled backward, one executable per set of defined tangents. The set with all of them is
/// compiled with the entry; the others are derived from the same graph when they are first met.
class BackwardKernels {
 public:
  BackwardKernels(ir::Graph graph, CompileContext context, std::shared_ptr<Backend> backend);

  const Backward& get(const std::vector<bool>& defined);
  /// Worked out when the results of a call are differentiated one by one.
  const partition::TangentUse& tangent_use();

 private:
  Backward compile(const ir::Graph& graph) const;

  ir::Graph graph_;
  CompileContext context_;
  std::shared_ptr<Backend> backend_;
  Backward all_;
  std::mutex mutex_;
  std::map<std::vector<bool>, Backward> some_;
  std::optional<partition::TangentUse> use_;
};

}  // namespace tandem::runtime
