/// Programs that branch on `equal`, as the attention modules of the C++ front end do in every call.
#include "support/error_text.h"
#include "support/like_eager.h"
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

/// The branches differ in value, so that a wrong answer shows.
at::Tensor branch(const at::Tensor& a, const at::Tensor& b) {
  return torch::equal(a, b) ? a * 3 + b : a * b - a;
}

at::Tensor leaf(std::vector<float> values) {
  return torch::tensor(std::move(values)).requires_grad_(true);
}

std::string guards_of(const Entry& entry) {
  std::string text;
  for (const Guard& guard : entry.guards()) text += guard.text + "\n";
  return text;
}

TEST(Equality, ATracedTensorEqualsItself) {
  expect_like_eager([] { return Case{{torch::randn({3}).requires_grad_(true)}, {}}; },
                    [](const Tensors& in) { return Tensors{branch(in[0], in[0])}; });
  // Also through writes: both names stand for the same value afterwards.
  expect_like_eager([] { return Case{{torch::randn({3})}, {}}; },
                    [](const Tensors& in) {
                      const at::Tensor twice = in[0] * 2;
                      const at::Tensor alias = twice.view({3});
                      twice.add_(1);
                      return Tensors{branch(twice, alias)};
                    });
  auto step = tandem::compile([](const at::Tensor& x) {
    const at::Tensor twice = x * 2;
    const at::Tensor alias = twice.view({3});
    twice.add_(1);
    return branch(twice, alias);
  });
  step(torch::ones({3}));
  step(torch::ones({3}));
  EXPECT_EQ(step.stats().eager_calls, 0);
}

TEST(Equality, TheSamePureOpsOnTheSameTensorsAreEqual) {
  auto step = tandem::compile([](const at::Tensor& x) {
    return branch(torch::tanh(x).t().add(x.t(), 2), torch::tanh(x).t().add(x.t(), 2));
  });
  const at::Tensor x = torch::randn({2, 3});
  const at::Tensor y = torch::tanh(x).t().add(x.t(), 2);
  EXPECT_TRUE(same_bits(branch(y, y), step(x)));
  EXPECT_EQ(step.entries()[0].forward().node_count(), 6) << step.report();  // and no check
}

TEST(Equality, DrawsAreNotTheSameComputation) {
  const auto program = [](const Tensors& in) {
    return Tensors{branch(in[0] + torch::rand_like(in[0]), in[0] + torch::rand_like(in[0]))};
  };
  expect_like_eager([] { return Case{{torch::randn({4}).requires_grad_(true)}, {}}; }, program);
}

TEST(Equality, OtherSizesAreNeverEqual) {
  auto step = tandem::compile(
      [](const at::Tensor& a, const at::Tensor& b) { return torch::equal(a, b) ? a + 1 : a - 1; });
  const at::Tensor a = torch::ones({3}), b = torch::ones({1, 3});
  EXPECT_TRUE(same_bits(a - 1, step(a, b)));
  EXPECT_EQ(guards_of(step.entries()[0]).find("equal"), std::string::npos);
}

// eager compares values, whatever the dtypes
TEST(Equality, OtherDtypesAreComparedByValue) {
  expect_like_eager([] { return Case{{torch::ones({3}), torch::ones({3}, torch::kLong)}, {}}; },
                    [](const Tensors& in) { return Tensors{branch(in[0], in[1])}; });
}

TEST(Equality, OfArgumentsIsAGuard) {
  auto step = tandem::compile(branch);
  const at::Tensor a = leaf({1, 2}), b = leaf({1, 2}), c = leaf({1, 3});

  EXPECT_TRUE(same_bits(branch(a, b), step(a, b)));
  EXPECT_TRUE(same_bits(branch(b, a), step(b, a)));
  EXPECT_EQ(step.stats().traces, 1);
  EXPECT_NE(guards_of(step.entries()[0]).find("argument 0 and argument 1 are equal"),
            std::string::npos);

  EXPECT_TRUE(same_bits(branch(a, c), step(a, c)));
  EXPECT_EQ(step.stats().traces, 2);
  EXPECT_NE(guards_of(step.entries()[1]).find("argument 0 and argument 1 are not equal"),
            std::string::npos);
  EXPECT_NE(step.stats().misses[1].reason.find("entry 0: argument 0 and argument 1 are not equal, "
                                               "compiled for equal tensors"),
            std::string::npos)
      << step.stats().misses[1].reason;

  // Both entries stay in use; the data decides.
  EXPECT_TRUE(same_bits(branch(a, b), step(a, b)));
  EXPECT_TRUE(same_bits(branch(a, c), step(a, c)));
  c.data().copy_(a.data());
  EXPECT_TRUE(same_bits(branch(a, c), step(a, c)));
  EXPECT_EQ(step.stats().traces, 2);
}

