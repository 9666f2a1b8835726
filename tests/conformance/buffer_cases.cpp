#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

namespace tandem::conformance {
namespace {

namespace nn = torch::nn;

void native_batch_norm(Session& session) {
  session.judge(
      [] {
        at::Tensor x = leaf({2, 5, 5, 5}), w = leaf({5}), b = leaf({5});
        return Inputs{{x, w, b, torch::randn({5}), torch::rand({5}) + 0.5}, {x, w, b}};
      },
      [](Tensors& a) -> Tensors {
        auto [out, mean, invstd] =
            at::native_batch_norm(a[0], a[1], a[2], a[3], a[4], true, 0.3, 1e-5);
        return {out, mean, invstd};
      });
}

/// A module as a program: its parameters are leaves, its buffers are watched.
template <class Module>
Program module_program(Module net, std::vector<int64_t> sizes, bool requires_grad) {
  return {[=] {
            Inputs inputs{{leaf(sizes, requires_grad)}};
            inputs.leaves = net->parameters();
            inputs.leaves.push_back(inputs.arguments[0]);
            inputs.watched = net->buffers();
            return inputs;
          },
          [=](Tensors& a) mutable -> Tensors { return {net->forward(a[0])}; },
          [=](const Options& options) {
            return handle_of(
                tandem::compile(net, options),
                [](const auto& compiled, Tensors& a) -> Tensors { return {compiled(a[0])}; });
          }};
}

void batchnorm_inference(Session& session) {
  Settings settings;
  settings.around = in_no_grad_mode;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.kind(), EntryKind::inference);
    EXPECT_FALSE(entry.signature().writes_any_input());
  };
  session.judge(
      [] {
        nn::BatchNorm2d net(4);
        net->eval();
        return module_program(net, {1, 4, 2, 2}, false);
      },
      settings);
}

void batchnorm(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) { EXPECT_TRUE(entry.signature().writes_any_input()); };
  session.judge([] { return module_program(nn::BatchNorm2d(4), {1, 4, 2, 2}, true); }, settings);
  // The loss inside, too.
  session.judge([] {
    nn::BatchNorm2d net(4);
    Program program = module_program(net, {1, 4, 2, 2}, true);
    program.function = [net](Tensors& a) mutable -> Tensors { return {net->forward(a[0]).sum()}; };
    program.compile = {};
    return program;
  });
}

struct CountsAndScalesImpl : nn::Module {
  CountsAndScalesImpl() {
    buffer = register_buffer("buffer", torch::ones({6}));
    w1 = register_parameter("w1", torch::randn({6}));
    w2 = register_parameter("w2", torch::randn({6}));
  }
  at::Tensor forward(at::Tensor x) {
    buffer.add_(1);
    return (w1 * x * w2).sum() + buffer.sum();
  }
  at::Tensor buffer, w1, w2;
};
TORCH_MODULE(CountsAndScales);

struct CountsAndMultipliesImpl : nn::Module {
  CountsAndMultipliesImpl() {
    buffer = register_buffer("buffer", torch::ones({4, 4}));
    w = register_parameter("w", torch::randn({4, 2}));
  }
  at::Tensor forward(at::Tensor x) {
    buffer.add_(1);
    return x.matmul(w).sum() + buffer.sum();
  }
  at::Tensor buffer, w;
};
TORCH_MODULE(CountsAndMultiplies);

/// The buffer is written by the forward graph; `saved` values cross to the backward.
Settings buffer_written(size_t saved) {
  Settings settings;
  settings.entry = [saved](const Entry& entry) {
    const ir::InputFacts& buffer = entry.signature().inputs[0];
    EXPECT_EQ(buffer.role, ir::Descriptor::buffer("buffer"));
    EXPECT_TRUE(buffer.data_written);
    EXPECT_FALSE(buffer.history_changed);
    EXPECT_EQ(entry.saved().size(), saved);
  };
  return settings;
}

}  // namespace

Category batch_norm_buffers() {
  return {"Batch norm buffers and other mutated buffers",
          {
              {"test_input_mutation_batchnorm", native_batch_norm},
              {"test_batchnorm_inference", batchnorm_inference},
              {"test_batchnorm", batchnorm},
              // Saved: both parameters, the input and one product.
              {"test_buffer_copied_in_graph",
               [](Session& session) {
                 session.judge([] { return module_program(CountsAndScales(), {6}, true); },
                               buffer_written(4));
               }},
              // Saved: weight and input.
              {"test_buffer_copied_in_graph_with_different_shapes",
               [](Session& session) {
                 session.judge([] { return module_program(CountsAndMultiplies(), {4, 4}, true); },
                               buffer_written(2));
               }},
          }};
}

}  // namespace tandem::conformance
