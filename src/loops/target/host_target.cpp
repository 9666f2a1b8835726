#include "loops/target/host_target.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

namespace tandem::loops {

at::DataPtr HostTarget::allocate(size_t bytes) const {
  return c10::GetCPUAllocator()->allocate(bytes);
}

at::Tensor HostTarget::empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                     c10::ScalarType dtype) const {
  return at::detail::empty_strided_cpu(sizes, strides, dtype);
}

c10::Stream HostTarget::stream() const {
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
}

}  // namespace tandem::loops
