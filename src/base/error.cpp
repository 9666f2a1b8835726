#include "base/error.h"

#include <string_view>

namespace tandem {

Error::Error(std::string stage, const std::string& text)
    : std::runtime_error(stage + ": " + text), stage_(std::move(stage)) {}

}  // namespace tandem

namespace tandem::base {

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
