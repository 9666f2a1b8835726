#pragma once

#include <torch/torch.h>

/// Custom autograd functions that programs call. The text is the code, for programs that are
/// written out.
namespace tandem::fuzz {

#define TANDEM_FUZZ_CODE(text, ...) \
  __VA_ARGS__                       \
  inline constexpr const char* text = #__VA_ARGS__;

// clang-format off
TANDEM_FUZZ_CODE(kCustomFunctions,
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SavesInput : torch::autograd::Function<SavesInput> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {grads[0] * 2 * context->get_saved_variables()[0]};
  }
};

struct SavesOutput : torch::autograd::Function<SavesOutput> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    at::Tensor y = x.tanh();
    context->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    at::Tensor y = context->get_saved_variables()[0];
    return {grads[0] * (1 - y * y)};
  }
};

struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    context->save_for_backward({x, y});
    return x * y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list saved = context->get_saved_variables();
    return {grads[0] * saved[1], grads[0] * saved[0]};
  }
};

struct MarksDirty : torch::autograd::Function<MarksDirty> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    x.mul_(3);
    context->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 3}; }
};

struct TwoResults : torch::autograd::Function<TwoResults> {
  static variable_list forward(AutogradContext* context, at::Tensor x) {
    at::Tensor fixed = x * 3;
    context->mark_non_differentiable({fixed});
    return {x * 2, fixed};
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 2}; }
};

struct MixesGradients : torch::autograd::Function<MixesGradients> {
  static variable_list forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return {x * 2, x * x};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {grads[0] * (1 + grads[1]) + grads[1] * context->get_saved_variables()[0]};
  }
};

struct DividesGradients : torch::autograd::Function<DividesGradients> {
  static variable_list forward(AutogradContext*, at::Tensor x, at::Tensor y) {
    return {x + y, x - y};
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0] / (grads[1].abs() + 2), grads[1] / (grads[0] * grads[0] + 1)};
  }
};

struct ProjectsGradients : torch::autograd::Function<ProjectsGradients> {
  static variable_list forward(AutogradContext*, at::Tensor x) { return {x * 3, x - 1}; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    at::Tensor along = (grads[0] * grads[1]).sum() / ((grads[1] * grads[1]).sum() + 0.5);
    return {grads[0] - along * grads[1]};
  }
};

struct AsksForGradients : torch::autograd::Function<AsksForGradients> {
  static variable_list forward(AutogradContext* context, at::Tensor x) {
    context->set_materialize_grads(false);
    return {x * 2, x * 3};
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    if (!grads[0].defined()) return {grads[1].defined() ? grads[1] * 3 : at::Tensor()};
    return {grads[1].defined() ? grads[0] * 2 + grads[1] * 3 : grads[0] * 7};
  }
};

struct PassesUndefined : torch::autograd::Function<PassesUndefined> {
  static variable_list forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    context->set_materialize_grads(false);
    return {x * 2, y * 3};
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0].defined() ? grads[0] * 2 : at::Tensor(),
            grads[1].defined() ? grads[1] * 3 : at::Tensor()};
  }
};

struct CountsBackwards : torch::autograd::Function<CountsBackwards> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, at::Tensor count) {
    context->saved_data["count"] = count;
    return x * 1.5;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    context->saved_data["count"].toTensor().add_(1);
    return {grads[0] * 1.5, at::Tensor()};
  }
};

struct AveragesGradients : torch::autograd::Function<AveragesGradients> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, at::Tensor average) {
    context->saved_data["average"] = average;
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    context->saved_data["average"].toTensor().mul_(0.5).add_(grads[0].sum());
    return {grads[0] * 2, at::Tensor()};
  }
};

struct ReturnsView : torch::autograd::Function<ReturnsView> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.unsqueeze(0); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0].squeeze(0) * 2};
  }
};

struct ReturnsInput : torch::autograd::Function<ReturnsInput> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 0.5}; }
};

struct UndefinedGradient : torch::autograd::Function<UndefinedGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x, at::Tensor y) { return x + y; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0], at::Tensor()};
  }
};

struct WritesSaved : torch::autograd::Function<WritesSaved> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    at::Tensor factor = x + 1;
    context->save_for_backward({factor});
    return x * factor;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    at::Tensor factor = context->get_saved_variables()[0].clone();
    factor.mul_(2);
    return {grads[0] * factor};
  }
};

struct WritesGradient : torch::autograd::Function<WritesGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    at::Tensor grad = grads[0].clone();
    grad.mul_(2);
    return {grad};
  }
};

struct Recomputes : torch::autograd::Function<Recomputes> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.sin() * x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    at::AutoGradMode grad_mode(true);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    return torch::autograd::grad({x.sin() * x}, {x}, {grads[0]});
  }
};

struct Scales : torch::autograd::Function<Scales> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, double factor) {
    context->saved_data["factor"] = factor;
    return x * factor;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {grads[0] * context->saved_data["factor"].toDouble(), at::Tensor()};
  }
};
)
// clang-format on

}  // namespace tandem::fuzz
