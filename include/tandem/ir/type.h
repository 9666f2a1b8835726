#pragma once

#include "tandem/export.h"
#include "tandem/shapes/size.h"

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::ir {

using shapes::Size;

/// Everything about a tensor but its data: what a backend may rely on.
struct TANDEM_API TensorType {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  c10::Layout layout = c10::Layout::Strided;
  std::vector<Size> sizes;
  std::vector<Size> strides;  // as many as sizes

  /// With row-major strides.
  static TensorType contiguous(c10::ScalarType dtype, std::vector<Size> sizes,
                               c10::Device device = c10::Device(c10::DeviceType::CPU));

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  bool is_static() const;
  bool is_contiguous() const;
  Size numel() const;
  /// Of the elements, numel times element size; sizes must be constant.
  int64_t bytes() const;
  /// Constant sizes and strides as plain integers; an InternalError on a symbol.
  std::vector<int64_t> static_sizes() const;
  std::vector<int64_t> static_strides() const;

  friend TANDEM_API bool operator==(const TensorType& a, const TensorType& b);
  uint64_t hash() const;
};

/// Types are immutable and shared: a graph holds few different ones.
using TypePtr = std::shared_ptr<const TensorType>;

/// What flows along a value: a tensor, or a number that is computed at run time.
enum class TypeKind : uint8_t { Tensor, Int, Float, Bool };

struct TANDEM_API Type {
  TypeKind kind = TypeKind::Tensor;
  TypePtr tensor;  // set exactly if kind is Tensor

  Type() = default;
  Type(TypePtr type) : tensor(std::move(type)) {}  // NOLINT: a tensor type is a type
  Type(TensorType type) : tensor(std::make_shared<const TensorType>(std::move(type))) {}  // NOLINT
  static Type of(TypeKind kind);

  friend TANDEM_API bool operator==(const Type& a, const Type& b);
};

/// `f32[32, 512]`, `cuda:0 f32[4]`, `f32[512, 512] (1, 512)`; `int`, `float`, `bool`.
TANDEM_API std::string to_string(const TensorType& type);
TANDEM_API std::string to_string(const Type& type);
/// `f32`, `i64`, `bool`, ... for a dtype; and back: a UserError names the legal ones.
TANDEM_API std::string dtype_name(c10::ScalarType dtype);
TANDEM_API c10::ScalarType parse_dtype(std::string_view name);

}  // namespace tandem::ir
