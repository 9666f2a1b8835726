#pragma once

#include "tandem/export.h"

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace tandem {

namespace ir {
class Node;
}

/// What a checkpoint policy says about one node of its region.
enum class Recompute : uint8_t { must_save, prefer_save, prefer_recompute, must_recompute };

struct CheckpointOptions {
  std::function<Recompute(const ir::Node&)> policy{};  // empty: recompute everything
};

namespace detail {
/// Raises an UnsupportedError if this thread is tracing a function.
TANDEM_API void require_no_trace(const char* what);
}  // namespace detail

/// Calls `fn(args...)`. In a compiled function what it computes is made again in the backward
/// instead of being saved (not built yet: an UnsupportedError); anywhere else it is a plain call.
template <class F, class... Args>
auto checkpoint(F&& fn, Args&&... args) -> std::invoke_result_t<F, Args...> {
  detail::require_no_trace("checkpoint");
  return std::invoke(std::forward<F>(fn), std::forward<Args>(args)...);
}

/// The same, with a policy: `checkpoint({.policy = my_policy}, fn, args...)`.
template <class F, class... Args>
auto checkpoint(const CheckpointOptions&, F&& fn, Args&&... args)
    -> std::invoke_result_t<F, Args...> {
  detail::require_no_trace("checkpoint");
  return std::invoke(std::forward<F>(fn), std::forward<Args>(args)...);
}

}  // namespace tandem
