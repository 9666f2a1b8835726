#include "joint/gradients/gradient_stop.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;

struct Stop : autograd::FunctionPreHook {
  Stop(uint32_t slot, std::shared_ptr<bool> closed) : slot(slot), closed(std::move(closed)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    autograd::variable_list passed = gradients;
    if (*closed) passed[slot] = at::Tensor();
    return passed;
  }

  uint32_t slot;
  std::shared_ptr<bool> closed;
};

}  // namespace

GradientStop::GradientStop(const autograd::Edge& edge) {
  edge.function->add_pre_hook(std::make_unique<Stop>(edge.input_nr, closed_));
}

}  // namespace tandem::joint
