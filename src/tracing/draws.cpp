#include "tracing/draws.h"

#include "ops/own/bernoulli_like.h"
#include "ops/own/exchange_generator_state.h"

namespace tandem::tracing {

at::Tensor exchange_generator_state(const at::Tensor& state,
                                    const std::optional<at::Generator>& generator) {
  static const auto exchange =
      ops::kExchangeGeneratorState.handle()
          .typed<at::Tensor(const at::Tensor&, const std::optional<at::Generator>&)>();
  return exchange.call(state, generator);
}

bool is_bernoulli(const c10::OperatorHandle& op) {
  static const auto bernoulli =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::bernoulli", "p");
  return op == bernoulli;
}

const c10::OperatorHandle& bernoulli_to_record(const c10::OperatorHandle& op, const at::Tensor& x) {
  return x.is_contiguous() ? op : ops::kBernoulliLike.handle();
}

}  // namespace tandem::tracing
