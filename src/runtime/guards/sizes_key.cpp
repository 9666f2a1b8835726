#include "runtime/guards/sizes_key.h"

#include "shapes/stable_hash.h"

#include <ATen/core/Tensor.h>

namespace tandem::runtime {

uint64_t sizes_key(const detail::Flat& arguments) {
  shapes::StableHash hash;
  for (const detail::Constant& constant : arguments.constants) {
    if (const auto* integer = std::get_if<int64_t>(&constant)) {
      hash.add(static_cast<uint64_t>(*integer));
    } else if (const auto* number = std::get_if<double>(&constant)) {
      hash.add_double(*number);
    }
  }
  for (const at::Tensor& tensor : arguments.tensors) {
    // A nested tensor has no sizes to ask for; no variant serves one.
    if (!tensor.defined() || tensor.is_nested()) continue;
    for (int64_t size : tensor.sizes()) hash.add(static_cast<uint64_t>(size));
  }
  return hash.value();
}

}  // namespace tandem::runtime
