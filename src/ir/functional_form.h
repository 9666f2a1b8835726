#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace tandem::ir {

/// An op that computes what another one writes: `mylib::fill(Tensor(a!) x) -> ()` has the form
/// `tandem_functional::mylib__fill(Tensor x) -> Tensor`.
///
/// It copies what the op writes, calls the op on the copies and returns them after the op's own
/// results. So graphs stay functional whoever wrote the op.
struct FunctionalForm {
  c10::OperatorHandle form;
  c10::OperatorHandle original;
  std::vector<size_t> written;  // arguments, in order
  /// Per return of the original: the argument that it is, or -1 for a new tensor.
  std::vector<int64_t> returned;
};

/// The form of an op that writes arguments: made when first asked for, the same from then on. Null
/// if the op writes nothing, or if it also returns a view. Any thread.
const FunctionalForm* functional_form(const c10::OperatorHandle& op);

/// The form that an op is; null for any other op.
const FunctionalForm* find_form(const c10::OperatorHandle& form);

/// Makes the form that is called like this, if the op behind it exists.
std::optional<c10::OperatorHandle> form_called(const c10::OperatorName& name);

}  // namespace tandem::ir
