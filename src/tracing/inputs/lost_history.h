#pragma once

#include <ATen/core/Tensor.h>

namespace tandem::tracing {

/// Makes autograd take the tensor for a view of one that needs no gradient, as it does with a leaf
/// that is a view: what is taken of the leaf is a view of that other tensor, too. Without grad mode
/// such a view needs no gradient, and if it is written, autograd has nothing to say.
void set_apart(const at::Tensor& tensor);
/// Whether it is a view of such a leaf, and the memory was written since: no gradient gets through.
bool leads_nowhere(const at::Tensor& tensor);
/// For a view of a tensor that needs a gradient: the function may switch that off after it has
/// written the memory. Outside, such a view requires grad and leads nowhere; libtorch, which takes
/// views in a trace again by their own ops, would find no history.
void keep_view_without_base(const at::Tensor& view);

}  // namespace tandem::tracing
