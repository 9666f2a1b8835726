#pragma once

#include "tandem/export.h"
#include "tandem/function.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymInt.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// Makes a struct an argument or result: `TANDEM_STRUCT(Batch, tokens, mask, length)`, at namespace
/// scope beside the type. Up to 64 public fields; the type is default-constructible; fields may be
/// such structs.
#define TANDEM_STRUCT(Type, ...)                                                    \
  [[maybe_unused]] constexpr auto tandem_fields(::tandem::detail::FieldsOf<Type>) { \
    using TandemType_ [[maybe_unused]] = Type;                                      \
    return ::std::make_tuple(TANDEM_DETAIL_EACH(TANDEM_DETAIL_FIELD, __VA_ARGS__)); \
  }

#define TANDEM_DETAIL_FIELD(field) \
  ::tandem::detail::Field<decltype(&TandemType_::field)> { &TandemType_::field, #field }

// `macro` on every argument, with commas between: each rescan of EXPAND lets AGAIN come round once
// more.
#define TANDEM_DETAIL_EACH(macro, ...) \
  __VA_OPT__(TANDEM_DETAIL_EXPAND(TANDEM_DETAIL_STEP(macro, __VA_ARGS__)))
#define TANDEM_DETAIL_STEP(macro, first, ...) \
  macro(first) __VA_OPT__(, TANDEM_DETAIL_AGAIN TANDEM_DETAIL_PARENTHESES(macro, __VA_ARGS__))
#define TANDEM_DETAIL_AGAIN() TANDEM_DETAIL_STEP
#define TANDEM_DETAIL_PARENTHESES ()
#define TANDEM_DETAIL_EXPAND(...) \
  TANDEM_DETAIL_EXPAND1(TANDEM_DETAIL_EXPAND1(TANDEM_DETAIL_EXPAND1(__VA_ARGS__)))
#define TANDEM_DETAIL_EXPAND1(...) \
  TANDEM_DETAIL_EXPAND2(TANDEM_DETAIL_EXPAND2(TANDEM_DETAIL_EXPAND2(__VA_ARGS__)))
#define TANDEM_DETAIL_EXPAND2(...) \
  TANDEM_DETAIL_EXPAND3(TANDEM_DETAIL_EXPAND3(TANDEM_DETAIL_EXPAND3(__VA_ARGS__)))
#define TANDEM_DETAIL_EXPAND3(...) \
  TANDEM_DETAIL_EXPAND4(TANDEM_DETAIL_EXPAND4(TANDEM_DETAIL_EXPAND4(__VA_ARGS__)))
#define TANDEM_DETAIL_EXPAND4(...) __VA_ARGS__

namespace tandem::detail {

/// What leads argument-dependent lookup to the fields of a struct. A type of its own, and no
/// pointer to the struct: a derived struct must not pass for its base and lose fields.
template <class T>
struct FieldsOf {};

/// One field of a TANDEM_STRUCT.
template <class Member>
struct Field {
  Member member;
  const char* name;
};

/// Takes tensors and constants off a flat list, in the order in which they were written.
/// Views that it hands out (`at::TensorList`) live as long as the reader and the list.
class Reader {
 public:
  explicit Reader(const Flat& flat) : flat_(flat) {}
  /// Moves the tensors out of `flat`.
  explicit Reader(Flat&& flat) : flat_(flat), source_(&flat) {}

  at::Tensor tensor() {
    if (next_tensor_ >= flat_.tensors.size()) malformed();
    const size_t index = next_tensor_++;
    // No conditional expression: it would copy in both cases.
    if (source_ != nullptr) return std::move(source_->tensors[index]);
    return flat_.tensors[index];
  }

  /// The next `count` tensors, in place.
  at::TensorList tensors(size_t count) {
    if (count > flat_.tensors.size() - next_tensor_) malformed();
    at::TensorList view(flat_.tensors.data() + next_tensor_, count);
    next_tensor_ += count;
    return view;
  }

  const Constant& any_constant() {
    if (next_constant_ >= flat_.constants.size()) malformed();
    return flat_.constants[next_constant_++];
  }

  template <class T>
  const T& constant() {
    const T* value = std::get_if<T>(&any_constant());
    if (value == nullptr) malformed();
    return *value;
  }

  size_t length() { return static_cast<size_t>(constant<int64_t>()); }

  /// Room for elements that a view refers to and the flat list does not hold as such.
  template <class T>
  T* keep(size_t count) {
    std::shared_ptr<T[]> room(new T[count]());
    kept_.push_back(room);
    return room.get();
  }

  /// Everything must have been read.
  void finish() const {
    if (next_tensor_ != flat_.tensors.size() || next_constant_ != flat_.constants.size())
      malformed();
  }

 private:
  [[noreturn]] TANDEM_API void malformed() const;

  const Flat& flat_;
  Flat* source_ = nullptr;
  size_t next_tensor_ = 0;
  size_t next_constant_ = 0;
  std::vector<std::shared_ptr<void>> kept_;
};

/// `[3]`, `["mask"]` and `argument 1` in the name of a tensor.
TANDEM_API std::string element_name(size_t index);
TANDEM_API std::string element_name(const std::string& key);
TANDEM_API std::string argument_name(size_t index);

/// Writes to a flat list.
struct FlatSink {
  Flat& flat;

  void tensor(const at::Tensor& value) { flat.tensors.push_back(value); }
  template <class C>
  void constant(C&& value) {
    flat.constants.emplace_back(std::forward<C>(value));
  }
  template <class Name, class Body>
  void inside(Name&&, Body&& body) {
    body();
  }
};

/// Writes the name of every tensor: `argument 1[3].mask`.
struct PathSink {
  std::vector<std::string> paths{};
  std::string path{};

  void tensor(const at::Tensor&) { paths.push_back(path); }
  template <class C>
  void constant(C&&) {}
  template <class Name, class Body>
  void inside(Name&& name, Body&& body) {
    const size_t before = path.size();
    path += name();
    body();
    path.resize(before);
  }
};

template <class T>
concept HasFields = requires { tandem_fields(FieldsOf<T>{}); };

template <class>
inline constexpr bool kNever = false;

/// How a type is written to and read from a flat list. One specialisation per kind of type:
/// `write(value, sink)`, `read(reader)`, and whether it may only be an argument.
template <class T>
struct Structure {
  static_assert(
      kNever<T>,
      "tandem: this type cannot be an argument or result of a compiled function. Remedy: use "
      "tensors, numbers, strings, enums, at::Scalar, at::ScalarType, at::Device, or std::optional, "
      "vector, array, pair, tuple, map<std::string, T> of them; for a struct of your own write "
      "TANDEM_STRUCT(Type, field, ...) beside it, in its namespace");
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(const T&, Sink&) {}
  static T read(Reader&);
};

template <>
struct Structure<at::Tensor> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(const at::Tensor& value, Sink& sink) {
    sink.tensor(value);
  }
  static at::Tensor read(Reader& reader) { return reader.tensor(); }
};

// --- constants
// ---------------------------------------------------------------------------------------------

template <>
struct Structure<bool> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(bool value, Sink& sink) {
    sink.constant(value);
  }
  static bool read(Reader& reader) { return reader.constant<bool>(); }
};

