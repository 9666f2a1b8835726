#pragma once

#include "libtorch/thread_state.h"
#include "runtime/guards/alias_guard.h"
#include "runtime/guards/module_guard.h"
#include "runtime/guards/tensor_guard.h"
#include "runtime/guards/value_guard.h"
#include "tandem/function.h"
#include "tandem/ir/signature.h"
#include "tandem/stages.h"

#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem::runtime {

/// What guards watch beside arguments and lifted tensors: as the options name it.
struct Watched {
  std::vector<std::shared_ptr<torch::nn::Module>> modules{};
  std::vector<const at::Tensor*> closes_over{};
  GuardFn guard_on{};
  std::vector<at::Tensor> closed_over{};  // arguments that the function closes over
};

/// Other words for constants and for types of arguments: what holds at other sizes of an entry,
/// too. Empty: as they are in these guards.
struct VaryingWords {
  std::vector<std::string> constants{}, argument_types{};
};

/// When an entry may serve a call: thread state, constants, arguments, lifted tensors, aliasing
/// between them, modules, and what the user named in the options.
class Guards {
 public:
  /// Before a compile: everything but what the trace finds. A failed compile is remembered by it.
  /// `names` say what to call the arguments, one per tensor.
  Guards(const libtorch::ThreadState& thread, const detail::Flat& arguments,
         std::vector<std::string> names, const Options& options);
  /// After the trace: what it found, and the arguments that it ran on. Of `joint` the lifted
  /// tensors are one handle, the caller keeps it for the entry.
  void add_trace(const Joint& joint, const ir::Signature& signature, const detail::Flat& arguments);
  /// The function has counted places from the beginning of memory (`as_strided`).
  void watch_offsets(const detail::Flat& arguments);

  /// Guards of another process, on the objects of this one.
  Guards(const GuardRows& rows, const ir::Signature& signature, std::vector<at::Tensor> lifted,
         Watched watched);
  GuardRows rows() const;
  bool were_loaded() const { return were_loaded_; }

  const std::vector<detail::Constant>& constants() const { return constants_; }
  /// Tensors, undefined ones included.
  size_t argument_count() const { return arguments_.size(); }

  /// Whether the entry may serve: one pass, nothing allocated, no text made.
  bool hold(const libtorch::ThreadState& thread, const detail::Flat& arguments) const;
  /// The same question, answered with words: nothing, or which guard failed with both values.
  std::optional<std::string> mismatch(const libtorch::ThreadState& thread,
                                      const detail::Flat& arguments) const;
  /// How far a call is from the entry: how much differs of the thread's state, the arguments and
  /// the modules. Zero says nothing of the rest.
  size_t distance(const libtorch::ThreadState& thread, const detail::Flat& arguments) const;
  /// All that `distance` counts in one line; if it counts nothing, what `mismatch` says. Empty: the
  /// entry serves the call.
  std::string difference(const libtorch::ThreadState& thread, const detail::Flat& arguments) const;
  /// What a program can do so that calls like this one need no entry of their own.
  /// `sizes_may_vary`: an entry serves other sizes and numbers, too.
  const char* advice(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                     bool sizes_may_vary) const;
  /// Whether the two differ in no more than sizes, strides, offsets and the values of integers and
  /// floating-point numbers. Of guards of a call before its trace nothing that a trace adds counts.
  bool alike(const Guards& other) const;
  bool alike_before_trace(const Guards& other) const;
  /// Whether nothing that is known before a trace keeps the entry from serving the call, except
  /// integers and floating-point numbers among the constants. As quick as `hold`.
  bool hold_but_for_numbers(const libtorch::ThreadState& thread,
                            const detail::Flat& arguments) const;
  /// Of guards that are alike: in how many sizes, strides, offsets or numbers they differ.
  size_t differing_numbers(const Guards& other) const;
  /// Those tensors and numbers with what they are here: `argument 0 f32[7, 8], constant 1 is 4`.
  std::string other_numbers(const Guards& other) const;
  const std::vector<TensorGuard>& arguments() const { return arguments_; }
  const std::vector<std::string>& names() const { return names_; }
  /// The variants of an entry hold the same lifted tensors: how many they are is counted there, and
  /// told before the second one is used.
  void share_lifted(std::shared_ptr<const std::atomic<size_t>> variants) const {
    variants_ = std::move(variants);
  }
  /// No call can ever be served again. Ops were marked as effectful since, or the program has let
  /// go of a lifted tensor or a named module: its closure must refer to another one by now. Not
  /// every such case is seen: graphs of earlier calls count as owners, too.
  bool is_stale() const;
  /// In checking order.
  std::vector<std::string> texts(const VaryingWords& varying = {}) const;

