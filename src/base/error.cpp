#include "base/error.h"

#include <algorithm>
#include <string_view>

namespace tandem {

Error::Error(std::string stage, const std::string& text)
    : std::runtime_error(stage + ": " + text), stage_(std::move(stage)) {}

}  // namespace tandem

namespace tandem::base {

std::string detail_line(const std::string& label, const std::string& value, size_t width) {
  if (value.empty()) return {};
  std::string line = "\n  " + label + ":";
  line.resize(3 + std::max(width, label.size() + 2), ' ');
  return line + value;
}

std::string with_detail(std::string text, const std::string& label, const std::string& value) {
  const size_t head = std::min(text.find('\n'), text.size());
  // `\n  remedy:   read`: the new value goes where the others are.
  size_t column = text.find(':', head);
  if (column != std::string::npos) column = text.find_first_not_of(' ', column + 1);
  const size_t width = column == std::string::npos ? 0 : column - head - 3;
  return text.insert(head, detail_line(label, value, width));
}

void throw_internal(const char* stage, const char* condition, const char* file, int line,
                    const std::string& text) {
  std::string_view path = file;
  // From the repository root: the build folder's own prefix says nothing to a reader.
  if (size_t at = path.rfind("/src/"); at != std::string_view::npos) path.remove_prefix(at + 1);
  throw InternalError(stage,
                      str(text, "\n  check:  ", condition, "\n  where:  ", path, ":", line,
                          "\n  remedy: this is a defect of Tandem; please report it with the "
                          "program that shows it"));
}

}  // namespace tandem::base
