#include "ir/text/cursor.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "ir/text/words.h"

#include <algorithm>
#include <charconv>

namespace tandem::ir {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Cursor::skip_blank() {
  while (position_ < text_.size()) {
    char c = text_[position_];
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++position_;
    } else if (c == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else {
      return;
    }
  }
}

void Cursor::skip_spaces() {
  while (here() == ' ' || here() == '\t') ++position_;
}

bool Cursor::take(char c) {
  skip_blank();
  if (here() != c) return false;
  ++position_;
  return true;
}

void Cursor::expect(char c) {
  if (!take(c)) fail_expected(base::str("'", c, "'"));
}

std::string_view Cursor::peek_word() {
  skip_blank();
  size_t end = position_;
  while (end < text_.size() && is_name_char(text_[end])) ++end;
  return text_.substr(position_, end - position_);
}

bool Cursor::take_word(std::string_view word) {
  if (peek_word() != word) return false;
  position_ += word.size();
  return true;
}

void Cursor::expect_word(std::string_view word) {
  if (!take_word(word)) fail_expected(base::str("'", word, "'"));
}

std::string_view Cursor::expect_name(std::string_view what) {
  std::string_view name = peek_word();
  if (name.empty()) fail_expected(what);
  position_ += name.size();
  return name;
}

std::string_view Cursor::expect_value_name() {
  if (peek() != '%') fail_expected("a value");
  size_t start = position_++;
  size_t end = position_;
  while (end < text_.size() && is_name_char(text_[end])) ++end;
  if (end == position_) {
    position_ = start;
    fail_expected("a value");
  }
  std::string_view name = text_.substr(position_, end - position_);
  position_ = end;
  return name;
}

int64_t Cursor::expect_integer() {
  skip_blank();
  int64_t number = 0;
  auto [end, error] =
      std::from_chars(text_.data() + position_, text_.data() + text_.size(), number);
  if (error != std::errc()) fail_expected("an integer");
  position_ = static_cast<size_t>(end - text_.data());
  return number;
}

double Cursor::expect_float() {
  skip_blank();
  std::string_view left = rest();
  double number = 0;
  if (!read_float(left, number)) fail_expected("a float");
  position_ = text_.size() - left.size();
  return number;
}

std::string Cursor::expect_string() {
  if (!take('"')) fail_expected("a string");
  size_t start = position_ - 1;
  std::string out;
  while (true) {
    char c = here();
    if (position_ >= text_.size() || c == '\n') fail_at(start, "a string is not closed");
    ++position_;
    if (c == '"') return out;
    if (c != '\\') {
      out += c;
      continue;
    }
    char escape = here();
    ++position_;
    switch (escape) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case '"':
      case '\\':
        out += escape;
        break;
      case 'x': {
        int high = hex_digit(here());
        int low = position_ + 1 < text_.size() ? hex_digit(text_[position_ + 1]) : -1;
        if (high < 0 || low < 0) fail_at(position_ - 2, "expected two hex digits after '\\x'");
        out += static_cast<char>(high << 4 | low);
        position_ += 2;
        break;
      }
      default:
        fail_at(position_ - 2,
                base::str("expected \\n, \\t, \\r, \\\", \\\\ or \\x, got '\\", escape, "'"));
    }
  }
}

shapes::Size Cursor::expect_size() {
  skip_blank();
  std::string_view rest = text_.substr(position_);
  try {
    shapes::Size size = shapes::Size::parse(rest);
    position_ = text_.size() - rest.size();
    return size;
  } catch (const UserError& error) {
    // The text of this error starts with its stage and gives no position: fail_at gives one.
    std::string_view text = error.what();
    text.remove_prefix(error.stage().size() + 2);
    fail_at(text_.size() - rest.size(), std::string(text));
  }
}

void Cursor::fail_expected(std::string_view expected) {
  skip_blank();
  fail_at(position_, base::str("expected ", expected, ", got ", token()));
}

void Cursor::fail_at(size_t position, const std::string& text) const {
  std::string_view before = text_.substr(0, position);
  auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t start = before.rfind('\n');
  size_t column = position - (start == std::string_view::npos ? 0 : start + 1) + 1;
  throw UserError("parse", base::str("line ", line, ", column ", column, ": ", text));
}

std::string Cursor::token() {
  if (position_ >= text_.size()) return "the end of the text";
  size_t end = position_ + 1;
  if (is_name_char(here()) || here() == '%') {
    while (end < text_.size() && is_name_char(text_[end])) ++end;
  }
  constexpr size_t kMaxShown = 60;
  return base::str("'", text_.substr(position_, std::min(end - position_, kMaxShown)), "'");
}

}  // namespace tandem::ir
