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

/// `"\n  at:     net.cpp:41"`: a labelled line of an error whose values begin after `width`
/// characters; nothing if `value` is empty.
std::string detail_line(const std::string& label, const std::string& value, size_t width = 8);

/// The text of an error with one more labelled line, the first below its head, in line with the
/// others. Unchanged if `value` is empty.
std::string with_detail(std::string text, const std::string& label, const std::string& value);

template <class AnyError>
AnyError with_detail(const AnyError& error, const std::string& label, const std::string& value) {
  const std::string text = error.what();
  return AnyError(error.stage(), with_detail(text.substr(error.stage().size() + 2), label, value));
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
