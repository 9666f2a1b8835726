#include "runtime/backward/gradient_functions.h"

#include "base/error.h"
#include "ir/gradient_arguments.h"

namespace tandem::runtime {

void GradientFunctions::require_function() const {
  if (can_make()) return;
  if (was_loaded_) {
    TANDEM_UNSUPPORTED("call", ir::name_of_backward(),
                       " traces the function again, and an entry that was loaded does not have it",
                       "\n  instead: backward without create_graph works",
                       "\n  remedy: compile the function in this process");
  }
  TANDEM_REQUIRE(false, "call", ir::name_of_backward(),
                 " needs the arguments of the call, which were not kept\n  remedy: leave "
                 "Options::higher_order on; a graph that was lowered by "
                 "itself has no gradients of gradients: compile the function");
}

std::shared_ptr<detail::CompiledFunction> GradientFunctions::get(const EntryState& entry,
                                                                 const WantedGradients& wanted) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<detail::CompiledFunction>& function = functions_[wanted];
  if (!function) function = compiler_->compile_gradients(entry, wanted);
  return function;
}

}  // namespace tandem::runtime
