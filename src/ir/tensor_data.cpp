#include "ir/tensor_data.h"

#include "base/error.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/ScalarType.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tandem::ir {
namespace {

/// Unsigned integer as wide as a floating type.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
void append_number(std::string& out, T number) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), number).ptr;
  out.append(buffer, end);
}

/// `bits` are those of the dtype, `width` their number: a NaN shows them unless it is the usual
/// one.
void append_nan(std::string& out, uint64_t bits, uint64_t usual, int digits) {
  out += "nan";
  if (bits == usual) return;
  out += "(0x";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += "0123456789abcdef"[bits >> shift & 15];
  out += ')';
}

template <class T>
void append_finite_or_inf(std::string& out, T number) {
  if (std::isinf(number)) {
    out += number < 0 ? "-inf" : "inf";
    return;
  }
  size_t start = out.size();
  append_number(out, number);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

/// T: float or double, or a small type that converts to float exactly and keeps its bits in `x`.
template <class T>
void append_real(std::string& out, T number) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(number)) {
      append_nan(out, std::bit_cast<Bits<T>>(number),
                 std::bit_cast<Bits<T>>(std::numeric_limits<T>::quiet_NaN()), 2 * sizeof(T));
    } else {
      append_finite_or_inf(out, number);
    }
  } else {
    auto wide = static_cast<float>(number);
    if (std::isnan(wide)) {
      append_nan(out, number.x, T(std::numeric_limits<float>::quiet_NaN()).x, 2 * sizeof(T));
    } else {
      append_finite_or_inf(out, wide);
    }
  }
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

template <class T>
bool read_number(std::string_view& text, T& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool read_nan_bits(std::string_view& text, uint64_t& bits) {
  std::string_view rest = text;
  if (!take(rest, "(0x")) return false;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), bits, 16);
  if (error != std::errc()) return false;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  if (!take(rest, ")")) return false;
  text = rest;
  return true;
}

template <class T>
bool read_real(std::string_view& text, T& number) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, T, float>;
  if (take(text, "nan")) {
    uint64_t bits = 0;
    if (!read_nan_bits(text, bits)) {
      number = T(std::numeric_limits<Wide>::quiet_NaN());
    } else if constexpr (std::is_floating_point_v<T>) {
      number = std::bit_cast<T>(static_cast<Bits<T>>(bits));
    } else {
      number = T(static_cast<decltype(number.x)>(bits), T::from_bits());
    }
    return true;
  }
  if (take(text, "-inf")) {
    number = T(-std::numeric_limits<Wide>::infinity());
    return true;
  }
  if (take(text, "inf")) {
    number = T(std::numeric_limits<Wide>::infinity());
    return true;
  }
  Wide wide = 0;
  std::string_view digits = text;
  // from_chars also knows words of its own for these; here they are written as above only.
  take(digits, "-");
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return false;
  if (!read_number(text, wide)) return false;
  number = T(wide);
  return true;
}

template <class T>
T load(const std::byte* element) {
  T number;
  std::memcpy(&number, element, sizeof(T));
  return number;
}

template <class T>
bool store(std::byte* element, const T& number) {
  std::memcpy(element, &number, sizeof(T));
  return true;
}

template <class T>
void append_complex(std::string& out, const std::byte* element) {
  out += '(';
  append_real(out, load<T>(element));
  out += ", ";
  append_real(out, load<T>(element + sizeof(T)));
  out += ')';
}

template <class T>
bool read_complex(std::string_view& text, std::byte* element) {
  T real{};
  T imaginary{};
  if (!take(text, "(") || !read_real(text, real) || !take(text, ",")) return false;
  while (take(text, " ")) {
  }
  if (!read_real(text, imaginary) || !take(text, ")")) return false;
  return store(element, real) && store(element + sizeof(T), imaginary);
}