TEST(Equality, OfAnArgumentAndAClosedOverTensorIsAGuard) {
  const at::Tensor anchor = torch::ones({3});
  auto step = tandem::compile([&](const at::Tensor& x) { return branch(x, anchor); });
  const at::Tensor x = torch::zeros({3}), y = torch::ones({3});
  EXPECT_TRUE(same_bits(branch(x, anchor), step(x)));
  EXPECT_TRUE(same_bits(branch(y, anchor), step(y)));
  EXPECT_EQ(step.stats().traces, 2);
  EXPECT_NE(step.stats().misses[1].reason.find(
                "argument 0 and lifted 0 are equal, compiled for tensors that differ"),
            std::string::npos)
      << step.stats().misses[1].reason;
}

/// Compares intermediates, after a draw and before a write.
struct Intermediates {
  at::Tensor calls = torch::zeros({});
  at::Tensor operator()(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor noise = torch::rand_like(a);
    calls.add_(1);
    return branch(a * 2, b + b) + noise;
  }
};

TEST(Equality, OfIntermediatesIsCheckedInEveryCall) {
  const at::Tensor a = leaf({1, 2}), b = leaf({1, 2}), c = leaf({1, 3});
  Intermediates eager, program;
  auto step = tandem::compile<at::Tensor(at::Tensor, at::Tensor)>(std::ref(program));
  const auto both = [&](const at::Tensor& x, const at::Tensor& y) {
    torch::manual_seed(3);
    const at::Tensor expected = eager(x, y);
    const at::Tensor expected_state = at::detail::getDefaultCPUGenerator().get_state();
    torch::manual_seed(3);
    const at::Tensor result = step(x, y);
    EXPECT_TRUE(same_bits(expected, result));
    EXPECT_TRUE(same_bits(expected_state, at::detail::getDefaultCPUGenerator().get_state()));
    EXPECT_TRUE(same_bits(eager.calls, program.calls));
    const Tensors tangent{torch::ones_like(result)};
    const Tensors wanted = torch::autograd::grad({expected}, {x, y}, tangent);
    const Tensors got = torch::autograd::grad({result}, {x, y}, tangent);
    EXPECT_TRUE(same_bits(wanted[0], got[0]));
    EXPECT_TRUE(same_bits(wanted[1], got[1]));
  };
  both(a, c);
  EXPECT_EQ(step.stats().eager_calls, 0);
  both(a, b);  // equal after all: the function itself runs
  EXPECT_EQ(step.stats().eager_calls, 1);
  both(c, a);
  EXPECT_EQ(step.stats().eager_calls, 1);
  EXPECT_EQ(step.stats().traces, 1);
}

// Twice the same check is two checks; nobody reads them, and they stay.
TEST(Equality, ChecksAreNeitherMergedNorDropped) {
  auto step = tandem::compile([](const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x = a.exp(), y = b.sin();
    int equal = 0;
    for (int i = 0; i < 2; ++i) equal += torch::equal(x, y);
    return a + equal;
  });
  step(torch::ones({2}).requires_grad_(true), torch::zeros({2}));
  const std::string text = ir::print(step.entries()[0].forward());
  const std::string check = "tandem.check_not_equal(";
  const size_t first = text.find(check);
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find(check, first + 1), std::string::npos) << text;
  EXPECT_EQ(ir::print(step.entries()[0].backward()).find(check), std::string::npos);
}

TEST(Equality, OfGradientsIsRefused) {
  struct Compare : torch::autograd::Function<Compare> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
      context->save_for_backward({x});
      return x.sin();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list tangents) {
      const at::Tensor x = context->get_saved_variables()[0];
      return {torch::equal(x, tangents[0]) ? x : tangents[0]};
    }
  };
  auto step = tandem::compile([](const at::Tensor& x) { return Compare::apply(x); });
  const at::Tensor x = leaf({1, 2});
  EXPECT_NE(test::error_text<UnsupportedError>([&] {
              step(x);
            }).find("aten.equal reads the value of a tensor"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::test
