#pragma once

#include "tandem/backend.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace tandem::runtime {

/// The backend with `eager` behind it: a graph that it fails to compile by a defect of its own, an
/// InternalError, runs there. `count` is how often that happened; the first time it warns and asks
/// for a report. With TANDEM_STRICT=1 the error is raised.
std::shared_ptr<Backend> with_fallback(std::shared_ptr<Backend> backend,
                                       std::shared_ptr<std::atomic<int64_t>> count);

}  // namespace tandem::runtime
