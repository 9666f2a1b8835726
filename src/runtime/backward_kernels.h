#pragma once

#include "tandem/backend.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tandem::runtime {

/// The backward for one set of defined tangents.
struct Backward {
  std::unique_ptr<Executable> kernels;
  std::vector<bool> reads;  // which saved values
  bool for_all_tangents = false;
};

/// The compiled backward, one executable per set of defined tangents. The set with all of them is
/// compiled with the entry; the others are derived from the same graph when they are first met.
class BackwardKernels {
 public:
  BackwardKernels(ir::Graph graph, CompileContext context, std::shared_ptr<Backend> backend);

  const Backward& get(const std::vector<bool>& defined);

 private:
  Backward compile(const ir::Graph& graph) const;

  ir::Graph graph_;
  CompileContext context_;
  std::shared_ptr<Backend> backend_;
  Backward all_;
  std::mutex mutex_;
  std::map<std::vector<bool>, Backward> some_;
};

}  // namespace tandem::runtime
