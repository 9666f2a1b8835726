#pragma once

#include <ATen/FunctionalStorageImpl.h>

#include <memory>
#include <vector>

namespace at {
struct FunctionalTensorWrapper;
}

namespace tandem::libtorch {

/// View ops whose inverse in libtorch is not exact, and those that read the numbers in memory in
/// another way (conjugated, negated, as parts of complex ones, as another dtype): known by the
/// names of classes that no header shows.
enum class ViewOp { Expand, Unfold, ReadsOtherwise, Other };
ViewOp view_op_of(const at::functionalization::ViewMeta& view);

using ViewMetaPtr = std::shared_ptr<at::functionalization::ViewMeta>;

/// By which views functionalization gets from the base to a tensor, from the first on. For
/// exchanging one: no member function of the tensor does.
std::vector<ViewMetaPtr>& views_of(at::FunctionalTensorWrapper& tensor);

}  // namespace tandem::libtorch
