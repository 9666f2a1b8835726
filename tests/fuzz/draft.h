#pragma once

#include "fuzz/generate.h"
#include "fuzz/op.h"
#include "fuzz/op_kinds.h"
#include "fuzz/program.h"
#include "fuzz/random.h"
#include "support/wide_run.h"

#include <array>
#include <optional>
#include <set>
#include <vector>

namespace tandem::fuzz {

inline constexpr int64_t kLargestNumel = 36;
/// So large that kernels hold back what spreads a single number over as many.
inline constexpr int64_t kSpreadNumel = 256;

/// What is left of the rules in programs that break them on purpose.
struct Limits {
  double largest = 300;
  int64_t numel = kLargestNumel;
  bool special = false;  // whatever the values
  bool empty = false;    // nothing is a value, too
};

/// The program came to values that compare badly: another one is made.
struct Wild {};

/// A program while it is made, and what is known of it so far.
struct Draft {
  Draft(Random& random, uint64_t seed, const GenerateOptions& options);
  bool has(ProgramPattern pattern) const { return program.patterns.contains(pattern); }

  Random& random;
  ProgramSpec program{};
  std::array<int64_t, kKinds> weights{};
  Limits limits{};
  std::vector<const Op*> pattern_ops{};  // of the patterns that the program has
  at::ScalarType dtype = at::kDouble;
  Surroundings surroundings{at::detail::createCPUGenerator(1)};
  const bool bits_promised;
  test::WideRun wide_run{};  // of what the program computes while it is made
  std::set<int> closed_over{};
  std::set<const void*> inexact{};   // storages of values whose bits are not promised
  std::set<const void*> drawn{};     // tensors that come from a draw
  bool lost_zeros = false;           // a product of one element
  std::set<const void*> folded{};    // storages of products that are views inside
  std::set<const void*> expanded{};  // storages of which expand() has made a view
  std::optional<int> raising{};      // what would hold the result of the op that raises
  bool may_raise = false, raised = false, in_loop = false;
  bool in_enable_grad = false, in_inner = false, in_further = false;
  bool used_custom = false;
  bool seen_gaps = false, seen_rounding = false;
  bool seen_either_zero = false, seen_told_zeros = false;
};

/// Whether a program may have such values.
bool is_tame(const at::Tensor& tensor, const Limits& limits);

inline const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace tandem::fuzz
