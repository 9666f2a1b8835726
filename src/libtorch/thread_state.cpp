#include "libtorch/thread_state.h"

#include "base/error.h"
#include "tandem/ir/type.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tandem::libtorch {
namespace {

std::string text_of(bool on) { return on ? "on" : "off"; }
std::string text_of(int number) { return std::to_string(number); }
std::string text_of(c10::ScalarType dtype) { return std::string(ir::dtype_name(dtype)); }
/// Of keys that are neither inference mode nor autocast, which have words of their own.
std::string text_of(const ThreadState::DispatchKeys& keys) {
  const auto text = [](uint64_t raw) {
    return c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, raw));
  };
  return base::str("included ", text(keys.included), " excluded ", text(keys.excluded));
}

bool is_on(const ThreadState::DispatchKeys& keys, c10::DeviceType device) {
  const auto key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
  return !c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys.excluded).has(key);
}

}  // namespace

AutocastState AutocastState::now() {
  AutocastState state;
  state.cpu = at::autocast::is_autocast_enabled(at::kCPU);
  state.cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  if (state.cpu) state.cpu_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  if (state.cuda) state.cuda_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  return state;
}

ThreadState ThreadState::now() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  const at::Context& context = at::globalContext();
  return {.grad_mode = autograd.get_grad_mode(),
          .inference_mode = autograd.get_inference_mode(),
          .keys = {keys.included_.raw_repr(), keys.excluded_.raw_repr()},
          .deterministic = context.deterministicAlgorithms(),
          .onednn = context.userEnabledMkldnn(),
          .default_dtype = c10::get_default_dtype_as_scalartype(),
          .cpu_autocast_dtype = at::autocast::get_autocast_dtype(at::kCPU),
          .cuda_autocast_dtype = at::autocast::get_autocast_dtype(at::kCUDA),
          .autocast_cache = at::autocast::is_autocast_cache_enabled(),
          .flash_attention = context.userEnabledFlashSDP(),
          .math_attention = context.userEnabledMathSDP(),
          .efficient_attention = context.userEnabledMemEfficientSDP(),
          .threads = at::get_num_threads()};
}

std::optional<std::string> ThreadState::difference(const ThreadState& other) const {
  std::optional<std::string> text;
  const auto switched = [&](const char* what, bool expected, bool got) {
    if (!text && expected != got)
      text = base::str(what, " is ", text_of(got), ", compiled with ", text_of(expected));
  };
  // Both show in the dispatch keys, too, and inference mode in grad mode.
  switched("inference mode", inference_mode, other.inference_mode);
  switched("grad mode", grad_mode, other.grad_mode);
  switched("autocast on the CPU", autocast().cpu, other.autocast().cpu);
  switched("autocast on CUDA", autocast().cuda, other.autocast().cuda);
  const auto compare = [&](const auto& one) {
    const auto &expected = this->*one.member, &got = other.*one.member;
    if (text || expected == got) return;
    text = base::str(one.words, " is ", text_of(got), ", compiled with ", text_of(expected));
  };
  std::apply([&](const auto&... each) { (compare(each), ...); }, fields(this));
  return text;
}

std::string ThreadState::to_string() const {
  return base::str("thread: grad mode ", text_of(grad_mode), ", default dtype ",
                   text_of(default_dtype), ", deterministic mode ", text_of(deterministic),
                   ", oneDNN ", text_of(onednn), ", ", threads,
                   " threads, dispatch keys as at the trace");
}

AutocastState ThreadState::autocast() const {
  AutocastState state;
  state.cpu = is_on(keys, at::kCPU);
  state.cuda = is_on(keys, at::kCUDA);
  if (state.cpu) state.cpu_dtype = cpu_autocast_dtype;
  if (state.cuda) state.cuda_dtype = cuda_autocast_dtype;
  return state;
}

ThreadState ThreadState::with_autocast(const AutocastState& state) const {
  ThreadState other = *this;
  c10::DispatchKeySet excluded(c10::DispatchKeySet::RAW, keys.excluded);
  const auto set = [&](c10::DeviceType device, bool on) {
    const auto key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
    excluded = on ? excluded.remove(key) : excluded.add(key);
  };
  set(at::kCPU, state.cpu);
  set(at::kCUDA, state.cuda);
  other.keys.excluded = excluded.raw_repr();
  if (state.cpu) other.cpu_autocast_dtype = state.cpu_dtype;
  if (state.cuda) other.cuda_autocast_dtype = state.cuda_dtype;
  return other;
}

void ThreadState::apply() const {
  const AutocastState state = autocast();
  c10::GradMode::set_enabled(grad_mode);
  at::autocast::set_autocast_enabled(at::kCPU, state.cpu);
  at::autocast::set_autocast_enabled(at::kCUDA, state.cuda);
  at::autocast::set_autocast_dtype(at::kCPU, cpu_autocast_dtype);
  at::autocast::set_autocast_dtype(at::kCUDA, cuda_autocast_dtype);
  at::autocast::set_autocast_cache_enabled(autocast_cache);
}

uint64_t metadata_switches() {
  const at::Context& context = at::globalContext();
  uint64_t word = static_cast<uint64_t>(c10::get_default_dtype_as_scalartype());
  word = word << 1 | static_cast<uint64_t>(context.userEnabledMkldnn());
  word = word << 1 | static_cast<uint64_t>(context.deterministicAlgorithms());
  word = word << 1 | static_cast<uint64_t>(c10::GradMode::is_enabled());
  return word << 32 | static_cast<uint64_t>(at::get_num_threads());
}

}  // namespace tandem::libtorch
