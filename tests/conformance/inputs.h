#pragma once

#include "conformance/case.h"
#include "conformance/program.h"

#include <utility>
#include <vector>

/// Arguments of the usual kinds. Each list of sizes is one argument.
namespace tandem::conformance {

using Sizes = std::vector<std::vector<int64_t>>;
using MakeInputs = std::function<Inputs()>;
using Function = std::function<Tensors(Tensors&)>;

inline at::Tensor leaf(at::IntArrayRef sizes, bool requires_grad = true) {
  return torch::randn(sizes).set_requires_grad(requires_grad);
}

/// Leaves that require grad, passed as they are.
inline MakeInputs leaves(Sizes sizes) {
  return [sizes = std::move(sizes)] {
    Inputs inputs;
    for (const auto& size : sizes) inputs.leaves.push_back(leaf(size));
    inputs.arguments = inputs.leaves;
    return inputs;
  };
}

/// Results of an op on leaves: they require grad and may be written in place.
inline MakeInputs non_leaves(Sizes sizes) {
  return [sizes = std::move(sizes)] {
    Inputs inputs;
    for (const auto& size : sizes) {
      inputs.leaves.push_back(leaf(size));
      inputs.arguments.push_back(inputs.leaves.back() * 1.5);
    }
    return inputs;
  };
}

/// Tensors that do not require grad.
inline MakeInputs plain(Sizes sizes) {
  return [sizes = std::move(sizes)] {
    Inputs inputs;
    for (const auto& size : sizes) inputs.arguments.push_back(torch::randn(size));
    return inputs;
  };
}

/// Runs its argument without grad mode: for `Settings::around`.
inline void in_no_grad_mode(const std::function<void()>& body) {
  const torch::NoGradGuard no_grad;
  body();
}

/// A case that is one program without closure.
inline Case judged(std::string name, MakeInputs inputs, Function program, Settings settings = {}) {
  return {std::move(name), [=](Session& session) { session.judge(inputs, program, settings); }};
}

/// The same with arguments that require grad, and with arguments that do not.
inline Case judged_both(std::string name, Sizes sizes, Function program, Settings settings = {}) {
  return {std::move(name), [=](Session& session) {
            session.judge(non_leaves(sizes), program, settings);
            session.judge(plain(sizes), program, settings);
          }};
}

}  // namespace tandem::conformance
