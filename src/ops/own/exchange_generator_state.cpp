#include "ops/own/exchange_generator_state.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <mutex>

namespace tandem::ops {
namespace {

at::Tensor exchange(const at::Tensor& state, const std::optional<at::Generator>& named) {
  at::Generator generator =
      named && named->defined() ? *named : at::globalContext().defaultGenerator(at::kCPU);
  std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state);
  return before;
}

at::Tensor exchange_meta(const at::Tensor& state, const std::optional<at::Generator>&) {
  return at::empty_like(state);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("exchange_generator_state(Tensor state, *, Generator? generator=None) -> Tensor",
              {at::Tag::nondeterministic_seeded});
  library.impl("exchange_generator_state",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(exchange)));
  library.impl("exchange_generator_state",
               torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(exchange_meta)));
}

constinit const OwnOp kExchangeGeneratorState{"tandem::exchange_generator_state"};

}  // namespace tandem::ops
