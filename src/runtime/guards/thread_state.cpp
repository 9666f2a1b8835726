#include "runtime/guards/thread_state.h"

#include "base/error.h"
#include "ops/effect_marks.h"
#include "tandem/ir/type.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tandem::runtime {
namespace {

template <class T>
std::optional<std::string> compare(const char* what, const T& expected, const T& got) {
  if (expected == got) return std::nullopt;
  if constexpr (std::is_same_v<T, bool>) {
    return base::str(what, " is ", got ? "on" : "off", ", compiled with ", expected ? "on" : "off");
  } else if constexpr (std::is_same_v<T, c10::ScalarType>) {
    return base::str(what, " is ", ir::dtype_name(got), ", compiled with ",
                     ir::dtype_name(expected));
  } else {
    return base::str(what, " is ", got, ", compiled with ", expected);
  }
}

std::string key_text(uint64_t raw) {
  return c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, raw));
}

}  // namespace

ThreadState ThreadState::now() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const at::Context& context = at::globalContext();
  return {.included_keys = keys.included_.raw_repr(),
          .excluded_keys = keys.excluded_.raw_repr(),
          .grad_mode = c10::GradMode::is_enabled(),
          .deterministic = context.deterministicAlgorithms(),
          .onednn = context.userEnabledMkldnn(),
          .default_dtype = c10::get_default_dtype_as_scalartype(),
          .cpu_autocast_dtype = at::autocast::get_autocast_dtype(at::kCPU),
          .cuda_autocast_dtype = at::autocast::get_autocast_dtype(at::kCUDA),
          .autocast_cache = at::autocast::is_autocast_cache_enabled(),
          .flash_attention = context.userEnabledFlashSDP(),
          .math_attention = context.userEnabledMathSDP(),
          .efficient_attention = context.userEnabledMemEfficientSDP(),
          .effect_marks = ops::effect_marks(),
          .threads = at::get_num_threads()};
}

std::optional<std::string> ThreadState::difference(const ThreadState& other) const {
  if (auto text = compare("grad mode", grad_mode, other.grad_mode)) return text;
  if (included_keys != other.included_keys || excluded_keys != other.excluded_keys) {
    return base::str("dispatch state (autocast, inference mode) is included ",
                     key_text(other.included_keys), " excluded ", key_text(other.excluded_keys),
                     ", compiled with included ", key_text(included_keys), " excluded ",
                     key_text(excluded_keys));
  }
  if (auto text = compare("deterministic mode", deterministic, other.deterministic)) return text;
  if (auto text = compare("oneDNN", onednn, other.onednn)) return text;
  if (auto text = compare("default dtype", default_dtype, other.default_dtype)) return text;
  if (auto text = compare("CPU autocast dtype", cpu_autocast_dtype, other.cpu_autocast_dtype))
    return text;
  if (auto text = compare("CUDA autocast dtype", cuda_autocast_dtype, other.cuda_autocast_dtype))
    return text;
  if (auto text = compare("autocast cache", autocast_cache, other.autocast_cache)) return text;
  if (auto text = compare("flash attention", flash_attention, other.flash_attention)) return text;
  if (auto text = compare("math attention", math_attention, other.math_attention)) return text;
  if (auto text = compare("efficient attention", efficient_attention, other.efficient_attention))
    return text;
  if (effect_marks != other.effect_marks) {
    return base::str("ops were marked as effectful since: ", other.effect_marks, ", compiled with ",
                     effect_marks);
  }
  return compare("number of threads", threads, other.threads);
}

std::string ThreadState::to_string() const {
  return base::str("thread: grad mode ", grad_mode ? "on" : "off", ", default dtype ",
                   ir::dtype_name(default_dtype), ", deterministic mode ",
                   deterministic ? "on" : "off", ", oneDNN ", onednn ? "on" : "off", ", ", threads,
                   " threads, dispatch keys as at the trace");
}

}  // namespace tandem::runtime
