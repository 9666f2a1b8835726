#include "libtorch/autocast_state.h"

#include <ATen/autocast_mode.h>

namespace tandem::libtorch {
namespace {

void set(c10::DeviceType device, bool enabled, c10::ScalarType dtype) {
  at::autocast::set_autocast_enabled(device, enabled);
  if (enabled) at::autocast::set_autocast_dtype(device, dtype);
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

AutocastScope::AutocastScope(const AutocastState& state)
    : before_(AutocastState::now()),
      cpu_dtype_(at::autocast::get_autocast_dtype(at::kCPU)),
      cuda_dtype_(at::autocast::get_autocast_dtype(at::kCUDA)),
      cache_(at::autocast::is_autocast_cache_enabled()) {
  set(at::kCPU, state.cpu, state.cpu_dtype);
  set(at::kCUDA, state.cuda, state.cuda_dtype);
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastScope::~AutocastScope() {
  at::autocast::set_autocast_dtype(at::kCPU, cpu_dtype_);
  at::autocast::set_autocast_dtype(at::kCUDA, cuda_dtype_);
  at::autocast::set_autocast_enabled(at::kCPU, before_.cpu);
  at::autocast::set_autocast_enabled(at::kCUDA, before_.cuda);
  at::autocast::set_autocast_cache_enabled(cache_);
}

}  // namespace tandem::libtorch