template <class T>
  requires((std::integral<T> && !std::same_as<T, bool>) || std::is_enum_v<T>)
struct Structure<T> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(T value, Sink& sink) {
    sink.constant(static_cast<int64_t>(value));
  }
  static T read(Reader& reader) { return static_cast<T>(reader.constant<int64_t>()); }
};

template <class T>
  requires(std::same_as<T, float> || std::same_as<T, double>)
struct Structure<T> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(T value, Sink& sink) {
    sink.constant(static_cast<double>(value));
  }
  static T read(Reader& reader) { return static_cast<T>(reader.constant<double>()); }
};

template <>
struct Structure<std::string> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(const std::string& value, Sink& sink) {
    sink.constant(value);
  }
  static std::string read(Reader& reader) { return reader.constant<std::string>(); }
};

template <>
struct Structure<at::Device> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(const at::Device& value, Sink& sink) {
    sink.constant(static_cast<int64_t>(value.type()));
    sink.constant(static_cast<int64_t>(value.index()));
  }
  static at::Device read(Reader& reader) {
    const auto type = static_cast<at::DeviceType>(reader.constant<int64_t>());
    return at::Device(type, static_cast<at::DeviceIndex>(reader.constant<int64_t>()));
  }
};

/// A Scalar keeps its kind: `1`, `1.0` and `true` promote differently.
template <>
struct Structure<at::Scalar> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(const at::Scalar& value, Sink& sink) {
    if (value.isComplex()) {
      sink.constant(static_cast<std::complex<double>>(value.toComplexDouble()));
    } else if (value.isFloatingPoint()) {
      sink.constant(value.toDouble());
    } else if (value.isBoolean()) {
      sink.constant(value.toBool());
    } else if (value.type() == at::ScalarType::UInt64) {
      // Beyond int64_t; the constants have no unsigned kind, and nothing else in a Scalar is a
      // string.
      sink.constant(std::to_string(value.toUInt64()));
    } else {
      sink.constant(static_cast<int64_t>(value.toLong()));
    }
  }
  static at::Scalar read(Reader& reader) {
    const Constant& constant = reader.any_constant();
    if (const auto* value = std::get_if<bool>(&constant)) return *value;
    if (const auto* value = std::get_if<double>(&constant)) return *value;
    if (const auto* value = std::get_if<std::complex<double>>(&constant)) {
      return c10::complex<double>(value->real(), value->imag());
    }
    if (const auto* value = std::get_if<std::string>(&constant)) {
      return static_cast<uint64_t>(std::stoull(*value));
    }
    return std::get<int64_t>(constant);
  }
};

