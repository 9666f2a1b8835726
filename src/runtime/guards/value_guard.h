#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tandem::runtime {

/// Two inputs that the function compared with `equal`: the entry serves calls in which the
/// comparison ends as it did at the trace. The only guard that reads data.
class ValueGuard {
 public:
  /// One side: a lifted tensor or an argument, and what to call it.
  struct Side {
    bool lifted = false;
    size_t index = 0;
    std::string name{};

    friend bool operator==(const Side&, const Side&) = default;
  };
  ValueGuard(Side a, Side b, bool equal) : a_(std::move(a)), b_(std::move(b)), equal_(equal) {}

  /// Both tensors have passed their own guards. The same tensor on both sides is not read.
  std::optional<std::string> mismatch(std::span<const at::Tensor> lifted,
                                      std::span<const at::Tensor> arguments) const;
  std::string to_string() const;
  friend bool operator==(const ValueGuard&, const ValueGuard&) = default;

 private:
  Side a_, b_;
  bool equal_;
};

}  // namespace tandem::runtime
