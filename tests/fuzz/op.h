#pragma once

#include "fuzz/program.h"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tandem::fuzz {

/// What the expression of an op may use. The names are those of its text.
struct Operands {
  at::Tensor x{}, y{}, z{}, w{};
  Tensors xs{};  // all operands
  int64_t i = 0, j = 0, k = 0;
  std::vector<int64_t> s{};
  double c = 0, d = 0;
  at::ScalarType t = at::kDouble;
  std::optional<at::Generator> g{};
  double host_number = 0;
  at::Tensor host_tensor{};
};

/// Facts about an op that the generator heeds. A set of bits.
enum Trait : unsigned {
  kPlain = 0,
  kInPlace = 1 << 0,          // writes x
  kView = 1 << 1,             // a result shares memory with x
  kRandom = 1 << 2,           // draws
  kRounds = 1 << 3,           // its bits depend on the layout of its operands: on memory with gaps
                              // nothing is promised
  kOtherFormula = 1 << 4,     // autograd takes another formula in a trace: gradients may round
  kDiscontinuous = 1 << 5,    // a last bit of its operand may change everything
  kCustom = 1 << 6,           // a torch::autograd::Function
  kInnerGrad = 1 << 7,        // torch::autograd::grad inside
  kNoGradient = 1 << 8,       // its results never require grad
  kToggle = 1 << 9,           // changes flags or metadata, not data
  kNoOverlap = 1 << 11,       // eager promises nothing if x overlaps another operand
  kNoResult = 1 << 12,        // its result is not kept
  kFirstOrderOnly = 1 << 10,  // libtorch has no derivative of its backward
  kEagerBits = 1 << 14,       // eager's bits are promised by the backend eager only
  kLosesZeros = 1 << 13,      // of one element, its gradient in a trace does not depend on it
  kEitherZero = 1 << 15,      // eager's vectors and its loops give zeros of other signs
  kTellsZeros = 1 << 16,      // gives something else for 0 than for -0
};

class Chooser;
/// Fills operands and constants; false if the variables there are do not allow it.
using Pattern = bool (*)(Chooser&, Statement&);

struct Op {
  std::string_view name;
  std::string_view text;  // a C++ expression in the names of Operands
  Tensors (*run)(Operands&);
  Pattern pattern;
  unsigned traits = kPlain;
  std::optional<ProgramPattern> only_in{};  // drawn in no other programs
  bool has(Trait trait) const { return (traits & trait) != 0; }
};

/// Every op that the fuzzer draws from.
std::span<const Op> all_ops();
const Op* find_op(std::string_view name);

std::vector<Op> pointwise_ops();
std::vector<Op> reduction_ops();
std::vector<Op> layer_ops();
std::vector<Op> shape_ops();
std::vector<Op> in_place_ops();
std::vector<Op> autograd_ops();
std::vector<Op> changing_sizes_ops();
std::vector<Op> pattern_ops();  // each belongs to a program pattern

inline Tensors packed(at::Tensor tensor) { return {std::move(tensor)}; }
inline Tensors packed(Tensors tensors) { return tensors; }
template <class... T>
Tensors packed(const std::tuple<T...>& tuple) {
  return std::apply([](const auto&... tensor) { return Tensors{tensor...}; }, tuple);
}

/// A row of the table; the expression is run and printed.
#define TANDEM_FUZZ_OP(name, pattern, traits, ...)                                     \
  ::tandem::fuzz::Op {                                                                 \
    name, #__VA_ARGS__,                                                                \
        [](::tandem::fuzz::Operands& operands) {                                       \
          [[maybe_unused]] auto& [x, y, z, w, xs, i, j, k, s, c, d, t, g, host_number, \
                                  host_tensor] = operands;                             \
          return ::tandem::fuzz::packed(__VA_ARGS__);                                  \
        },                                                                             \
        pattern, traits                                                                \
  }

}  // namespace tandem::fuzz
