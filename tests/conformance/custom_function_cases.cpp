#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

/// Custom autograd functions: what their backward does, and to which tensors.
namespace tandem::conformance {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Doubles in its backward what it has saved.
struct DoublesSaved : torch::autograd::Function<DoublesSaved> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.clone();
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    context->get_saved_variables()[0].mul_(2);
    return {grads[0].clone()};
  }
};

/// Writes its input, an intermediate, and in the backward the saved intermediate.
struct WritesEverywhere : torch::autograd::Function<WritesEverywhere> {
  static at::Tensor forward(AutogradContext* context, at::Tensor b) {
    at::_foreach_mul_({b}, 2);
    at::Tensor x = b + 1;
    at::_foreach_mul_({x}, 3);
    context->save_for_backward({x});
    return x * b;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    at::Tensor x = context->get_saved_variables()[0];
    x.mul_(4);
    return {grads[0] * x};
  }
};

/// Doubles the gradient that it is given, in place.
struct DoublesGradient : torch::autograd::Function<DoublesGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    grads[0].mul_(2);
    return {grads[0].clone()};
  }
};

/// Adds to its second input, in the backward, what it computes from the gradient.
struct LogsGradient : torch::autograd::Function<LogsGradient> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, at::Tensor log) {
    context->saved_data["log"] = log;
    return x * 1.5;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    context->saved_data["log"].toTensor().add_(grads[0].sum());
    return {grads[0] * 1.5, at::Tensor()};
  }
};

/// Copies the second gradient into the first.
struct CopiesGradient : torch::autograd::Function<CopiesGradient> {
  static variable_list forward(AutogradContext*, at::Tensor x) { return {x.clone(), x.clone()}; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    grads[0].copy_(grads[1]);
    return {grads[0]};
  }
};

struct HalvesGradient : torch::autograd::Function<HalvesGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 0.5}; }
};

struct AddsToGradient : torch::autograd::Function<AddsToGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] + 1}; }
};

/// Its gradient is the saved input itself.
struct GradientIsInput : torch::autograd::Function<GradientIsInput> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.sin();
  }
  static variable_list backward(AutogradContext* context, variable_list) {
    return {context->get_saved_variables()[0]};
  }
};

/// The write is done once: the judge differentiates several times, so this looks at one backward.
void backward_mutation_data(Session&) {
  const Function program = [](Tensors& a) -> Tensors { return {a[0] * DoublesSaved::apply(a[1])}; };
  for (const bool requires_grad : {false, true}) {
    const auto run = [&](const Function& call) {
      torch::manual_seed(1);
      at::Tensor a = leaf({3, 3}), b = leaf({3, 3}, requires_grad);
      const at::Tensor before = b.detach().clone();
      Tensors arguments = {a, b};
      call(arguments)[0].sum().backward();
      EXPECT_TRUE(at::equal(b.detach(), requires_grad ? before * 2 : before));
      return Tensors{a.grad(), b.grad(), b.detach().clone()};
    };
    const auto compiled =
        tandem::compile_boxed([&](Tensors arguments) { return program(arguments); });
    const Tensors expected = run(program), found = run([&](Tensors& a) { return compiled(a); });
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].defined(), found[i].defined()) << i;
      if (expected[i].defined()) {
        EXPECT_TRUE(at::equal(expected[i], found[i])) << i;
      }
    }
  }
}

void fw_bw_mutation(Session& session) {
  session.judge(
      [] {
        at::Tensor a = leaf({3, 3}), b = leaf({3, 3}, false);
        return Inputs{{a, b}, {a}};
      },
      [](Tensors& a) -> Tensors { return {a[0] * WritesEverywhere::apply(a[1])}; });
}

void mutations_in_bw_detached_from_tangent(Session&) {
  const Function program = [](Tensors& a) -> Tensors {
    return {LogsGradient::apply(a[0], a[1]).sin()};
  };
  const auto run = [&](const Function& call) {
    torch::manual_seed(1);
    at::Tensor x = leaf({3}), log = torch::zeros({3});
    Tensors arguments = {x, log};
    const at::Tensor out = call(arguments)[0];
    EXPECT_TRUE(at::equal(log, torch::zeros({3}))) << "the forward has written";
    out.sum().backward();
    EXPECT_FALSE(log.requires_grad());
    EXPECT_FALSE(at::equal(log, torch::zeros({3}))) << "the backward has not written";
    return Tensors{x.grad(), log.clone()};
  };
  const auto compiled =
      tandem::compile_boxed([&](Tensors arguments) { return program(arguments); });
  const Tensors expected = run(program), found = run([&](Tensors& a) { return compiled(a); });
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], found[i])) << i;
}

}  // namespace

Category mutation_in_backward() {
  return {
      "Mutation in the backward",
      {
          {"test_backward_mutation_data", backward_mutation_data},
          {"test_fw_bw_mutation_no_functionalization2", fw_bw_mutation},
          // Doubled outside, so that the gradient written is not the caller's own tensor.
          judged("test_backward_mutation_on_grad_out", leaves({{3, 3}, {3, 3}}),
                 [](Tensors& a) -> Tensors { return {DoublesGradient::apply(a[0] * a[1]) * 2}; }),
          {"test_mutations_in_bw_detached_from_tangent", mutations_in_bw_detached_from_tangent},
          judged("test_autograd_function_tangent_mutation", leaves({{3}}),
                 [](Tensors& a) -> Tensors {
                   const variable_list both = CopiesGradient::apply(a[0]);
                   return {both[0] * 2 + both[1] * 3};
                 }),
      }};
}

Category custom_functions() {
  return {"Custom op / custom autograd function",
          {
              judged_both("test_input_output_aliase_custom_autograd_function", {{3, 3}},
                          [](Tensors& a) -> Tensors { return {HalvesGradient::apply(a[0])}; }),
              judged("test_custom_autograd", leaves({{3, 3}}),
                     [](Tensors& a) -> Tensors { return {AddsToGradient::apply(a[0])}; }),
              judged("test_grad_inputs_alias_inputs", leaves({{3}, {3}}),
                     [](Tensors& a) -> Tensors { return {GradientIsInput::apply(a[0]) * a[1]}; }),
          }};
}

}  // namespace tandem::conformance
