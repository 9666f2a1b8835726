#pragma once

#include "fuzz/op.h"
#include "fuzz/program.h"
#include "fuzz/random.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tandem::fuzz {

/// The variables that a statement can use while a program is made. They hold real tensors: the
/// program runs eagerly as it grows, so libtorch itself says which operands fit.
class Chooser {
 public:
  Chooser(Random& random, Tensors& live) : random(random), live(live) {}

  using Wanted = std::function<bool(const at::Tensor&)>;
  /// A defined variable with this property; later ones are likelier.
  std::optional<int> pick(const Wanted& wanted);
  const at::Tensor& value(int variable) const { return live[static_cast<size_t>(variable)]; }
  /// A variable of these sizes and dtype: one that exists, or an existing one refitted by a
  /// statement that goes before the one being chosen.
  int fit(const std::vector<int64_t>& sizes, at::ScalarType dtype);
  /// Indices in [0, limit).
  int indices(const std::vector<int64_t>& sizes, int64_t limit);
  int mask(const std::vector<int64_t>& sizes);
  int new_variable();
  /// Runs it on the live tensors and puts it before the one being chosen.
  int prepend(Statement statement);

  /// The variable holds a closed-over tensor itself.
  bool is_closed_over(int variable) const;

  Random& random;
  Tensors& live;
  std::vector<Statement> before{};
  std::set<int> closed_over{};         // variables that torch::autograd::grad inside must not name
  std::set<const void*> inputs{};      // tensors that came in
  std::set<const void*> parameters{};  // those of them that require grad
  bool parameters_are_related = false;
  bool may_raise = false;
  bool sizes_change = false;  // from call to call: see changing_sizes.h
};

/// Runs one op on the variables. May raise what the op raises.
void run_op(const Statement& statement, Tensors& variables, const Surroundings& surroundings);

}  // namespace tandem::fuzz
