#pragma once

#include "tandem/shapes/size.h"

#include <string>
#include <string_view>

namespace tandem::ir {

/// A place in a graph text, and the small things to read there. Every reader skips white space and
/// comments first.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  /// Spaces, line ends, and comments from `#` to the end of the line.
  void skip_blank();
  /// Spaces within the line.
  void skip_spaces();

  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  std::string_view rest() const { return text_.substr(position_); }
  std::string_view slice(size_t from) const { return text_.substr(from, position_ - from); }
  /// The character here, without skipping; zero at the end.
  char here() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  char peek() {
    skip_blank();
    return here();
  }
  bool at_end() {
    skip_blank();
    return position_ >= text_.size();
  }

  bool take(char c);
  void expect(char c);
  /// The run of name characters here, maybe empty; not taken.
  std::string_view peek_word();
  bool take_word(std::string_view word);
  void expect_word(std::string_view word);
  /// Name characters, at least one; `what` says what they are the name of.
  std::string_view expect_name(std::string_view what);
  /// What follows a `%`.
  std::string_view expect_value_name();
  int64_t expect_integer();
  double expect_float();
  std::string expect_string();
  shapes::Size expect_size();

  /// A UserError: `line 3, column 12: expected ..., got ...`.
  [[noreturn]] void fail_expected(std::string_view expected);
  [[noreturn]] void fail_at(size_t position, const std::string& text) const;

 private:
  std::string token();

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace tandem::ir
