#pragma once

#include "conformance/program.h"

#include <utility>
#include <vector>

/// Arguments of the usual kinds. Each list of sizes is one argument.
namespace tandem::conformance {

using Sizes = std::vector<std::vector<int64_t>>;
using MakeInputs = std::function<Inputs()>;

inline at::Tensor leaf(at::IntArrayRef sizes, bool requires_grad = true) {
  return torch::randn(sizes).set_requires_grad(requires_grad);
}

/// Leaves that require grad, passed as they are.
inline MakeInputs leaves(Sizes sizes) {
  return [sizes = std::move(sizes)] {
    Inputs inputs;
    for (const auto& size : sizes) inputs.leaves.push_back(leaf(size));
    inputs.arguments = inputs.leaves;
    return inputs;
  };
}

/// Results of an op on leaves: they require grad and may be written in place.
inline MakeInputs non_leaves(Sizes sizes) {
  return [sizes = std::move(sizes)] {
    Inputs inputs;
    for (const auto& size : sizes) {
      inputs.leaves.push_back(leaf(size));
      inputs.arguments.push_back(inputs.leaves.back() * 1.5);
    }
    return inputs;
  };
}

/// Tensors that do not require grad.
inline MakeInputs plain(Sizes sizes) {
  return [sizes = std::move(sizes)] {
    Inputs inputs;
    for (const auto& size : sizes) inputs.arguments.push_back(torch::randn(size));
    return inputs;
  };
}

/// Runs its argument without grad mode: for `Settings::around`.
inline void in_no_grad_mode(const std::function<void()>& body) {
  const torch::NoGradGuard no_grad;
  body();
}

}  // namespace tandem::conformance
