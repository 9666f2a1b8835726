#include "tracing/lines/users_line.h"

#include "tracing/lines/debug_info.h"

#include <fmt/format.h>

#include <string_view>

namespace tandem::tracing {
namespace {

/// What is compiled into the user's program: headers, and the frames of a trace if Tandem is linked
/// statically.
bool is_platform_header(std::string_view file) {
  for (const char* folder :
       {"/include/ATen/", "/include/c10/", "/include/torch/", "/include/caffe2/",
        "/include/tandem/", "/include/c++/", "/torch/csrc/", "/aten/src/ATen/", "/src/tracing/"}) {
    if (file.find(folder) != std::string_view::npos) return true;
  }
  return false;
}

/// The same for functions of which only the name is known.
bool is_platform_symbol(std::string_view name) {
  for (const char* scope : {"at::", "c10::", "torch::", "std::", "__gnu_cxx::", "tandem::"}) {
    // A template's name begins with its result type, so look behind that too.
    const size_t arguments = name.find_first_of("<(");
    const std::string_view head = name.substr(0, arguments);
    const size_t blank = head.rfind(' ');
    const size_t from = blank == std::string_view::npos ? 0 : blank + 1;
    if (head.substr(from).starts_with(scope)) return true;
  }
  return false;
}

std::string symbol_text(const LoadedObject& object, const CodeLines& code) {
  const std::string_view path = object.path;
  return fmt::format("{}({}+{:#x})", path.substr(path.rfind('/') + 1), code.symbol, code.offset);
}

}  // namespace

ir::SourceLine users_line(const LoadedObjects& objects, std::span<const uintptr_t> chain) {
  ir::SourceLine symbol;
  for (uintptr_t address : chain) {
    const LoadedObject* object = objects.find(address);
    if (object == nullptr) continue;
    const CodeLines& code = code_lines(*object, address);
    for (const ir::SourceLine& line : code.lines) {
      if (line.line > 0 && !line.file.empty() && !is_platform_header(line.file)) return line;
    }
    if (symbol.file.empty() && code.lines.empty() && !code.symbol.empty() &&
        !is_platform_symbol(code.symbol)) {
      symbol.file = symbol_text(*object, code);
    }
  }
  return symbol;
}

}  // namespace tandem::tracing
