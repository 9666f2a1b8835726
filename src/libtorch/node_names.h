#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tandem::libtorch {

// Autograd nodes and hooks whose classes no header shows, or that are templates of the user's:
// known by name.

/// The node of a `torch::autograd::Function` of the user.
inline bool is_custom_function(const torch::autograd::Node& node) {
  return node.name().find("CppNode") != std::string::npos;
}

/// Whether such a node turns a gradient that is not there into zeros before its formula runs:
/// `set_materialize_grads`.
bool materializes_gradients(const torch::autograd::Node& custom);

/// What such a node has saved with `save_for_backward`, as it was handed over; nothing where the
/// user's hooks have packed it.
std::vector<at::Tensor> saved_tensors(const torch::autograd::Node& custom);

/// Of a hook that a tensor was given: which of its node's gradients it is called with.
std::optional<size_t> gradient_of_hook(const torch::autograd::FunctionPreHook& hook);

/// libtorch's own formula for the derivative of one of its formulas.
inline bool is_formula_of_formula(const torch::autograd::Node& node) {
  return node.name().find("BackwardBackward") != std::string::npos;
}

/// libtorch's own formula for the derivative of a determinant.
inline bool is_det_formula(const torch::autograd::Node& node) {
  return node.name() == "LinalgDetBackward0";
}

/// libtorch's own formula for the derivative of the largest, smallest or middle element of a
/// tensor, which gives each element that is equal to it its share.
inline bool is_formula_of_shares(const torch::autograd::Node& node) {
  const std::string name = node.name();
  return name == "MaxBackward1" || name == "MinBackward1" || name == "MedianBackward0" ||
         name == "NanmedianBackward0";
}

}  // namespace tandem::libtorch
