#pragma once

#include "tandem/ir/type.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The data of tensor constants. No function here goes through the dispatcher for a tensor in host
/// memory, so all of them may be called while a trace records what goes through the dispatcher.
namespace tandem::ir {

/// Constants of more elements are kept beside the text.
inline constexpr int64_t kInlineElements = 64;

/// Everything about `tensor` but its data. Sizes must be plain integers.
TensorType type_of(const at::Tensor& tensor);

/// The same, for a tensor that a graph is to hold; an UnsupportedError if it cannot be written as
/// text.
Type constant_type(const at::Tensor& tensor);

/// Elements in row-major order, whatever the strides.
std::vector<std::byte> constant_bytes(const at::Tensor& tensor);

/// The way back: a tensor of that type with these elements.
at::Tensor constant_from_bytes(const TensorType& type, std::span<const std::byte> bytes);

/// Appends one element: `1.5`, `-3`, `true`, `(1.0, -2.0)`.
void append_element(std::string& out, c10::ScalarType dtype, const std::byte* element);

/// Reads what append_element writes from the front of `text` and removes it; false if there is
/// none.
bool read_element(std::string_view& text, c10::ScalarType dtype, std::byte* element);

/// Shortest text that reads back as the same bits, with a point or exponent; `inf`, `nan`.
void append_float(std::string& out, double number);
bool read_float(std::string_view& text, double& number);

}  // namespace tandem::ir
