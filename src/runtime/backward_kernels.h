#pragma once

#include "tandem/backend.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tandem::runtime {

/// The compiled backward, one executable per set of defined tangents. The set with all of them is
/// compiled with the entry; the others are derived from the same graph when they are first met.
class BackwardKernels {
 public:
  BackwardKernels(ir::Graph graph, CompileContext context, std::shared_ptr<Backend> backend);

  Executable& get(const std::vector<bool>& defined);

 private:
  ir::Graph graph_;
  CompileContext context_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Executable> all_;
  std::mutex mutex_;
  std::map<std::vector<bool>, std::unique_ptr<Executable>> some_;
};

}  // namespace tandem::runtime
