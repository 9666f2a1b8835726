/// Ops of another library that write their arguments.
#include "support/effect_ops.h"
#include "support/error_text.h"
#include "support/like_eager.h"
#include "tandem/ir/text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <regex>

namespace tandem::test {
namespace {

using test::error_text;

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// Without the line that says where.
std::string without_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\n  at: [^\n]*"), "");
}

class UsersOp : public ::testing::Test {
 protected:
  void SetUp() override { register_effect_ops(); }
};

void expect_like_eager_on(std::vector<std::vector<int64_t>> sizes, const Program& program) {
  for (const Mutations mutations : {Mutations::in_graph, Mutations::epilogue}) {
    expect_like_eager(
        [=] {
          Case made;
          for (const auto& one : sizes) made.arguments.push_back(torch::randn(one));
          return made;
        },
        program, {.mutations = mutations});
  }
}

TEST_F(UsersOp, WritesAnArgumentAnIntermediateAndAView) {
  expect_like_eager_on({{3}}, [](const Tensors& a) -> Tensors {
    fill(a[0], 3);
    return {a[0] + 1};
  });
  expect_like_eager_on({{3}}, [](const Tensors& a) -> Tensors {
    const at::Tensor made = a[0] * 2;
    fill(made, 3);
    return {made + a[0], made * 1};
  });
  expect_like_eager_on({{3, 4}}, [](const Tensors& a) -> Tensors {
    fill(a[0].select(1, 2), 3);
    fill(a[0].t().narrow(0, 0, 1), 7);
    return {a[0].sum(), a[0].t()};
  });
}

TEST_F(UsersOp, ReturnsTheArgumentThatItWrites) {
  expect_like_eager_on({{3}}, [](const Tensors& a) -> Tensors {
    const at::Tensor same = bump(a[0]);
    return {same, bump(same) * 2};
  });
  expect_like_eager_on({{3}}, [](const Tensors& a) -> Tensors {
    const at::Tensor made = a[0].exp();
    return {bump(made) * 1, made.view({1, 3}) * 2};
  });
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    const at::Tensor made = x.exp();
    return std::vector<at::Tensor>{bump(made), made};
  });
  const std::vector<at::Tensor> results = compiled(torch::ones({3}));
  EXPECT_TRUE(results[0].is_same(results[1]));
}

TEST_F(UsersOp, ReturnsNewMemoryBesides) {
  expect_like_eager_on({{3}, {3}}, [](const Tensors& a) -> Tensors {
    return {add_into(a[0], a[1]), add_into(a[1], a[0]) * 2};
  });
}

TEST_F(UsersOp, WritesTheTensorsOfAList) {
  expect_like_eager_on({{3}, {2, 2}}, [](const Tensors& a) -> Tensors {
    const at::Tensor made = a[0] * 5;
    fill_list({a[1], made, a[0]});
    return {made * 1, a[0] + 1};
  });
}

TEST_F(UsersOp, WritesWithoutGradBesideGradients) {
  const auto make = [] {
    const at::Tensor x = leaf({3}), running = torch::zeros({3});
    return Case{{x, running}, {x}};
  };
  expect_like_eager(make, [](const Tensors& a) -> Tensors {
    {
      const torch::NoGradGuard no_grad;
      add_into(a[0].detach(), a[1]);
    }
    return {a[0] * a[0]};
  });
}

TEST_F(UsersOp, MarkedAsEffectfulItIsKeptThoughNobodyReadsWhatItWrites) {
  tandem::mark_effectful("logging::fill");
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    fill(x * 2, 1);
    return x + 1;
  });
  compiled(torch::ones({2}));
  const std::string text = ir::print(compiled.entries()[0].forward());
  EXPECT_NE(text.find("tandem_functional.logging__fill("), std::string::npos) << text;
  EXPECT_EQ(ir::print(ir::parse(text)), text);
}

// A graph that was written elsewhere names the form of an op which nobody has called here.
TEST_F(UsersOp, FormsAreMadeWhenATextNamesThem) {
  const std::string text =
      "graph g(%x: f32[3] user_input 0) {\n"
      "  %0: f32[3] = tandem_functional.logging__grow(%x)\n"
      "  return %0: output 0\n"
      "}\n";
  EXPECT_EQ(ir::print(ir::parse(text)), text);
}

// Eager differentiates what the kernel calls, and warns. A graph has the op, not its kernel.
TEST_F(UsersOp, WithoutAutogradKernelItGivesNoGradient) {
  const auto function = [](const at::Tensor& x) { return tap(x) * x; };
  const at::Tensor x = leaf({3});
  const at::Tensor eager = torch::autograd::grad({function(x).sum()}, {x})[0];
  const at::Tensor found = torch::autograd::grad({tandem::compile(function)(x).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(eager, x.detach() * 2));
  EXPECT_TRUE(at::equal(found, x.detach()));
}

TEST_F(UsersOp, RefusedWhereMemoryIsShared) {
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    add_into(x, x);
    return x + 1;
  });
  const at::Tensor x = torch::ones({2});
  const std::string text = error_text<UnsupportedError>([&] { compiled(x); });
  EXPECT_EQ(without_line(text),
            "trace: logging.add_into writes an argument that shares memory with another one\n"
            "  operands: f32[2], f32[2]\n"
            "  remedy:   pass a clone() of one of them");
  EXPECT_TRUE(at::equal(x, torch::ones({2})));
}

TEST_F(UsersOp, RefusedWhereAutogradWouldLookIntoTheKernel) {
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    at::Tensor made = x * 2;
    fill(made, 1);
    return made;
  });
  const std::string text = error_text<UnsupportedError>([&] { compiled(leaf({2})); });
  EXPECT_EQ(without_line(text),
            "trace: logging.fill writes an argument, in grad mode and with an operand that "
            "requires grad, and has no autograd kernel\n"
            "  operands: f32[2], 1.\n"
            "  remedy:   call it without grad (torch::NoGradGuard), or register an autograd kernel "
            "for it");
}

TEST_F(UsersOp, OneThatChangesSizesRaisesAndLeavesTheArgument) {
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    grow(x);
    return x + 1;
  });
  const at::Tensor x = torch::ones({2});
  try {
    compiled(x);
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("logging::grow changes the sizes of an argument from "
                        "[2] to [3]"),
              std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(at::equal(x, torch::ones({2})));
}

}  // namespace
}  // namespace tandem::test
