#pragma once

#include "fuzz/program.h"
#include "tandem/tandem.h"

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tandem::fuzz {

using Boxed = std::function<Tensors(Tensors)>;

/// Runs the parts of one program.
class Interpreter {
 public:
  /// If compiled, calls of inner functions are calls of compiled functions.
  Interpreter(const ProgramSpec& program, bool compiled);

  void run(const std::vector<Statement>& statements, Tensors& variables) const;
  Tensors call(const Function& function, Tensors parameters) const;
  /// All variables of an origin, leaves first; draws from the default generator.
  Tensors make(const Origin& origin) const;

  const at::Generator& generator() const { return *surroundings_.generator; }
  /// Stays where it is.
  Surroundings& surroundings() { return surroundings_; }

 private:
  Surroundings surroundings_{};
  std::vector<Boxed> inner_{};
};

/// Data for a leaf; draws from the default generator.
at::Tensor fill(const Leaf& leaf);

/// The same tensor in memory of its own, with a history if it has one.
at::Tensor apart(const at::Tensor& tensor);

/// The variables that an origin gives to the function.
Tensors given(const Origin& origin, const Tensors& variables);

}  // namespace tandem::fuzz
