#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>

namespace tandem::runtime {

/// What eager raises when a tensor that the backward needs was written after the forward. `origin`
/// leads to the node that made it, or nowhere.
[[noreturn]] void throw_modified(const at::Tensor& tensor, torch::autograd::Edge origin,
                                 uint32_t version, uint32_t expected);

/// The number that eager compares before a backward reads a tensor. An inference tensor has none:
/// eager's error says that it cannot be saved.
uint32_t version_to_save(const at::Tensor& tensor);

/// Raises if the tensor was written since its version was read, or, of a tensor that had a history,
/// if that was taken from it.
void check_saved(const at::Tensor& tensor, uint32_t version, bool had_history);

}  // namespace tandem::runtime
