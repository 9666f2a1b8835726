#pragma once

#include "ir/text/field.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace tandem::runtime {

/// What of the calling thread and the process decides which ops a function runs and what they
/// compute. Part of every guard.
struct ThreadState {
  uint64_t included_keys = 0, excluded_keys = 0;  // autocast, inference mode, dispatch modes
  bool grad_mode = false;
  bool deterministic = false;
  bool onednn = false;
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  c10::ScalarType cpu_autocast_dtype = c10::ScalarType::BFloat16;
  c10::ScalarType cuda_autocast_dtype = c10::ScalarType::Half;
  bool autocast_cache = false;
  bool flash_attention = false, math_attention = false, efficient_attention = false;
  uint64_t effect_marks = 0;  // ops that are kept because they were marked
  int threads = 0;            // a 1x1 convolution picks its backend by it

  static ThreadState now();
  friend bool operator==(const ThreadState&, const ThreadState&) = default;
  /// Nothing if they are equal, else the first difference with both values.
  std::optional<std::string> difference(const ThreadState& other) const;
  std::string to_string() const;
};

/// Marks of ops belong to a process: another one has its own count.
constexpr auto fields(const ThreadState*) {
  using F = ThreadState;
  using ir::Field;
  return std::tuple(
      Field{"included_keys", &F::included_keys}, Field{"excluded_keys", &F::excluded_keys},
      Field{"grad_mode", &F::grad_mode}, Field{"deterministic", &F::deterministic},
      Field{"onednn", &F::onednn}, Field{"default_dtype", &F::default_dtype},
      Field{"cpu_autocast_dtype", &F::cpu_autocast_dtype},
      Field{"cuda_autocast_dtype", &F::cuda_autocast_dtype},
      Field{"autocast_cache", &F::autocast_cache}, Field{"flash_attention", &F::flash_attention},
      Field{"math_attention", &F::math_attention},
      Field{"efficient_attention", &F::efficient_attention}, Field{"threads", &F::threads});
}

}  // namespace tandem::runtime