template <>
struct Structure<c10::SymInt> {
  static constexpr bool kArgumentOnly = false;
  template <class Sink>
  static void write(const c10::SymInt& value, Sink& sink) {
    sink.constant(static_cast<int64_t>(value.guard_int(__FILE__, __LINE__)));
  }
  static c10::SymInt read(Reader& reader) { return reader.constant<int64_t>(); }
};

template <>
struct Structure<at::Generator> {
  static constexpr bool kArgumentOnly = true;
  template <class Sink>
  static void write(const at::Generator& value, Sink& sink) {
    sink.constant(value);
  }
  static at::Generator read(Reader& reader) { return reader.constant<at::Generator>(); }
};

// --- containers
// --------------------------------------------------------------------------------------------

template <class T>
struct Structure<std::optional<T>> {
  static constexpr bool kArgumentOnly = Structure<T>::kArgumentOnly;
  template <class Sink>
  static void write(const std::optional<T>& value, Sink& sink) {
    sink.constant(value.has_value());
    if (value) Structure<T>::write(*value, sink);
  }
  static std::optional<T> read(Reader& reader) {
    if (!reader.constant<bool>()) return std::nullopt;
    return std::optional<T>(std::in_place, Structure<T>::read(reader));
  }
};

/// Every element of a range, named `[i]`; the length comes from elsewhere.
template <class T, class Range, class Sink>
void write_elements(const Range& range, Sink& sink) {
  size_t index = 0;
  for (const auto& element : range) {
    sink.inside([&] { return element_name(index); }, [&] { Structure<T>::write(element, sink); });
    ++index;
  }
}

template <class T>
struct Structure<std::vector<T>> {
  static constexpr bool kArgumentOnly = Structure<T>::kArgumentOnly;
  template <class Sink>
  static void write(const std::vector<T>& value, Sink& sink) {
    sink.constant(static_cast<int64_t>(value.size()));
    write_elements<T>(value, sink);
  }
  static std::vector<T> read(Reader& reader) {
    const size_t length = reader.length();
    std::vector<T> value;
    value.reserve(length);
    for (size_t i = 0; i < length; ++i) value.push_back(Structure<T>::read(reader));
    return value;
  }
};

/// `at::TensorList`, `at::IntArrayRef`, ...: views, so arguments only.
template <class T>
struct Structure<c10::ArrayRef<T>> {
  static constexpr bool kArgumentOnly = true;
  template <class Sink>
  static void write(const c10::ArrayRef<T>& value, Sink& sink) {
    sink.constant(static_cast<int64_t>(value.size()));
    write_elements<T>(value, sink);
  }
  static c10::ArrayRef<T> read(Reader& reader) {
    const size_t length = reader.length();
    if constexpr (std::same_as<T, at::Tensor>) {
      return reader.tensors(length);
    } else {
      T* elements = reader.keep<T>(length);
      for (size_t i = 0; i < length; ++i) elements[i] = Structure<T>::read(reader);
      return c10::ArrayRef<T>(elements, length);
    }
  }
};

template <class T>
struct Structure<std::map<std::string, T>> {
  static constexpr bool kArgumentOnly = Structure<T>::kArgumentOnly;
  template <class Sink>
  static void write(const std::map<std::string, T>& value, Sink& sink) {
    sink.constant(static_cast<int64_t>(value.size()));
    for (const auto& [key, element] : value) {
      sink.constant(key);
      sink.inside([&] { return element_name(key); }, [&] { Structure<T>::write(element, sink); });
    }
  }
  static std::map<std::string, T> read(Reader& reader) {
    const size_t length = reader.length();
    std::map<std::string, T> value;
    for (size_t i = 0; i < length; ++i) {
      std::string key = reader.constant<std::string>();
      value.emplace_hint(value.end(), std::move(key), Structure<T>::read(reader));
    }
    return value;
  }
};