/// Calls fn(std::type_identity<T>) with the C++ type of a real dtype; false if it has none here.
template <class Fn>
bool with_real_type(c10::ScalarType dtype, Fn&& fn) {
  switch (dtype) {
    case c10::ScalarType::Half:
      return fn(std::type_identity<c10::Half>());
    case c10::ScalarType::BFloat16:
      return fn(std::type_identity<c10::BFloat16>());
    case c10::ScalarType::Float:
      return fn(std::type_identity<float>());
    case c10::ScalarType::Double:
      return fn(std::type_identity<double>());
    case c10::ScalarType::Float8_e5m2:
      return fn(std::type_identity<c10::Float8_e5m2>());
    case c10::ScalarType::Float8_e4m3fn:
      return fn(std::type_identity<c10::Float8_e4m3fn>());
    case c10::ScalarType::Float8_e5m2fnuz:
      return fn(std::type_identity<c10::Float8_e5m2fnuz>());
    case c10::ScalarType::Float8_e4m3fnuz:
      return fn(std::type_identity<c10::Float8_e4m3fnuz>());
    case c10::ScalarType::Float8_e8m0fnu:
      return fn(std::type_identity<c10::Float8_e8m0fnu>());
    default:
      return false;
  }
}

template <class Fn>
bool with_integer_type(c10::ScalarType dtype, Fn&& fn) {
  switch (dtype) {
    case c10::ScalarType::Byte:
      return fn(std::type_identity<uint8_t>());
    case c10::ScalarType::Char:
      return fn(std::type_identity<int8_t>());
    case c10::ScalarType::Short:
      return fn(std::type_identity<int16_t>());
    case c10::ScalarType::Int:
      return fn(std::type_identity<int32_t>());
    case c10::ScalarType::Long:
      return fn(std::type_identity<int64_t>());
    case c10::ScalarType::UInt16:
      return fn(std::type_identity<uint16_t>());
    case c10::ScalarType::UInt32:
      return fn(std::type_identity<uint32_t>());
    case c10::ScalarType::UInt64:
      return fn(std::type_identity<uint64_t>());
    default:
      return false;
  }
}

bool has_text(c10::ScalarType dtype) {
  auto yes = [](auto) { return true; };
  return dtype == c10::ScalarType::Bool || c10::isComplexType(dtype) ||
         with_real_type(dtype, yes) || with_integer_type(dtype, yes);
}

/// Calls fn with the byte offset of every element, in row-major order.
template <class Fn>
void for_each_offset(at::IntArrayRef sizes, at::IntArrayRef strides, size_t item_bytes, Fn&& fn) {
  for (int64_t size : sizes) {
    if (size == 0) return;
  }
  std::vector<int64_t> index(sizes.size(), 0);
  int64_t offset = 0;
  while (true) {
    fn(offset * static_cast<int64_t>(item_bytes));
    size_t dim = sizes.size();
    while (dim > 0) {
      --dim;
      offset += strides[dim];
      if (++index[dim] < sizes[dim]) break;
      offset -= sizes[dim] * strides[dim];
      index[dim] = 0;
      if (dim == 0) return;
    }
    if (sizes.empty()) return;
  }
}

}  // namespace

TensorType type_of(const at::Tensor& tensor) {
  TensorType type;
  type.dtype = tensor.scalar_type();
  type.device = tensor.device();
  type.layout = tensor.layout();
  at::IntArrayRef sizes = tensor.sizes();
  type.sizes.assign(sizes.begin(), sizes.end());
  if (type.layout == c10::Layout::Strided) {
    at::IntArrayRef strides = tensor.strides();
    type.strides.assign(strides.begin(), strides.end());
  }
  return type;
}

Type constant_type(const at::Tensor& tensor) {
  TANDEM_CHECK(tensor.defined(), "ir", "a constant cannot be an undefined tensor");
  TensorType type = type_of(tensor);
  if (type.layout != c10::Layout::Strided || !has_text(type.dtype) || tensor.is_conj() ||
      tensor.is_neg() || tensor.is_meta() || !tensor.has_storage()) {
    TANDEM_UNSUPPORTED(
        "ir", "a constant of type ", to_string(type),
        tensor.is_conj() || tensor.is_neg() ? " that is a lazy conjugate or negation" : "",
        " cannot be part of a graph\n"
        "  remedy: pass it as an argument of the function");
  }
  return type;
}

