#include "support/like_eager.h"

#include "support/same_bits.h"
#include "support/wide_run.h"

#include <sstream>

namespace tandem::test {
namespace {

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

/// `result 0 ~ argument 1`, `result 2 is result 0`: sharing of memory, and identity.
std::string sharing(const Tensors& results, const Case& inputs) {
  std::ostringstream out;
  const auto compare = [&](size_t i, const char* kind, size_t j, const at::Tensor& other) {
    const at::Tensor& result = results[i];
    if (!result.defined() || !other.defined()) return;
    if (result.is_same(other)) {
      out << "result " << i << " is " << kind << " " << j << "; ";
    } else if (result.storage().is_alias_of(other.storage())) {
      out << "result " << i << " ~ " << kind << " " << j << " at " << result.storage_offset()
          << "; ";
    }
  };
  for (size_t i = 0; i < results.size(); ++i) {
    for (size_t j = 0; j < inputs.arguments.size(); ++j)
      compare(i, "argument", j, inputs.arguments[j]);
    for (size_t j = 0; j < inputs.leaves.size(); ++j) compare(i, "leaf", j, inputs.leaves[j]);
    for (size_t j = 0; j < i; ++j) compare(i, "result", j, results[j]);
  }
  return out.str();
}

struct Gradients {
  Tensors values;
  std::string errors;
};

/// Of each differentiable result by itself, then of all together, with respect to every leaf and
/// argument.
Gradients differentiate(const Tensors& results, const Case& inputs) {
  torch::manual_seed(7);
  Gradients gradients;
  Tensors roots, tangents, wanted;
  for (const at::Tensor& result : results) {
    if (result.defined() && result.requires_grad() && !result.is_leaf()) roots.push_back(result);
  }
  for (const Tensors* list : {&inputs.leaves, &inputs.arguments}) {
    for (const at::Tensor& tensor : *list) {
      if (tensor.defined() && tensor.requires_grad()) wanted.push_back(tensor);
    }
  }
  if (wanted.empty()) return gradients;
  const auto add = [&](const Tensors& from, const Tensors& with) {
    try {
      for (at::Tensor& g : torch::autograd::grad(from, wanted, with, true, false, true)) {
        gradients.values.push_back(std::move(g));
      }
    } catch (const c10::Error& error) {
      gradients.errors += std::string(error.what_without_backtrace()).substr(0, 60) + "; ";
    }
  };
  for (const at::Tensor& root : roots) {
    tangents.push_back(torch::randn(root.sizes(), root.options().requires_grad(false)));
    add({root}, {tangents.back()});
  }
  if (roots.size() > 1) add(roots, tangents);
  return gradients;
}

void expect_same_state(const Tensors& eager, const Tensors& compiled, const char* kind) {
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    SCOPED_TRACE(std::string(kind) + " " + std::to_string(i));
    EXPECT_TRUE(same_bits(eager[i], compiled[i]));
    if (!eager[i].defined() || !compiled[i].defined()) continue;
    EXPECT_EQ(eager[i].strides(), compiled[i].strides());
    EXPECT_EQ(version_of(eager[i]), version_of(compiled[i])) << "version";
    EXPECT_EQ(eager[i].is_leaf(), compiled[i].is_leaf());
    EXPECT_EQ(static_cast<bool>(eager[i].grad_fn()), static_cast<bool>(compiled[i].grad_fn()));
  }
}

}  // namespace

void expect_like_eager(const MakeCase& make, const Program& program, Options options) {
  auto compiled = tandem::compile<Tensors(Tensors)>(program, std::move(options));
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    // The closure is what the last make() left, so eager runs to its end before the compiled run
    // starts.
    WideRun wide_run;
    Case a;
    Tensors eager;
    at::Tensor eager_random;
    std::string eager_sharing;
    Gradients eager_gradients;
    {
      const WideRun::Scope scope(wide_run);
      torch::manual_seed(1);
      a = make();
      torch::manual_seed(2);
      eager = program(a.arguments);
      eager_random = at::detail::getDefaultCPUGenerator().get_state();
      eager_sharing = sharing(eager, a);
      eager_gradients = differentiate(eager, a);
    }

    torch::manual_seed(1);
    Case b = make();
    torch::manual_seed(2);
    const Tensors results = compiled(b.arguments);
    const at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();

    EXPECT_TRUE(same_bits(eager_random, random)) << "random stream";
    EXPECT_EQ(eager_sharing, sharing(results, b));
    expect_same_state(eager, results, "result");
    expect_same_state(a.arguments, b.arguments, "argument");
    expect_same_state(a.leaves, b.leaves, "leaf");
    const Gradients gradients = differentiate(results, b);
    EXPECT_EQ(eager_gradients.errors, gradients.errors);
    ASSERT_EQ(eager_gradients.values.size(), gradients.values.size());
    for (size_t i = 0; i < gradients.values.size(); ++i) {
      EXPECT_TRUE(same_bits(eager_gradients.values[i], gradients.values[i])) << "gradient " << i;
    }
  }
}

void expect_both_throw(const MakeCase& make, const Program& program, const std::string& words) {
  const auto text_of = [&](const std::function<void()>& run) -> std::string {
    try {
      run();
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  };
  torch::manual_seed(1);
  Case a = make();
  const std::string eager = text_of([&] { program(a.arguments); });
  EXPECT_NE(eager.find(words), std::string::npos) << "eager said: " << eager;

  torch::manual_seed(1);
  Case b = make();
  torch::manual_seed(1);
  Case untouched = make();
  auto compiled = tandem::compile<Tensors(Tensors)>(program);
  const std::string text = text_of([&] { compiled(b.arguments); });
  EXPECT_NE(text.find(words), std::string::npos) << "compiled said: " << text;
  expect_same_state(untouched.arguments, b.arguments, "argument");
}

}  // namespace tandem::test
