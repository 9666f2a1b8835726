#pragma once

#include <array>
#include <string_view>
#include <tuple>

namespace tandem::ir {

/// A member of a struct by name; records.h makes text of it.
template <class Struct, class T>
struct Field {
  const char* name;
  T Struct::* member;
};
template <class Struct, class T>
Field(const char*, T Struct::*) -> Field<Struct, T>;

}  // namespace tandem::ir