std::vector<std::byte> constant_bytes(const at::Tensor& tensor) {
  at::Tensor host = tensor.device().is_cpu() ? tensor : tensor.cpu();
  size_t item_bytes = host.element_size();
  std::vector<std::byte> bytes(static_cast<size_t>(host.numel()) * item_bytes);
  if (bytes.empty()) return bytes;
  auto* data = static_cast<const std::byte*>(host.const_data_ptr());
  if (host.is_contiguous()) {
    std::memcpy(bytes.data(), data, bytes.size());
    return bytes;
  }
  std::byte* out = bytes.data();
  for_each_offset(host.sizes(), host.strides(), item_bytes, [&](int64_t offset) {
    std::memcpy(out, data + offset, item_bytes);
    out += item_bytes;
  });
  return bytes;
}

at::Tensor constant_from_bytes(const TensorType& type, std::span<const std::byte> bytes) {
  std::vector<int64_t> sizes = type.static_sizes();
  std::vector<int64_t> strides = type.static_strides();
  at::Tensor host(at::detail::empty_strided_cpu(sizes, strides, type.dtype));
  size_t item_bytes = host.element_size();
  TANDEM_CHECK(bytes.size() == static_cast<size_t>(host.numel()) * item_bytes, "ir", bytes.size(),
               " bytes for a constant of type ", to_string(type));
  auto* data = static_cast<std::byte*>(host.mutable_data_ptr());
  const std::byte* in = bytes.data();
  for_each_offset(sizes, strides, item_bytes, [&](int64_t offset) {
    std::memcpy(data + offset, in, item_bytes);
    in += item_bytes;
  });
  return type.device.is_cpu() ? host : host.to(type.device);
}

void append_element(std::string& out, c10::ScalarType dtype, const std::byte* element) {
  switch (dtype) {
    case c10::ScalarType::Bool:
      out += load<uint8_t>(element) != 0 ? "true" : "false";
      return;
    case c10::ScalarType::ComplexHalf:
      append_complex<c10::Half>(out, element);
      return;
    case c10::ScalarType::ComplexFloat:
      append_complex<float>(out, element);
      return;
    case c10::ScalarType::ComplexDouble:
      append_complex<double>(out, element);
      return;
    default:
      break;
  }
  bool done = with_integer_type(dtype, [&]<class T>(std::type_identity<T>) {
    append_number(out, load<T>(element));
    return true;
  });
  done = done || with_real_type(dtype, [&]<class T>(std::type_identity<T>) {
           append_real(out, load<T>(element));
           return true;
         });
  TANDEM_CHECK(done, "ir", "no text for elements of dtype ", dtype_name(dtype));
}

bool read_element(std::string_view& text, c10::ScalarType dtype, std::byte* element) {
  switch (dtype) {
    case c10::ScalarType::Bool:
      if (take(text, "true")) return store<uint8_t>(element, 1);
      if (take(text, "false")) return store<uint8_t>(element, 0);
      return false;
    case c10::ScalarType::ComplexHalf:
      return read_complex<c10::Half>(text, element);
    case c10::ScalarType::ComplexFloat:
      return read_complex<float>(text, element);
    case c10::ScalarType::ComplexDouble:
      return read_complex<double>(text, element);
    default:
      break;
  }
  return with_integer_type(dtype,
                           [&]<class T>(std::type_identity<T>) {
                             T number = 0;
                             return read_number(text, number) && store(element, number);
                           }) ||
         with_real_type(dtype, [&]<class T>(std::type_identity<T>) {
           T number{};
           return read_real(text, number) && store(element, number);
         });
}

void append_float(std::string& out, double number) { append_real(out, number); }

bool read_float(std::string_view& text, double& number) { return read_real(text, number); }

}  // namespace tandem::ir
