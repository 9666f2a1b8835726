#include "fuzz/write_text.h"

#include "fuzz/op.h"

#include <cctype>
#include <cmath>
#include <sstream>
#include <string_view>

namespace tandem::fuzz {
namespace {

std::string variable(int number) { return "v" + std::to_string(number); }

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "INFINITY" : "-INFINITY";
  std::ostringstream out;
  out << value;
  const std::string text = out.str();
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string list(const Statement& statement) {
  std::string text = "at::IntArrayRef({";
  for (size_t index = 0; index < statement.sizes.size(); ++index) {
    text +=
        (index ? ", " : "") + number_text(statement, Place::Sizes, index, statement.sizes[index]);
  }
  return text + "})";
}

/// What a name of Operands stands for in this statement; the name itself if it is another one.
std::string meaning(std::string_view name, const Statement& statement) {
  const auto operand = [&](size_t index) {
    return index < statement.operands.size() ? variable(statement.operands[index])
                                             : std::string("at::Tensor()");
  };
  if (name == "x") return operand(0);
  if (name == "y") return operand(1);
  if (name == "z") return operand(2);
  if (name == "w") return operand(3);
  if (name == "i") return number_text(statement, Place::I, 0, statement.i);
  if (name == "j") return number_text(statement, Place::J, 0, statement.j);
  if (name == "k") return number_text(statement, Place::K, 0, statement.k);
  if (name == "c") return number(statement.c);
  if (name == "d") return number(statement.d);
  if (name == "s") return list(statement);
  if (name == "t") return std::string("at::k") + c10::toString(statement.dtype);
  if (name == "g") {
    return statement.own_generator ? "std::optional<at::Generator>(generator)"
                                   : "std::optional<at::Generator>()";
  }
  if (name == "xs") {
    std::string text = "Tensors{";
    for (size_t index = 0; index < statement.operands.size(); ++index) {
      text += (index ? ", " : "") + operand(index);
    }
    return text + "}";
  }
  return std::string(name);
}

}  // namespace

std::string statement_text(const Statement& statement) {
  const std::string_view text = statement.op->text;
  std::string expression;
  for (size_t at = 0; at < text.size();) {
    const auto is_word = [&](size_t index) {
      return std::isalnum(static_cast<unsigned char>(text[index])) || text[index] == '_';
    };
    if (text[at] == '"') {
      const size_t end = text.find('"', at + 1) + 1;
      expression += text.substr(at, end - at);
      at = end;
    } else if (is_word(at)) {
      size_t end = at;
      while (end < text.size() && is_word(end)) ++end;
      const bool member = at > 0 && (text[at - 1] == '.' || text[at - 1] == ':');
      const std::string_view word = text.substr(at, end - at);
      expression += member ? std::string(word) : meaning(word, statement);
      at = end;
    } else {
      expression += text[at++];
    }
  }
  if (statement.results.empty()) return expression + ";";
  if (statement.results.size() == 1) {
    return "assign({&" + variable(statement.results[0]) + "}, " + expression + ");";
  }
  std::string targets;
  for (int result : statement.results) {
    targets += (targets.empty() ? "&" : ", &") + variable(result);
  }
  return "assign({" + targets + "}, " + expression + ");";
}

}  // namespace tandem::fuzz
