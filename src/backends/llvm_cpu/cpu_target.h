#pragma once

#include "loops/target/target.h"

#include <memory>

namespace tandem::backends::llvm_cpu {

/// What schedules assume of a processor of today.
struct Caches {
  // More than a core's own cache holds: the memory would be idle while a row that has arrived is
  // computed with.
  static constexpr int64_t kCoreBytes = int64_t{4} << 20;
  // More than a last-level cache keeps.
  static constexpr int64_t kSharedBytes = int64_t{40} << 20;
};

/// The CPU, with what libtorch's kernels for it do well.
std::shared_ptr<const loops::Target> cpu_target();

}  // namespace tandem::backends::llvm_cpu
