// Texts of export_module: what a graph that stands by itself cannot hold.
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

namespace tandem {
namespace {

using test::error_text;
using T = at::Tensor;
using Tensors = std::vector<T>;

/// A weight of 3, a buffer, and a forward that the test writes.
struct Probe : torch::nn::Module {
  explicit Probe(std::function<Tensors(Probe&, const T&)> body) : body(std::move(body)) {
    weight = register_parameter("weight", torch::ones({3}));
    seen = register_buffer("seen", torch::zeros({}));
  }
  Tensors forward(const T& x) { return body(*this, x); }
  std::function<Tensors(Probe&, const T&)> body;
  T weight, seen;
};

Exported export_probe(std::function<Tensors(Probe&, const T&)> body, const ExportOptions& options,
                      const T& x = torch::ones({3})) {
  return export_module(std::make_shared<Probe>(std::move(body)), std::tuple{x}, options);
}

Tensors loss_of(Probe& net, const T& x) { return {(x * net.weight).sum()}; }

std::string line_text(int line) { return std::string(__FILE__) + ":" + std::to_string(line); }

TEST(ExportErrors, TheLossIsOutOfRange) {
  EXPECT_EQ(error_text<UserError>([] { export_probe(loss_of, {.joint = true, .loss_output = 3}); }),
            "export: loss_output is 3, but the forward returns 1 tensor\n"
            "  remedy: count the tensors of the result from 0");
  EXPECT_EQ(
      error_text<UserError>([] { export_probe(loss_of, {.joint = true, .loss_output = -1}); }),
      "export: loss_output is -1, but the forward returns 1 tensor\n"
      "  remedy: count the tensors of the result from 0");
}

TEST(ExportErrors, TheLossIsNotOneNumber) {
  EXPECT_EQ(error_text<UserError>([] {
              export_probe([](Probe& net, const T& x) { return Tensors{x * net.weight}; },
                           {.joint = true});
            }),
            "export: output 0 cannot be the loss: expected one element, got f32[3]\n"
            "  remedy: reduce it with sum() or mean()");
}

TEST(ExportErrors, TheLossHasNoGradient) {
  EXPECT_EQ(error_text<UserError>([] {
              export_probe([](Probe&, const T& x) { return Tensors{x.sum()}; }, {.joint = true});
            }),
            "export: output 0 cannot be the loss: f32[] does not require grad\n"
            "  remedy: set loss_output to a result that is computed from parameters which require "
            "grad");
  EXPECT_EQ(error_text<UserError>([] {
              export_probe([](Probe&, const T&) { return Tensors{T()}; }, {.joint = true});
            }),
            "export: output 0 cannot be the loss: it is undefined\n"
            "  remedy: set loss_output to a result that is always there");
}

TEST(ExportErrors, AnotherResultRequiresGrad) {
  EXPECT_EQ(error_text<UserError>([] {
              export_probe(
                  [](Probe& net, const T& x) {
                    const T y = x * net.weight;
                    return Tensors{y, y.sum()};
                  },
                  {.joint = true, .loss_output = 1});
            }),
            "export: output 0 requires grad beside the loss, which is output 1\n"
            "  remedy: detach() it in the forward");
}

TEST(ExportErrors, AParameterThatGetsNoGradient) {
  EXPECT_EQ(error_text<UserError>([] {
              export_probe([](Probe&, const T& x) { return Tensors{x.sum()}; }, {.joint = true},
                           torch::ones({3}).requires_grad_());
            }),
            "export: the loss does not depend on param \"weight\", which should get a gradient\n"
            "  remedy: set requires_grad_(false) on it, or use it in the forward");
  EXPECT_EQ(error_text<UserError>([] {
              export_probe([](Probe& net, const T&) { return Tensors{net.weight.sum()}; },
                           {.joint = true}, torch::ones({3}).requires_grad_());
            }),
            "export: the loss does not depend on argument 0, which should get a gradient\n"
            "  remedy: set requires_grad_(false) on it, or use it in the forward");
}

TEST(ExportErrors, AJointExportWithoutGradMode) {
  torch::NoGradGuard no_grad;

  EXPECT_EQ(error_text<UserError>([] { export_probe(loss_of, {.joint = true}); }),
            "export: a joint export needs gradients, but grad mode is off on this thread\n"
            "  remedy: leave the scope of torch::NoGradGuard, or export without joint");
  EXPECT_NO_THROW(export_probe(loss_of, {}));
}

TEST(ExportErrors, ATensorThatTheModuleDoesNotRegister) {
  const T hidden = torch::ones({3});

  EXPECT_EQ(error_text<UnsupportedError>(
                [&] { export_probe([=](Probe&, const T& x) { return Tensors{x + hidden}; }, {}); }),
            "export: closed-over tensor 0 (f32[3]) is neither a parameter nor a buffer of the "
            "module\n"
            "  remedy: register it with register_buffer or register_parameter, or pass it as an "
            "argument");
}

TEST(ExportErrors, AWriteToWhatRequiresGrad) {
  auto write = [](Probe& net, const T& x) {
    {
      torch::NoGradGuard no_grad;
      net.weight.mul_(2);
    }
    return loss_of(net, x);
  };

  EXPECT_EQ(error_text<UnsupportedError>([&] { export_probe(write, {.joint = true}); }),
            "export: parameter \"weight\" requires grad and is written by the forward\n"
            "  remedy: write it outside the module, or export without joint");
  EXPECT_EQ(export_probe(write, {}).signature.mutated_parameters.count("weight"), 1);
}

TEST(ExportErrors, ABackwardThatEagerRefuses) {
  auto overwrite = [](Probe& net, const T& x) {
    const T y = (x * net.weight).exp();
    const T loss = y.sum();
    y.detach().zero_();
    return Tensors{loss};
  };

  EXPECT_EQ(error_text<UserError>([&] { export_probe(overwrite, {.joint = true}); }).substr(0, 109),
            "export: the backward of output 0 raises in eager\n"
            "  libtorch: one of the variables needed for gradient computa");
}

TEST(ExportErrors, ArgumentsThatShareMemoryAndAreWritten) {
  struct Pair : torch::nn::Module {
    T forward(const T& a, const T& b) {
      a.add_(1);
      return a + b;
    }
  };
  const int added = __LINE__ - 4;
  const T x = torch::ones({3});

  EXPECT_EQ(error_text<UnsupportedError>(
                [&] { export_module(std::make_shared<Pair>(), std::tuple{x, x}); }),
            "export: argument 0 and argument 1 share memory that the forward writes, and inputs of "
            "a graph are independent of each other\n"
            "  at:     " +
                line_text(added) +
                "\n"
                "  remedy: pass tensors that do not overlap, or clone() one of them");
  EXPECT_EQ(x.sum().item<double>(), 3);
}

// MultiheadAttention does: it has a shorter way for self-attention.
TEST(ExportErrors, AComparisonOfValues) {
  torch::nn::MultiheadAttention attention(4, 2);
  struct SelfAttention : torch::nn::Module {
    explicit SelfAttention(torch::nn::MultiheadAttention inner)
        : inner(register_module("inner", std::move(inner))) {}
    T forward(const T& x) { return std::get<0>(inner->forward(x, x, x)); }
    torch::nn::MultiheadAttention inner;
  };
  struct CrossAttention : SelfAttention {
    using SelfAttention::SelfAttention;
    T forward(const T& x, const T& memory) {
      return std::get<0>(inner->forward(x, memory, memory));
    }
  };
  const T x = torch::randn({3, 2, 4}), memory = torch::randn({3, 2, 4});

  EXPECT_EQ(error_text<UnsupportedError>([&] {
              export_module(std::make_shared<CrossAttention>(attention), std::tuple{x, memory});
            }),
            "export: the forward asks whether argument 0 and argument 1 have equal values, and the "
            "graph would keep today's answer\n"
            "  remedy: compare outside the module; if it is one tensor by design (self-attention), "
            "take one argument and use it twice");
  EXPECT_NO_THROW(export_module(std::make_shared<SelfAttention>(attention), std::tuple{x}));
}

TEST(ExportErrors, AnArgumentThatLeavesWithOtherSizes) {
  const int unsqueezed = __LINE__ + 2;
  const auto unsqueeze = [](Probe&, const T& x) {
    x.unsqueeze_(0);
    return Tensors{x + 1};
  };
  EXPECT_EQ(error_text<UnsupportedError>([&] { export_probe(unsqueeze, {}); }),
            "export: argument 0 leaves the forward with other sizes, strides or storage\n"
            "  at:     " +
                line_text(unsqueezed) +
                "\n"
                "  cause:  an in-place view or resize (t_, squeeze_, resize_, set_, ...) of it\n"
                "  remedy: use the out-of-place form and return the result");
}

TEST(ExportErrors, AForwardThatLeavesGradModeChanged) {
  const auto leaves_it_off = [](Probe& net, const T& x) {
    const Tensors loss = loss_of(net, x);
    torch::GradMode::set_enabled(false);
    return loss;
  };
  EXPECT_EQ(error_text<UnsupportedError>([&] { export_probe(leaves_it_off, {.joint = true}); }),
            "export: the forward leaves grad mode off, which a graph cannot do\n"
            "  remedy: use guards (torch::NoGradGuard, at::AutoGradMode) that end inside it");
  EXPECT_TRUE(torch::GradMode::is_enabled());
}

TEST(ExportErrors, AnEmptyModule) {
  torch::nn::Linear empty(nullptr);

  EXPECT_EQ(error_text<UserError>([&] { export_module(empty, std::tuple{torch::ones({3})}); }),
            "compile: the module is empty: expected a module, got a null pointer\n"
            "  remedy: construct it before compiling");
}

}  // namespace
}  // namespace tandem
