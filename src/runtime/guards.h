#pragma once

#include "runtime/module_guard.h"
#include "runtime/tensor_guard.h"
#include "runtime/thread_state.h"
#include "runtime/value_guard.h"
#include "tandem/function.h"
#include "tandem/ir/signature.h"

#include <optional>
#include <string>
#include <vector>

namespace tandem::runtime {

/// When an entry may serve a call: thread state, constants, arguments, lifted tensors, aliasing
/// between them, modules, and what the user named in the options.
class Guards {
 public:
  /// Before a compile: everything but what the trace finds. A failed compile is remembered by it.
  /// `names` say what to call the arguments, one per tensor.
  Guards(const ThreadState& thread, const detail::Flat& arguments, std::vector<std::string> names,
         const Options& options);
  /// After the trace: what it found, and the arguments that it ran on.
  void add_trace(std::vector<at::Tensor> lifted, const ir::Signature& signature,
                 const detail::Flat& arguments);

  /// Nothing if the entry may serve; else which guard failed, with both values.
  std::optional<std::string> mismatch(const ThreadState& thread,
                                      const detail::Flat& arguments) const;
  /// In checking order.
  std::vector<std::string> texts() const;

 private:
  std::optional<std::string> lifted_mismatch() const;
  std::optional<std::string> alias_mismatch(const detail::Flat& arguments) const;
  std::optional<std::string> value_mismatch(const detail::Flat& arguments) const;

  ThreadState thread_;
  std::vector<detail::Constant> constants_;
  std::vector<TensorGuard> arguments_;
  std::vector<std::string> names_;
  std::vector<int64_t>
      first_same_;  // per argument: the first argument that is the same tensor object
  ModuleGuard modules_;
  std::vector<const at::Tensor*> handles_;
  std::vector<const c10::TensorImpl*> handle_targets_;
  GuardFn guard_on_;
  std::optional<GuardFn::Value> guard_value_;

  std::vector<at::Tensor> lifted_;
  std::vector<std::string> lifted_names_;
  std::vector<TensorGuard> lifted_guards_;
  std::vector<std::vector<size_t>> shared_storage_;  // groups of lifted tensors on one storage
  std::vector<size_t> written_lifted_, written_arguments_;
  /// An argument that the function also closes over. Weak: arguments are not kept, and an address
  /// that is watched is not used again.
  struct ClosedOver {
    size_t argument;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  };
  std::vector<ClosedOver> closed_over_;
  std::vector<ValueGuard> values_;
};

}  // namespace tandem::runtime
