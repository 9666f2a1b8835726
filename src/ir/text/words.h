#pragma once

#include "tandem/ir/descriptor.h"
#include "tandem/ir/type.h"

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The words of the graph text, each table once, for the printer and the parser.
namespace tandem::ir {

std::string_view dtype_word(c10::ScalarType dtype);
std::optional<c10::ScalarType> find_dtype(std::string_view word);
/// All of them, for messages.
std::string dtype_words();

std::string_view layout_name(c10::Layout layout);
std::optional<c10::Layout> find_layout(std::string_view word);

std::string_view memory_format_name(c10::MemoryFormat format);
std::optional<c10::MemoryFormat> find_memory_format(std::string_view word);

/// `cpu`, `cuda`, `cuda:0`.
std::optional<c10::Device> find_device(std::string_view word);

/// What follows a role's word in the text.
enum class RoleDetail : uint8_t { Index, Name, OptionalIndex, IndexAndOptionalName };
struct RoleWord {
  Role role;
  std::string_view word;
  RoleDetail detail;
  bool of_input, of_output;
};
const RoleWord& role_word(Role role);
const RoleWord* find_role(std::string_view word);

/// Row-major strides, as libtorch computes them.
std::vector<Size> contiguous_strides(const std::vector<Size>& sizes);

// ---- appending to a text under construction ----
void append_integer(std::string& out, int64_t number);
void append_size(std::string& out, const Size& size);
void append_type(std::string& out, const TensorType& type);
void append_type(std::string& out, const Type& type);
void append_descriptor(std::string& out, const Descriptor& descriptor);
/// In double quotes, with escapes.
void append_quoted(std::string& out, std::string_view text);

/// May stand after `%`, or as a graph's name without quotes.
bool is_name(std::string_view text);
inline bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

}  // namespace tandem::ir