/// Array, pair and tuple: the type fixes the length. Braces read the elements from left to right.
template <class Tuple, class Indices = std::make_index_sequence<std::tuple_size_v<Tuple>>>
struct FixedStructure;
template <class Tuple, size_t... I>
struct FixedStructure<Tuple, std::index_sequence<I...>> {
  static constexpr bool kArgumentOnly =
      (Structure<std::tuple_element_t<I, Tuple>>::kArgumentOnly || ...);
  template <class Sink>
  static void write([[maybe_unused]] const Tuple& value, [[maybe_unused]] Sink& sink) {
    (sink.inside(
         [] { return element_name(I); },
         [&] { Structure<std::tuple_element_t<I, Tuple>>::write(std::get<I>(value), sink); }),
     ...);
  }
  static Tuple read([[maybe_unused]] Reader& reader) {
    return Tuple{Structure<std::tuple_element_t<I, Tuple>>::read(reader)...};
  }
};

template <class T, size_t N>
struct Structure<std::array<T, N>> : FixedStructure<std::array<T, N>> {};
template <class First, class Second>
struct Structure<std::pair<First, Second>> : FixedStructure<std::pair<First, Second>> {};
template <class... T>
struct Structure<std::tuple<T...>> : FixedStructure<std::tuple<T...>> {};

/// A struct that TANDEM_STRUCT describes, found by argument-dependent lookup.
template <HasFields T>
struct Structure<T> {
  static constexpr auto kFields = tandem_fields(FieldsOf<T>{});
  static constexpr size_t kCount = std::tuple_size_v<std::remove_cvref_t<decltype(kFields)>>;
  static_assert(kCount <= 64,
                "tandem: TANDEM_STRUCT takes up to 64 fields. Remedy: group some of them "
                "in a struct of their own");
  static_assert(
      std::is_default_constructible_v<T>,
      "tandem: a TANDEM_STRUCT type needs a default constructor: results are made empty and "
      "then filled field by field");

  template <class Member>
  using FieldType = std::remove_cvref_t<decltype(std::declval<T&>().*std::declval<Member>())>;
  template <class... Member>
  static constexpr bool any_argument_only(const std::tuple<Field<Member>...>*) {
    return (Structure<FieldType<Member>>::kArgumentOnly || ...);
  }
  static constexpr bool kArgumentOnly = any_argument_only(&kFields);

  template <class Sink>
  static void write(const T& value, Sink& sink) {
    std::apply(
        [&](const auto&... field) {
          (sink.inside([&] { return std::string(".") + field.name; },
                       [&] { write_field(value.*field.member, sink); }),
           ...);
        },
        kFields);
  }
  static T read(Reader& reader) {
    T value{};
    std::apply([&](const auto&... field) { (read_field(value.*field.member, reader), ...); },
               kFields);
    return value;
  }

 private:
  template <class M, class Sink>
  static void write_field(const M& field, Sink& sink) {
    Structure<M>::write(field, sink);
  }
  template <class M>
  static void read_field(M& field, Reader& reader) {
    field = Structure<M>::read(reader);
  }
};

// --- whole lists
// -------------------------------------------------------------------------------------------

template <class... Args>
Flat flatten(const Args&... args) {
  Flat flat;
  [[maybe_unused]] FlatSink sink{flat};
  (Structure<Args>::write(args, sink), ...);
  return flat;
}

/// Of results: moves the tensors out.
template <class R>
R unflatten(Flat flat) {
  Reader reader(std::move(flat));
  R value = Structure<R>::read(reader);
  reader.finish();
  return value;
}

/// The name of every tensor of a flat argument list, for messages: `argument 1[3].mask`. Lengths
/// and presence are among the constants, so the flat list is all it needs.
template <class... Args>
[[gnu::cold]] std::vector<std::string> tensor_paths(const Flat& flat) {
  Reader reader(flat);
  PathSink sink;
  [[maybe_unused]] size_t index = 0;
  (sink.inside([&] { return argument_name(index++); },
               [&] { Structure<Args>::write(Structure<Args>::read(reader), sink); }),
   ...);
  reader.finish();
  return std::move(sink.paths);
}

}  // namespace tandem::detail
