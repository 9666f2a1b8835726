#pragma once

#include "pipeline/verify/difference.h"
#include "runtime/artifact.h"
#include "tracing/recording/user_call.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace tandem::pipeline {

/// The ops that a function called when it was compiled, and those that it calls now; and the
/// tensors from outside that they read, in the order in which they were met.
struct Calls {
  const std::vector<runtime::CallRow>& compiled;
  const std::vector<tracing::UserCall>& now;
  const std::vector<at::Tensor>& lifted;
  const std::vector<at::Tensor>& lifted_now;
  const std::vector<std::string>& lifted_names;  // of parameters and buffers; else empty
};

/// The first difference in what is called, with which settings, on which tensors from outside;
/// nothing if there is none.
std::optional<Difference> call_difference(const Calls& calls);

/// Whether a function that is as it was may meet the one where it met the other: `.data()` gives
/// another tensor on the same memory each time.
bool are_one(const at::Tensor& compiled, const at::Tensor& now);

}  // namespace tandem::pipeline
