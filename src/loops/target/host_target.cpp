#include "loops/target/host_target.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

namespace tandem::loops {

at::DataPtr HostTarget::allocate(size_t bytes, c10::Device) const {
  return c10::GetCPUAllocator()->allocate(bytes);
}

at::Tensor HostTarget::empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                     c10::ScalarType dtype, c10::Device) const {
  return at::detail::empty_strided_cpu(sizes, strides, dtype);
}

c10::Stream HostTarget::stream(c10::Device device) const {
  return c10::Stream(c10::Stream::DEFAULT, device);
}

}  // namespace tandem::loops
