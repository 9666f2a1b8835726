#pragma once

#include "tandem/error.h"

#include <sstream>
#include <string>

namespace tandem::base {

/// Streams its arguments into one string: `str("got ", n, " of ", m)`.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] void throw_internal(const char* stage, const char* condition, const char* file,
                                 int line, const std::string& text);

}  // namespace tandem::base

/// The caller can fix it. `stage` is the first word of the text; details go on lines of their own:
/// `"\n  remedy: ..."`. The text is built only on failure.
#define TANDEM_REQUIRE(condition, stage, ...)                                             \
  do {                                                                                    \
    if (!(condition)) throw ::tandem::UserError(stage, ::tandem::base::str(__VA_ARGS__)); \
  } while (false)

/// Legal in eager, not done by Tandem yet.
#define TANDEM_UNSUPPORTED(stage, ...) \
  throw ::tandem::UnsupportedError(stage, ::tandem::base::str(__VA_ARGS__))

/// Our own mistake if it does not hold.
#define TANDEM_CHECK(condition, stage, ...)                                 \
  do {                                                                      \
    if (!(condition)) {                                                     \
      ::tandem::base::throw_internal(stage, #condition, __FILE__, __LINE__, \
                                     ::tandem::base::str(__VA_ARGS__));     \
    }                                                                       \
  } while (false)
