#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::runtime {

/// How the arguments of a call lie in the memory of each other and of closed-over tensors, and
/// which of them autograd knows to be related. A refusal may depend on that.
class MemoryPattern {
 public:
  MemoryPattern() = default;
  /// Undefined tensors share memory with nobody.
  MemoryPattern(std::span<const at::Tensor> closed_over, std::span<const at::Tensor> arguments);

  friend bool operator==(const MemoryPattern&, const MemoryPattern&) = default;

 private:
  /// Two tensors on one storage. Where they do not overlap, their distance does not matter.
  struct Pair {
    size_t argument = 0, other = 0;  // `other` counts closed-over tensors first
    bool overlap = false, one_root = false, one_counter = false;
    int64_t bytes_apart = 0;

    friend bool operator==(const Pair&, const Pair&) = default;
  };
  std::vector<Pair> pairs_;
};

/// What a trace may record in another way for arguments that one entry serves all the same: how
/// they lie in memory, which of them are views, and where these begin.
class ArgumentPlaces {
 public:
  ArgumentPlaces() = default;
  ArgumentPlaces(std::span<const at::Tensor> closed_over, std::span<const at::Tensor> arguments);

  friend bool operator==(const ArgumentPlaces&, const ArgumentPlaces&) = default;

 private:
  MemoryPattern pattern_;
  std::vector<bool> is_view_;  // by argument
};

}  // namespace tandem::runtime
