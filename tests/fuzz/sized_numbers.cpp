#include "fuzz/sized_numbers.h"

#include "fuzz/op.h"

#include <cstdlib>

namespace tandem::fuzz {

int64_t value_of(const SizedNumber& number, const std::vector<at::Tensor>& variables) {
  int64_t value = number.scale;
  for (const SizeRead& read : number.reads) {
    value *= variables[static_cast<size_t>(read.variable)].size(read.dim);
  }
  return value / number.divisor + number.offset;
}

void ask_sizes(const Statement& statement, const std::vector<at::Tensor>& variables,
               Operands& operands) {
  for (const SizedNumber& number : statement.sized) {
    const int64_t value = value_of(number, variables);
    switch (number.place) {
      case Place::I:
        operands.i = value;
        break;
      case Place::J:
        operands.j = value;
        break;
      case Place::K:
        operands.k = value;
        break;
      case Place::Sizes:
        operands.s[number.index] = value;
        break;
    }
  }
}

std::string number_text(const Statement& statement, Place place, size_t index, int64_t plain) {
  for (const SizedNumber& number : statement.sized) {
    if (number.place != place || number.index != index) continue;
    std::string text = number.scale == 1 ? "" : std::to_string(number.scale);
    for (const SizeRead& read : number.reads) {
      if (!text.empty()) text += " * ";
      text += "v" + std::to_string(read.variable) + ".size(" + std::to_string(read.dim) + ")";
    }
    if (number.divisor != 1) text += " / " + std::to_string(number.divisor);
    if (number.offset != 0) text += (number.offset > 0 ? " + " : " - ");
    if (number.offset != 0) text += std::to_string(std::abs(number.offset));
    return text.find(' ') == std::string::npos ? text : "(" + text + ")";
  }
  return std::to_string(plain);
}

std::vector<int> variables_asked(const Statement& statement) {
  std::vector<int> variables;
  for (const SizedNumber& number : statement.sized) {
    for (const SizeRead& read : number.reads) variables.push_back(read.variable);
  }
  return variables;
}

void rename_asked(Statement& statement, const std::function<int(int)>& name) {
  for (SizedNumber& number : statement.sized) {
    for (SizeRead& read : number.reads) read.variable = name(read.variable);
  }
}

}  // namespace tandem::fuzz
