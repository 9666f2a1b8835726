#pragma once

#include "base/same_bits.h"
#include "ir/tensor_data.h"
#include "ir/text/attachments.h"
#include "ir/text/cursor.h"
#include "ir/text/field.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/text/words.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/text.h"

#include <array>
#include <complex>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// Structs as text that parses back, from one list of their fields:
///
///   {role: param "fc.weight", type: f32[2, 4], requires_grad: true}
///
/// A struct takes part by naming its fields in its own namespace, an enum by naming its values:
///
///   constexpr auto fields(const InputFacts*) {
///     return std::tuple(Field{"role", &InputFacts::role}, Field{"type", &InputFacts::type});
///   }
///   constexpr std::array<std::string_view, 2> words(const Half*) { return {"forward", "backward"};
///   }
///
/// A field that has the value which it has in a struct just made is left out.
namespace tandem::ir {

template <class T>
concept Record = requires(const T* record) { fields(record); };
template <class T>
concept Worded = std::is_enum_v<T> && requires(const T* value) { words(value); };

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;

/// By value, as the text has it.
template <class T>
bool same_record(const T& a, const T& b) {
  if constexpr (Record<T>) {
    return std::apply(
        [&](const auto&... field) {
          return (same_record(a.*(field.member), b.*(field.member)) && ...);
        },
        fields(&a));
  } else if constexpr (is_vector<T> && !std::is_same_v<T, std::vector<bool>>) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!same_record(a[i], b[i])) return false;
    }
    return true;
  } else if constexpr (is_optional<T>) {
    return a.has_value() == b.has_value() && (!a || same_record(*a, *b));
  } else if constexpr (std::is_same_v<T, TypePtr>) {
    return a == b || (a && b && *a == *b);
  } else if constexpr (std::is_same_v<T, Graph>) {
    return a.node_count() == b.node_count() && a.inputs().size() == b.inputs().size() &&
           print(a) == print(b);
  } else {
    return base::same_bits(a, b);
  }
}

/// Appends records to a text.
class RecordWriter {
 public:
  /// Without attachments large constants are written inline, and there may be no bytes.
  explicit RecordWriter(std::string& out, Attachments* attachments = nullptr)
      : out_(out), attachments_(attachments) {}

