#pragma once

#include "conformance/program.h"

#include <string>
#include <vector>

namespace tandem::conformance {

/// How two records of one name are compared.
enum class RecordKind {
  Text,
  Value,           // bit for bit, with dtype and sizes
  Gradient,        // the same, or up to rounding where the program says so
  GradientSum,     // up to rounding: sums over a call and what lies outside it
  HigherGradient,  // the same, of gradients of gradients, where more is summed
  Error,           // the beginning of eager's text occurs in ours
  ResultHistory    // a grad_fn: of a view the node of its op, otherwise whether there is one
};

struct Record {
  std::string what;
  RecordKind kind = RecordKind::Text;
  std::string text{};
  at::Tensor value{};
};

/// Whatever a caller can see of one call: results, arguments afterwards, who shares memory with
/// whom, gradients, and what happens when the results are written in place.
struct Observation {
  std::vector<Record> records{};
  std::string error{};   // raised by the call; empty: none
  bool refused = false;  // the error is an UnsupportedError
  bool touched = false;  // the call raised, and an input or the generator is not as before
  std::string touched_what{};
};

using Call = std::function<Tensors(Tensors&)>;

/// Makes the inputs, calls, looks. `number` is that of the call, and its seed.
Observation observe(const Program& program, const Call& call, int number, const Settings& settings);

/// What is left of a call and its backward when inputs and results have been dropped: bytes, and
/// which tensors and storages are still alive. As text, empty if nothing.
std::string leftovers(const Program& program, const Call& call, int number,
                      const Settings& settings);

}  // namespace tandem::conformance
