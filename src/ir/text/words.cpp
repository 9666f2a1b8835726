#include "ir/text/words.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tandem::ir {
namespace {

using c10::ScalarType;

template <class T>
struct Word {
  T value;
  std::string_view word;
};

constexpr std::array kDtypes = {
    Word<ScalarType>{ScalarType::Float, "f32"},
    Word<ScalarType>{ScalarType::Double, "f64"},
    Word<ScalarType>{ScalarType::Half, "f16"},
    Word<ScalarType>{ScalarType::BFloat16, "bf16"},
    Word<ScalarType>{ScalarType::Long, "i64"},
    Word<ScalarType>{ScalarType::Int, "i32"},
    Word<ScalarType>{ScalarType::Short, "i16"},
    Word<ScalarType>{ScalarType::Char, "i8"},
    Word<ScalarType>{ScalarType::Byte, "u8"},
    Word<ScalarType>{ScalarType::UInt16, "u16"},
    Word<ScalarType>{ScalarType::UInt32, "u32"},
    Word<ScalarType>{ScalarType::UInt64, "u64"},
    Word<ScalarType>{ScalarType::Bool, "bool"},
    Word<ScalarType>{ScalarType::ComplexHalf, "c32"},
    Word<ScalarType>{ScalarType::ComplexFloat, "c64"},
    Word<ScalarType>{ScalarType::ComplexDouble, "c128"},
    Word<ScalarType>{ScalarType::Float8_e5m2, "f8e5m2"},
    Word<ScalarType>{ScalarType::Float8_e4m3fn, "f8e4m3fn"},
    Word<ScalarType>{ScalarType::Float8_e5m2fnuz, "f8e5m2fnuz"},
    Word<ScalarType>{ScalarType::Float8_e4m3fnuz, "f8e4m3fnuz"},
    Word<ScalarType>{ScalarType::Float8_e8m0fnu, "f8e8m0fnu"},
    Word<ScalarType>{ScalarType::Float4_e2m1fn_x2, "f4e2m1fn_x2"},
    Word<ScalarType>{ScalarType::QInt8, "qi8"},
    Word<ScalarType>{ScalarType::QUInt8, "qu8"},
    Word<ScalarType>{ScalarType::QInt32, "qi32"},
    Word<ScalarType>{ScalarType::QUInt4x2, "qu4x2"},
    Word<ScalarType>{ScalarType::QUInt2x4, "qu2x4"},
    Word<ScalarType>{ScalarType::Bits1x8, "bits1x8"},
    Word<ScalarType>{ScalarType::Bits2x4, "bits2x4"},
    Word<ScalarType>{ScalarType::Bits4x2, "bits4x2"},
    Word<ScalarType>{ScalarType::Bits8, "bits8"},
    Word<ScalarType>{ScalarType::Bits16, "bits16"},
    Word<ScalarType>{ScalarType::UInt1, "u1"},
    Word<ScalarType>{ScalarType::UInt2, "u2"},
    Word<ScalarType>{ScalarType::UInt3, "u3"},
    Word<ScalarType>{ScalarType::UInt4, "u4"},
    Word<ScalarType>{ScalarType::UInt5, "u5"},
    Word<ScalarType>{ScalarType::UInt6, "u6"},
    Word<ScalarType>{ScalarType::UInt7, "u7"},
    Word<ScalarType>{ScalarType::Int1, "i1"},
    Word<ScalarType>{ScalarType::Int2, "i2"},
    Word<ScalarType>{ScalarType::Int3, "i3"},
    Word<ScalarType>{ScalarType::Int4, "i4"},
    Word<ScalarType>{ScalarType::Int5, "i5"},
    Word<ScalarType>{ScalarType::Int6, "i6"},
    Word<ScalarType>{ScalarType::Int7, "i7"},
};

constexpr std::array kLayouts = {
    Word<c10::Layout>{c10::Layout::Strided, "strided"},
    Word<c10::Layout>{c10::Layout::Sparse, "sparse_coo"},
    Word<c10::Layout>{c10::Layout::SparseCsr, "sparse_csr"},
    Word<c10::Layout>{c10::Layout::SparseCsc, "sparse_csc"},
    Word<c10::Layout>{c10::Layout::SparseBsr, "sparse_bsr"},
    Word<c10::Layout>{c10::Layout::SparseBsc, "sparse_bsc"},
    Word<c10::Layout>{c10::Layout::Mkldnn, "mkldnn"},
    Word<c10::Layout>{c10::Layout::Jagged, "jagged"},
};

constexpr std::array kMemoryFormats = {
    Word<c10::MemoryFormat>{c10::MemoryFormat::Contiguous, "contiguous"},
    Word<c10::MemoryFormat>{c10::MemoryFormat::Preserve, "preserve"},
    Word<c10::MemoryFormat>{c10::MemoryFormat::ChannelsLast, "channels_last"},
    Word<c10::MemoryFormat>{c10::MemoryFormat::ChannelsLast3d, "channels_last_3d"},
};

// In the order of the enumerators, see role_word.
constexpr std::array kRoles = {
    RoleWord{Role::UserInput, "user_input", RoleDetail::Index, true, false},
    RoleWord{Role::Param, "param", RoleDetail::Name, true, false},
    RoleWord{Role::Buffer, "buffer", RoleDetail::Name, true, false},
    RoleWord{Role::Lifted, "lifted", RoleDetail::Index, true, false},
    RoleWord{Role::Tangent, "tangent", RoleDetail::Index, true, false},
    RoleWord{Role::Symbol, "symbol", RoleDetail::OptionalIndex, true, false},
    RoleWord{Role::Seed, "seed", RoleDetail::Index, true, false},
    RoleWord{Role::Token, "token", RoleDetail::Index, true, true},
    RoleWord{Role::Base, "base", RoleDetail::Index, true, true},
    RoleWord{Role::Output, "output", RoleDetail::Index, false, true},
    RoleWord{Role::Mutated, "mutated", RoleDetail::Index, false, true},
    RoleWord{Role::Saved, "saved", RoleDetail::Index, true, true},
    RoleWord{Role::Grad, "grad", RoleDetail::IndexAndOptionalName, false, true},
};

template <class Table, class T>
std::string_view word_of(const Table& table, T value) {
  for (const auto& row : table) {
    if (row.value == value) return row.word;
  }
  return "unknown";
}

template <class T, class Table>
std::optional<T> value_of(const Table& table, std::string_view word) {
  for (const auto& row : table) {
    if (row.word == word) return row.value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view dtype_word(ScalarType dtype) { return word_of(kDtypes, dtype); }
std::optional<ScalarType> find_dtype(std::string_view word) {
  return value_of<ScalarType>(kDtypes, word);
}
std::string dtype_words() {
  std::string words;
  for (const auto& row : kDtypes) {
    if (!words.empty()) words += ", ";
    words += row.word;
  }
  return words;
}

std::string_view layout_name(c10::Layout layout) { return word_of(kLayouts, layout); }
std::optional<c10::Layout> find_layout(std::string_view word) {
  return value_of<c10::Layout>(kLayouts, word);
}

std::string_view memory_format_name(c10::MemoryFormat format) {
  return word_of(kMemoryFormats, format);
}
std::optional<c10::MemoryFormat> find_memory_format(std::string_view word) {
  return value_of<c10::MemoryFormat>(kMemoryFormats, word);
}

std::optional<c10::Device> find_device(std::string_view word) {
  try {
    return c10::Device(std::string(word));
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

const RoleWord& role_word(Role role) { return kRoles[static_cast<size_t>(role)]; }
const RoleWord* find_role(std::string_view word) {
  auto found =
      std::find_if(kRoles.begin(), kRoles.end(), [&](auto& row) { return row.word == word; });
  return found == kRoles.end() ? nullptr : &*found;
}

void append_integer(std::string& out, int64_t number) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr);
}

void append_size(std::string& out, const Size& size) {
  if (auto number = size.maybe_value()) {
    append_integer(out, *number);
  } else {
    out += size.to_string();
  }
}

void append_descriptor(std::string& out, const Descriptor& descriptor) {
  const RoleWord& word = role_word(descriptor.role);
  out += word.word;
  bool has_index = word.detail == RoleDetail::Index ||
                   word.detail == RoleDetail::IndexAndOptionalName ||
                   (word.detail == RoleDetail::OptionalIndex && descriptor.index != 0);
  bool has_name = word.detail == RoleDetail::Name ||
                  (word.detail == RoleDetail::IndexAndOptionalName && !descriptor.name.empty());
  if (has_index) {
    out += ' ';
    append_integer(out, descriptor.index);
  }
  if (has_name) {
    out += ' ';
    append_quoted(out, descriptor.name);
  }
}

std::string to_string(const Descriptor& descriptor) {
  std::string out;
  append_descriptor(out, descriptor);
  return out;
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<uint8_t>(c) >= 0x20 && c != 0x7f) {
          out += c;
        } else {
          out += "\\x";
          out += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
          out += "0123456789abcdef"[c & 15];
        }
    }
  }
  out += '"';
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_name_char);
}

}  // namespace tandem::ir
