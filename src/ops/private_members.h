#pragma once

#include <c10/core/TensorImpl.h>

#include <cstring>
#include <memory>

/// Members of libtorch's classes that have no accessor which is cheap enough for every parameter of
/// every call. Reading only. Like libtorch_version.h the place to look when libtorch changes.
namespace tandem::libtorch {

namespace {  // every file instantiates its own

/// Only an explicit instantiation may name a private member; it defines the function that the tag
/// declares.
template <class Tag, typename Tag::Member kMember>
struct Expose {
  friend constexpr typename Tag::Member member_of(Tag) { return kMember; }
};

struct AutogradMetaOfTensor {
  using Member = std::unique_ptr<c10::AutogradMetaInterface> c10::TensorImpl::*;
  friend constexpr Member member_of(AutogradMetaOfTensor);
};
template struct Expose<AutogradMetaOfTensor, &c10::TensorImpl::autograd_meta_>;

/// `TensorImpl::autograd_meta()`, which is a call into another library.
[[maybe_unused]] inline const c10::AutogradMetaInterface* autograd_meta(
    const c10::TensorImpl& tensor) {
  return (tensor.*member_of(AutogradMetaOfTensor{})).get();
}

/// Whether two tensors have one version counter together. It is a pointer that no accessor shows.
[[maybe_unused]] inline bool same_counter(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return a.version_counter().enabled() &&
         std::memcmp(&a.version_counter(), &b.version_counter(), sizeof(void*)) == 0;
}

}  // namespace

}  // namespace tandem::libtorch
