#pragma once

#include <torch/csrc/autograd/function.h>

namespace tandem::libtorch {

// Autograd nodes whose classes no header shows, or that are templates of the user's: known by name.

/// The node of a `torch::autograd::Function` of the user.
inline bool is_custom_function(const torch::autograd::Node& node) {
  return node.name().find("CppNode") != std::string::npos;
}

/// libtorch's own formula for the derivative of a determinant.
inline bool is_det_formula(const torch::autograd::Node& node) {
  return node.name() == "LinalgDetBackward0";
}

}  // namespace tandem::libtorch
