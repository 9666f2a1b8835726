#include "libtorch/view_metas.h"

#include <ATen/FunctionalTensorWrapper.h>

#include <string_view>
#include <typeinfo>

namespace tandem::libtorch {

ViewOp view_op_of(const at::functionalization::ViewMeta& view) {
  const std::string_view name = typeid(view).name();
  const auto is = [name](std::string_view words) {
    return name.find(words) != std::string_view::npos;
  };
  if (is("functionalization15expand_ViewMeta")) return ViewOp::Expand;
  if (is("functionalization15unfold_ViewMeta")) return ViewOp::Unfold;
  for (const char* other : {"_conj_ViewMeta", "_neg_view_ViewMeta", "view_as_real_ViewMeta",
                            "view_as_complex_ViewMeta", "view_dtype_ViewMeta"}) {
    if (is(other)) return ViewOp::ReadsOtherwise;
  }
  return ViewOp::Other;
}

std::vector<ViewMetaPtr>& views_of(at::FunctionalTensorWrapper& tensor) {
  // The vector itself is no constant; the tensor is ours.
  return const_cast<std::vector<ViewMetaPtr>&>(tensor.view_metas());
}

}  // namespace tandem::libtorch
