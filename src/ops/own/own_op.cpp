#include "ops/own/own_op.h"

namespace tandem::ops {

const c10::OperatorHandle& OwnOp::handle() const {
  const c10::OperatorHandle* known = handle_.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  const auto* found =
      new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name_, ""));
  if (handle_.compare_exchange_strong(known, found, std::memory_order_acq_rel)) return *found;
  delete found;  // another thread was first
  return *known;
}

}  // namespace tandem::ops
