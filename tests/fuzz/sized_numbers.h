#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Numbers of a statement that are sizes, or computed from sizes, as users write them.
namespace tandem::fuzz {

struct Statement;
struct Operands;

/// `x.size(dim)` of a variable.
struct SizeRead {
  int variable = 0;
  int64_t dim = 0;
};

/// Which number of the statement it is.
enum class Place { I, J, K, Sizes };

/// scale * the product of the reads / divisor + offset, asked for whenever the statement runs.
struct SizedNumber {
  Place place = Place::I;
  size_t index = 0;  // of a number in `sizes`
  std::vector<SizeRead> reads{};
  int64_t scale = 1, divisor = 1, offset = 0;
};

int64_t value_of(const SizedNumber& number, const std::vector<at::Tensor>& variables);

/// Puts what the sizes are now in the place of what they were when the program was made.
void ask_sizes(const Statement& statement, const std::vector<at::Tensor>& variables,
               Operands& operands);

/// The number in this place as C++, `plain` if it depends on no size.
std::string number_text(const Statement& statement, Place place, size_t index, int64_t plain);

/// Every variable of which the statement asks a size.
std::vector<int> variables_asked(const Statement& statement);
void rename_asked(Statement& statement, const std::function<int(int)>& name);

}  // namespace tandem::fuzz