 private:
  /// The one list of checks behind both: `fail` gets a function that makes the text of the first
  /// that fails, and returns false.
  template <class Fail>
  bool check(const libtorch::ThreadState& thread, const detail::Flat& arguments, Fail&& fail) const;
  bool has_structure_of(const detail::Flat& arguments) const;
  template <class Fail>
  bool check_lifted(Fail&& fail) const;
  template <class Fail>
  bool check_lifted_memory(Fail&& fail) const;
  template <class Fail>
  bool check_aliases(const detail::Flat& arguments, Fail&& fail) const;
  template <class Fail>
  bool check_offsets(const detail::Flat& arguments, Fail&& fail) const;
  template <class Fail>
  bool check_values(const detail::Flat& arguments, Fail&& fail) const;
  /// What follows from the signature.
  std::vector<std::string> add_signature(const ir::Signature& signature);
  void watch_lifted(std::vector<at::Tensor> lifted);
  void watch_variable(const at::Tensor* variable, std::string text);
  using Inputs = c10::SmallVector<const at::Tensor*, 64>;
  /// In the order of the signature.
  Inputs inputs_of(const detail::Flat& arguments) const;

  libtorch::ThreadState thread_;
  uint64_t effect_marks_;  // ops that are kept because they were marked
  std::vector<detail::Constant> constants_;
  std::vector<TensorGuard> arguments_;
  std::vector<std::string> names_;
  std::vector<int64_t>
      first_same_;  // per argument: the first argument that is the same tensor object
  ModuleGuard modules_;
  /// A variable of the user, and what it referred to. Weak: the trace may not have used the tensor,
  /// and an address that is watched is not used again.
  struct Handle {
    const at::Tensor* variable;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> target;
    std::string text;
  };
  std::vector<Handle> handles_;
  GuardFn guard_on_;
  std::optional<GuardFn::Value> guard_value_;

  std::vector<at::Tensor> lifted_;
  std::vector<const c10::TensorImpl*> sorted_lifted_;  // moves without allocating
  std::vector<std::string> lifted_names_;
  std::vector<TensorGuard> lifted_guards_;
  size_t holders() const { return variants_ ? variants_->load(std::memory_order_relaxed) : 1; }
  mutable std::shared_ptr<const std::atomic<size_t>> variants_;
  std::vector<uint8_t> owned_outside_;  // per lifted tensor, at the trace; `.data()` is not
  std::vector<std::vector<size_t>> shared_storage_;  // groups of lifted tensors on one storage
  std::vector<size_t> input_arguments_;  // per input behind the lifted ones: the argument it is
  std::vector<GroupRow> groups_;
  std::vector<int64_t> views_;
  AliasGuard aliases_;
  std::vector<int64_t> lifted_offsets_, argument_offsets_;  // empty: nothing depends on them
  /// An argument that the function also closes over. Weak: arguments are not kept, and an address
  /// that is watched is not used again.
  struct ClosedOver {
    size_t argument;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  };
  std::vector<ClosedOver> closed_over_;
  std::vector<ValueGuard> values_;
  bool were_loaded_ = false;
};

}  // namespace tandem::runtime
