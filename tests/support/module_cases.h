#pragma once

#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tandem::test {

using Tensors = std::vector<at::Tensor>;

/// A module with data to run it on.
struct ModuleRun {
  std::shared_ptr<torch::nn::Module> module;       // null for a function without state
  Tensors inputs;                                  // differentiable where floating
  Tensors targets;                                 // never differentiable
  std::function<Tensors(const Tensors&)> forward;  // of inputs and targets, in one list
};

/// One way to use a module. The name starts with the module's: `Conv2d`, `Conv2d_strided`.
struct ModuleCase {
  std::string name;
  std::function<ModuleRun()> make;  // draws parameters and data from the default generator
  bool autocast = true;             // also in an autocast region
  bool exact = true;  // false: the last bits may differ; docs/reference/differences.md says why
};

/// The usual ways to make one.
template <class Make, class Call>
ModuleCase module_case(std::string name, Make make, std::function<Tensors()> inputs,
                       std::function<Tensors()> targets, Call call) {
  return {std::move(name), [=] {
            auto module = make();
            return ModuleRun{module.ptr(), inputs(), targets(), [module, call](const Tensors& x) {
                               auto m = module;
                               return Tensors(call(m, x));
                             }};
          }};
}

/// Refused in an autocast region.
inline ModuleCase without_autocast(ModuleCase test_case) {
  test_case.autocast = false;
  return test_case;
}

inline ModuleCase up_to_rounding(ModuleCase test_case) {
  test_case.exact = false;
  return test_case;
}

/// One input, one result.
template <class Make>
ModuleCase unary(std::string name, std::vector<int64_t> sizes, Make make) {
  return module_case(
      std::move(name), make, [=] { return Tensors{torch::randn(sizes)}; }, [] { return Tensors{}; },
      [](auto& m, const Tensors& x) { return Tensors{m(x[0])}; });
}

/// A function without parameters.
inline ModuleCase function_case(std::string name, std::function<Tensors()> inputs,
                                std::function<Tensors()> targets,
                                std::function<Tensors(const Tensors&)> call) {
  return {std::move(name), [=] { return ModuleRun{nullptr, inputs(), targets(), call}; }};
}

inline ModuleCase unary_function(std::string name, std::vector<int64_t> sizes,
                                 std::function<at::Tensor(const at::Tensor&)> call) {
  return function_case(
      std::move(name), [=] { return Tensors{torch::randn(sizes)}; }, [] { return Tensors{}; },
      [=](const Tensors& x) { return Tensors{call(x[0])}; });
}

/// Runs the case eagerly and compiled, two calls each (the second a hit): float32, float64 and
/// bfloat16, training and evaluation, channels_last where an input has images, and in a CPU
/// autocast region. Compares results, strides, sharing of memory, gradients of inputs and
/// parameters, parameters, buffers and the random stream, bit for bit; where eager raises, both
/// raise alike. No metadata may come from a run on zeros.
void expect_module_like_eager(const ModuleCase& test_case);

/// The compiled form is refused with a text that holds `words`; module, arguments and random stream
/// are as they were.
void expect_module_refused(const ModuleCase& test_case, const std::string& words);

inline std::string module_case_name(const ::testing::TestParamInfo<ModuleCase>& info) {
  return info.param.name;
}
inline std::ostream& operator<<(std::ostream& out, const ModuleCase& test_case) {
  return out << test_case.name;
}

}  // namespace tandem::test
