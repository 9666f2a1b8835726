#pragma once

#include "loops/target/target.h"

namespace tandem::loops {

/// The CPU: memory of this process, and work that is done when a call returns.
class HostTarget : public Target {
 public:
  HostTarget() : Target(c10::DeviceType::CPU) {}

  at::DataPtr allocate(size_t bytes, c10::Device device) const override;
  at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype,
                           c10::Device device) const override;
  c10::Stream stream(c10::Device device) const override;
};

}  // namespace tandem::loops
