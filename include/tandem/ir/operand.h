#pragma once

#include "tandem/export.h"
#include "tandem/shapes/size.h"

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <complex>
#include <concepts>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::ir {

using shapes::Size;

/// Index of a value or node in its graph. Stays valid while the graph is edited or copied.
enum class ValueId : int32_t {};
enum class NodeId : int32_t {};
inline constexpr ValueId kNoValue{-1};
inline constexpr NodeId kNoNode{-1};

/// A random generator other than the default one: index into the graph's table of generators.
struct GeneratorRef {
  int64_t index = 0;
  friend bool operator==(const GeneratorRef&, const GeneratorRef&) = default;
};

/// One argument of a node. `kNoValue` inside a list of values is an undefined tensor or an absent
/// optional.
struct TANDEM_API Operand {
  using None = std::monostate;
  using Values = std::vector<ValueId>;
  using Sizes = std::vector<Size>;
  using Storage =
      std::variant<None, ValueId, Values, bool, Size, double, std::complex<double>, std::string,
                   c10::ScalarType, c10::Layout, c10::MemoryFormat, c10::Device, Sizes,
                   std::vector<double>, std::vector<bool>, GeneratorRef>;
  Storage data;

  Operand() = default;
  template <class T>
    requires std::constructible_from<Storage, T>
  Operand(T&& value) : data(std::forward<T>(value)) {}  // NOLINT: every alternative is an operand
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  // NOLINTNEXTLINE(google-explicit-constructor): a size, not a complex number
  Operand(T number) : data(Size(static_cast<int64_t>(number))) {}

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data);
  }
  bool is_none() const { return data.index() == 0; }

  /// Calls fn(ValueId) for every value it mentions, absent ones left out.
  template <class Fn>
  void for_each_value(Fn&& fn) const {
    if (auto* value = get_if<ValueId>(); value && *value != kNoValue) fn(*value);
    if (auto* values = get_if<Values>()) {
      for (ValueId id : *values) {
        if (id != kNoValue) fn(id);
      }
    }
  }

  /// Bit for bit: 0.0 differs from -0.0, a NaN equals itself.
  friend TANDEM_API bool operator==(const Operand& a, const Operand& b);
};

}  // namespace tandem::ir
