#include "libtorch/error_texts.h"

namespace tandem::libtorch {
namespace {

constexpr ErrorText kTexts[] = {
    // `data_ptr<float>()`; `data_ptr()` and `storage().data()`
    {ErrorMeaning::ReadsData, "data is not allocated yet"},
    {ErrorMeaning::ReadsData, "Cannot access data pointer"},
    // an op with a write in its schema and no kernel for functionalization
    {ErrorMeaning::UnfollowedWrite, "only support functionalizing operators"},
    // as_strided of a view; as_strided of a tensor that requires grad and is not contiguous
    {ErrorMeaning::UnfollowedView, "as_strided() is non-compositional"},
    {ErrorMeaning::UnfollowedView, "as_strided_scatter is currently only supported for contiguous"},
    {ErrorMeaning::OldMemory, "cannot mutate tensors with frozen storage"},
    {ErrorMeaning::GrowingView, "Attempted to resize a view tensor to a larger size"},
    {ErrorMeaning::KernelRefuses, "\" not implemented for '"},
    {ErrorMeaning::KernelRefuses, "value cannot be converted to type"},
    {ErrorMeaning::KernelRefuses, "are out of bounds for storage of size"},
    {ErrorMeaning::InferenceView, "version_counter for inference tensor"},
};

}  // namespace

std::span<const ErrorText> error_texts() { return kTexts; }

std::optional<ErrorMeaning> meaning_of(std::string_view text) {
  for (const ErrorText& one : kTexts) {
    if (text.find(one.words) != std::string_view::npos) return one.meaning;
  }
  return std::nullopt;
}

}  // namespace tandem::libtorch
