#pragma once

#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

/// Members of libtorch's classes that have no accessor which is cheap enough for every parameter of
/// every call. Reading only. Like version.h the place to look when libtorch changes.
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

struct DtypeOfTensor {
  using Member = caffe2::TypeMeta c10::TensorImpl::*;
  friend constexpr Member member_of(DtypeOfTensor);
};
template struct Expose<DtypeOfTensor, &c10::TensorImpl::data_type_>;

struct KeysOfTensor {
  using Member = c10::DispatchKeySet c10::TensorImpl::*;
  friend constexpr Member member_of(KeysOfTensor);
};
template struct Expose<KeysOfTensor, &c10::TensorImpl::key_set_>;

/// Where a member lies in a tensor.
template <class Member>
size_t place_of(const c10::TensorImpl& tensor, Member member) {
  return static_cast<size_t>(reinterpret_cast<const std::byte*>(&(tensor.*member)) -
                             reinterpret_cast<const std::byte*>(&tensor));
}

/// Whether `traits` reads what it should: the dtype, then the rest, and then the keys.
[[maybe_unused]] inline bool has_traits(const c10::TensorImpl& tensor) {
  return place_of(tensor, member_of(DtypeOfTensor{})) + sizeof(uint64_t) ==
         place_of(tensor, member_of(KeysOfTensor{}));
}

/// Dtype, device and all the flags of a tensor, in one word: which accessors are overridden,
/// whether it is a wrapped number, whether sizes are symbolic, and what follows from sizes and
/// strides. The flags are bit fields, of which the last bit is nobody's
/// (in 2.11 and 2.13) and never written.
[[maybe_unused]] inline uint64_t traits(const c10::TensorImpl& tensor) {
  uint64_t word;
  std::memcpy(
      &word,
      reinterpret_cast<const std::byte*>(&tensor) + place_of(tensor, member_of(DtypeOfTensor{})),
      sizeof word);
  return word << 1;
}

/// Which version counter a tensor has; null: none. It is a pointer that no accessor shows.
[[maybe_unused]] inline const void* counter_of(const c10::TensorImpl& tensor) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  const void* counter = nullptr;
  std::memcpy(&counter, &tensor.version_counter(), sizeof counter);
  return counter;
}

/// Whether two tensors have one version counter together.
[[maybe_unused]] inline bool same_counter(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  const void* const counter = counter_of(a);
  return counter != nullptr && counter == counter_of(b);
}

}  // namespace

}  // namespace tandem::libtorch
