#pragma once

#include <ATen/core/Tensor.h>

namespace tandem::signature {

/// The functional storage of a traced tensor: tensors that share it share memory.
inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace tandem::signature
