#include "joint/backward_writes.h"

#include "base/error.h"

#include <ATen/FunctionalTensorWrapper.h>

namespace tandem::joint {

BackwardWrites::BackwardWrites(const tracing::Trace& trace) : trace_(trace), before_(count()) {}

std::vector<uint64_t> BackwardWrites::count() const {
  std::vector<uint64_t> writes;
  for (const tracing::StandIn& one : trace_.stand_ins()) {
    writes.push_back(
        at::functionalization::impl::unsafeGetFunctionalWrapper(one.tensor)->mutation_counter());
  }
  return writes;
}

void BackwardWrites::check() const {
  const std::vector<uint64_t> now = count();
  for (size_t i = 0; i < before_.size(); ++i) {
    if (before_[i] == now[i]) continue;
    TANDEM_UNSUPPORTED("joint", "the backward (a hook or custom function) writes ",
                       trace_.name_of(trace_.stand_ins()[i]),
                       "\n  remedy: write it in the forward, or in a hook on a result of the "
                       "compiled function");
  }
}

}  // namespace tandem::joint
