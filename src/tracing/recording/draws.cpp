#include "tracing/recording/draws.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace tandem::tracing {
namespace {

at::Tensor bernoulli_like(const at::Tensor& x, double p,
                          const std::optional<at::Generator>& generator) {
  return at::empty_like(x).bernoulli_(p, generator);
}

at::Tensor bernoulli_like_meta(const at::Tensor& x, double, const std::optional<at::Generator>&) {
  return at::empty_like(x);
}

at::Tensor exchange_state(const at::Tensor& state, const std::optional<at::Generator>& named) {
  at::Generator generator =
      named && named->defined() ? *named : at::globalContext().defaultGenerator(at::kCPU);
  std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state);
  return before;
}

at::Tensor exchange_state_meta(const at::Tensor& state, const std::optional<at::Generator>&) {
  return at::empty_like(state);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tandem, library) {
  library.def("bernoulli_like(Tensor x, float p, *, Generator? generator=None) -> Tensor",
              {at::Tag::nondeterministic_seeded});
  library.impl("bernoulli_like", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                 TORCH_FN(bernoulli_like)));
  library.impl("bernoulli_like",
               torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(bernoulli_like_meta)));
  library.def("exchange_generator_state(Tensor state, *, Generator? generator=None) -> Tensor",
              {at::Tag::nondeterministic_seeded});
  library.impl(
      "exchange_generator_state",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(exchange_state)));
  library.impl("exchange_generator_state",
               torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(exchange_state_meta)));
}

at::Tensor exchange_generator_state(const at::Tensor& state,
                                    const std::optional<at::Generator>& generator) {
  static const auto exchange =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("tandem::exchange_generator_state", "")
          .typed<at::Tensor(const at::Tensor&, const std::optional<at::Generator>&)>();
  return exchange.call(state, generator);
}

bool is_bernoulli(const c10::OperatorHandle& op) {
  static const auto bernoulli =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::bernoulli", "p");
  return op == bernoulli;
}

const c10::OperatorHandle& bernoulli_to_record(const c10::OperatorHandle& op, const at::Tensor& x) {
  static const auto like =
      c10::Dispatcher::singleton().findSchemaOrThrow("tandem::bernoulli_like", "");
  return x.is_contiguous() ? op : like;
}

}  // namespace tandem::tracing