  template <class T>
  void write(const T& value) {
    if constexpr (Record<T>) {
      record(value);
    } else if constexpr (Worded<T>) {
      out_ += words(&value)[static_cast<size_t>(value)];
    } else if constexpr (is_vector<T>) {
      list(value);
    } else if constexpr (is_optional<T>) {
      if (value) {
        write(*value);
      } else {
        out_ += "none";
      }
    } else if constexpr (std::is_same_v<T, bool>) {
      out_ += value ? "true" : "false";
    } else if constexpr (std::integral<T>) {
      append_integer(out_, static_cast<int64_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
      append_float(out_, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      append_quoted(out_, value);
    } else if constexpr (std::is_same_v<T, TypePtr>) {
      if (value) {
        append_type(out_, *value);
      } else {
        out_ += "none";
      }
    } else if constexpr (std::is_same_v<T, Descriptor>) {
      append_descriptor(out_, value);
    } else if constexpr (std::is_same_v<T, c10::ScalarType>) {
      out_ += value == c10::ScalarType::Undefined ? "none" : dtype_word(value);
    } else if constexpr (std::is_same_v<T, Graph>) {
      graph(value);
    } else if constexpr (is_variant<T>) {
      append_integer(out_, static_cast<int64_t>(value.index()));
      out_ += ':';
      std::visit([&](const auto& alternative) { write(alternative); }, value);
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
      append_float(out_, value.real());
      out_ += ' ';
      append_float(out_, value.imag());
    } else if constexpr (std::is_same_v<T, at::Generator>) {
      append_integer(out_, attachments_->number_of(value));
    } else if constexpr (std::is_same_v<T, Bytes>) {
      out_ += '@';
      append_integer(out_, attachments_->add(value.data));
    } else {
      static_assert(Record<T>, "list the fields of the struct, or the words of the enum");
    }
  }

 private:
  /// A graph names its generators by its own numbers.
  void graph(const Graph& graph) {
    append_graph(out_, graph, attachments_);
    if (graph.generators().empty()) return;
    out_ += "generators ";
    list(graph.generators());
  }

  template <class T>
  void record(const T& value) {
    static const T kJustMade{};
    out_ += '{';
    bool first = true;
    std::apply([&](const auto&... each) { (field(value, kJustMade, each, first), ...); },
               fields(&value));
    out_ += '}';
  }

  template <class T, class Field>
  void field(const T& value, const T& just_made, const Field& field, bool& first) {
    if (same_record(value.*(field.member), just_made.*(field.member))) return;
    if (!first) out_ += ", ";
    first = false;
    out_ += field.name;
    out_ += ": ";
    write(value.*(field.member));
  }

  /// Records of a list stand on lines of their own.
  template <class T>
  void list(const std::vector<T>& values) {
    out_ += '[';
    bool first = true;
    for (const auto& value : values) {
      if (!first) out_ += ", ";
      first = false;
      if constexpr (Record<T>) out_ += "\n  ";
      write(static_cast<const T&>(value));
    }
    out_ += ']';
  }

  std::string& out_;
  Attachments* attachments_;
};

/// Reads records. A UserError says where, what was expected and what came.
class RecordReader {
 public:
  explicit RecordReader(Cursor& cursor, Attachments* attachments = nullptr)
      : cursor_(cursor), attachments_(attachments) {}

  template <class T>
  T read() {
    if constexpr (Record<T>) {
      return record<T>();
    } else if constexpr (Worded<T>) {
      return word<T>();
    } else if constexpr (is_vector<T>) {
      T values;
      cursor_.expect('[');
      if (cursor_.take(']')) return values;
      do {
        values.push_back(read<typename T::value_type>());
      } while (cursor_.take(','));
      cursor_.expect(']');
      return values;
    } else if constexpr (is_optional<T>) {
      if (cursor_.take_word("none")) return std::nullopt;
      return read<typename T::value_type>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (cursor_.take_word("true")) return true;
      if (!cursor_.take_word("false")) cursor_.fail_expected("true or false");
      return false;
    } else if constexpr (std::integral<T>) {
      return static_cast<T>(cursor_.expect_integer());
    } else if constexpr (std::is_same_v<T, double>) {
      return cursor_.expect_float();
    } else if constexpr (std::is_same_v<T, std::string>) {
      return cursor_.expect_string();
    } else if constexpr (std::is_same_v<T, TypePtr>) {
      if (cursor_.take_word("none")) return nullptr;
      return std::make_shared<const TensorType>(parse_tensor_type(cursor_));
    } else if constexpr (std::is_same_v<T, Descriptor>) {
      return parse_descriptor(cursor_);
    } else if constexpr (std::is_same_v<T, c10::ScalarType>) {
      if (cursor_.take_word("none")) return c10::ScalarType::Undefined;
      const std::string_view name = cursor_.peek_word();
      const auto dtype = find_dtype(name);
      if (!dtype) cursor_.fail_expected("a dtype");
      cursor_.expect_word(name);
      return *dtype;
    } else if constexpr (std::is_same_v<T, Graph>) {
      return graph();
    } else if constexpr (is_variant<T>) {
      return alternative<T>(std::make_index_sequence<std::variant_size_v<T>>());
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
      const double real = cursor_.expect_float();
      return {real, cursor_.expect_float()};
    } else if constexpr (std::is_same_v<T, at::Generator>) {
      const size_t start = cursor_.position();
      const auto found =
          attachments_ ? attachments_->generator(cursor_.expect_integer()) : std::nullopt;
      if (!found) cursor_.fail_at(start, "no generator may have this number");
      return *found;
    } else if constexpr (std::is_same_v<T, Bytes>) {
      cursor_.expect('@');
      const std::string* found =
          attachments_ ? attachments_->find(cursor_.expect_integer()) : nullptr;
      if (!found) cursor_.fail_expected("the number of an attachment");
      return Bytes{*found};
    } else {
      static_assert(Record<T>, "list the fields of the struct, or the words of the enum");
    }
  }

 private:
  Graph graph() {
    Graph graph = parse_graph(cursor_, attachments_);
    if (!cursor_.take_word("generators")) return graph;
    const auto generators = read<std::vector<at::Generator>>();
    for (size_t i = 0; i < generators.size(); ++i)
      graph.bind_generator({static_cast<int64_t>(i)}, generators[i]);
    return graph;
  }

  template <class T, size_t... kIndex>
  T alternative(std::index_sequence<kIndex...>) {
    const size_t start = cursor_.position();
    const auto index = static_cast<size_t>(cursor_.expect_integer());
    cursor_.expect(':');
    std::optional<T> value;
    const auto read_one = [&]<size_t kOne>() {
      if (index == kOne)
        value.emplace(std::in_place_index<kOne>, read<std::variant_alternative_t<kOne, T>>());
    };
    (read_one.template operator()<kIndex>(), ...);
    if (!value) cursor_.fail_at(start, "there is no such alternative");
    return *std::move(value);
  }

  template <class T>
  T record() {
    T value{};
    cursor_.expect('{');
    if (cursor_.take('}')) return value;
    do {
      const std::string_view name = cursor_.peek_word();
      const bool known = std::apply(
          [&](const auto&... each) { return (field(value, each, name) || ...); }, fields(&value));
      if (!known) cursor_.fail_expected("the name of a field");
    } while (cursor_.take(','));
    cursor_.expect('}');
    return value;
  }

  template <class T, class Field>
  bool field(T& value, const Field& field, std::string_view name) {
    if (name != field.name) return false;
    cursor_.expect_word(name);
    cursor_.expect(':');
    auto& member = value.*(field.member);
    member = read<std::remove_reference_t<decltype(member)>>();
    return true;
  }

  template <class T>
  T word() {
    const T* const none = nullptr;
    const std::string_view name = cursor_.peek_word();
    const auto all = words(none);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != name) continue;
      cursor_.expect_word(name);
      return static_cast<T>(i);
    }
    std::string known;
    for (std::string_view each : all) known += (known.empty() ? "" : ", ") + std::string(each);
    cursor_.fail_expected(known);
  }

  Cursor& cursor_;
  Attachments* attachments_;
};

/// A record and all that belongs to it as one string of bytes, and back. A UserError says what is
/// wrong with the bytes.
template <class T>
std::string pack_record(const T& record) {
  std::string text;
  Attachments attachments;
  RecordWriter(text, &attachments).write(record);
  return pack({std::move(text), attachments.all()});
}
template <class T>
T unpack_record(std::string_view bytes) {
  Packed packed = unpack(bytes);
  Attachments attachments(std::move(packed.attachments));
  Cursor cursor(packed.text);
  T record = RecordReader(cursor, &attachments).template read<T>();
  if (!cursor.at_end()) cursor.fail_expected("the end of the text");
  return record;
}

}  // namespace tandem::ir
