#include "tandem/ir/type.h"

#include "base/error.h"
#include "ir/text/words.h"
#include "shapes/stable_hash.h"

#include <algorithm>

namespace tandem::ir {
namespace {

std::vector<int64_t> constants(const std::vector<Size>& sizes) {
  std::vector<int64_t> numbers;
  numbers.reserve(sizes.size());
  for (const Size& size : sizes) numbers.push_back(size.value());
  return numbers;
}

void append_sizes(std::string& out, const std::vector<Size>& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) out += ", ";
    append_size(out, sizes[i]);
  }
}

}  // namespace

std::vector<Size> contiguous_strides(const std::vector<Size>& sizes) {
  std::vector<Size> strides(sizes.size());
  Size stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    // libtorch steps over an empty dimension as if it had one element.
    if (sizes[i].maybe_value() != 0) stride = stride * sizes[i];
  }
  return strides;
}

TensorType TensorType::contiguous(c10::ScalarType dtype, std::vector<Size> sizes,
                                  c10::Device device) {
  TensorType type;
  type.dtype = dtype;
  type.device = device;
  type.strides = contiguous_strides(sizes);
  type.sizes = std::move(sizes);
  return type;
}

bool TensorType::is_static() const {
  auto constant = [](const Size& size) { return size.is_constant(); };
  return std::all_of(sizes.begin(), sizes.end(), constant) &&
         std::all_of(strides.begin(), strides.end(), constant);
}

bool TensorType::is_contiguous() const {
  if (layout != c10::Layout::Strided || strides.size() != sizes.size()) return false;
  auto empty = [](const Size& size) { return size.maybe_value() == 0; };
  if (std::any_of(sizes.begin(), sizes.end(), empty)) return true;
  Size expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i].maybe_value() == 1) continue;  // nobody steps along it
    if (strides[i] != expected) return false;
    expected = expected * sizes[i];
  }
  return true;
}

Size TensorType::numel() const {
  Size product = 1;
  for (const Size& size : sizes) product = product * size;
  return product;
}

int64_t TensorType::bytes() const {
  return (numel() * Size(static_cast<int64_t>(c10::elementSize(dtype)))).value();
}

std::vector<int64_t> TensorType::static_sizes() const { return constants(sizes); }

std::vector<int64_t> TensorType::static_strides() const { return constants(strides); }

bool operator==(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.device == b.device && a.layout == b.layout && a.sizes == b.sizes &&
         a.strides == b.strides;
}

uint64_t TensorType::hash() const {
  shapes::StableHash hash;
  hash.add(static_cast<uint64_t>(dtype)).add(static_cast<uint64_t>(layout));
  hash.add(static_cast<uint64_t>(device.type())).add(static_cast<uint64_t>(device.index()));
  hash.add(sizes.size());
  for (const Size& size : sizes) hash.add(size.hash());
  hash.add(strides.size());
  for (const Size& stride : strides) hash.add(stride.hash());
  return hash.value();
}

Type Type::of(TypeKind kind) {
  TANDEM_CHECK(kind != TypeKind::Tensor, "ir", "a tensor type has more to it than its kind");
  Type type;
  type.kind = kind;
  return type;
}

bool operator==(const Type& a, const Type& b) {
  if (a.kind != b.kind) return false;
  if (a.tensor == b.tensor) return true;
  return a.tensor && b.tensor && *a.tensor == *b.tensor;
}

void append_type(std::string& out, const TensorType& type) {
  if (!type.device.is_cpu()) {
    out += type.device.str();
    out += ' ';
  }
  if (type.layout != c10::Layout::Strided) {
    out += layout_name(type.layout);
    out += ' ';
  }
  out += dtype_word(type.dtype);
  out += '[';
  append_sizes(out, type.sizes);
  out += ']';
  // Without strides, a strided tensor is contiguous and any other layout has none.
  bool implied = type.layout == c10::Layout::Strided
                     ? type.strides == contiguous_strides(type.sizes)
                     : type.strides.empty();
  if (implied) return;
  out += " (";
  append_sizes(out, type.strides);
  out += ')';
}

void append_type(std::string& out, const Type& type) {
  switch (type.kind) {
    case TypeKind::Tensor:
      if (type.tensor) {
        append_type(out, *type.tensor);
      } else {
        out += "untyped";
      }
      return;
    case TypeKind::Int:
      out += "int";
      return;
    case TypeKind::Float:
      out += "float";
      return;
    case TypeKind::Bool:
      out += "bool";
      return;
  }
}

std::string to_string(const TensorType& type) {
  std::string out;
  append_type(out, type);
  return out;
}

std::string to_string(const Type& type) {
  std::string out;
  append_type(out, type);
  return out;
}

std::string dtype_name(c10::ScalarType dtype) { return std::string(dtype_word(dtype)); }

c10::ScalarType parse_dtype(std::string_view name) {
  auto dtype = find_dtype(name);
  TANDEM_REQUIRE(dtype, "parse", "expected a dtype (", dtype_words(), "), got '", name, "'");
  return *dtype;
}

}  // namespace tandem::ir
