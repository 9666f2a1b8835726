#pragma once

#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace tandem::test {

using Tensors = std::vector<at::Tensor>;
/// A program on a list of tensors.
using Program = std::function<Tensors(const Tensors&)>;

/// What a program is run on. Made anew for every run, from the same seed.
struct Case {
  Tensors arguments;
  Tensors leaves;  // everything else whose gradient, data or version is compared: closures, roots
                   // of arguments
};
using MakeCase = std::function<Case()>;

/// Runs the program eagerly and compiled, twice each on fresh inputs, and compares whatever a
/// caller can see: results, arguments and leaves after the call, version counters, requires_grad,
/// leafness, grad_fn presence, who shares memory with whom, which results are the same object,
/// gradients of every result by itself and of all together, and the random stream. `make` fills
/// closures too.
void expect_like_eager(const MakeCase& make, const Program& program, Options options = {});

/// Both must throw; the texts must share `words`. Nothing may have happened to arguments or leaves.
void expect_both_throw(const MakeCase& make, const Program& program, const std::string& words);

}  // namespace tandem::test
