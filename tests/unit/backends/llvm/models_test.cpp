#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>

// Whole training steps: the distance of every result and gradient to eager in float64 is at most
// twice that of eager in float32, plus 16 eps of the largest value.

namespace tandem {
namespace {

using at::Tensor;
namespace nn = torch::nn;

struct Model : nn::Module {
  virtual Tensor loss(const Tensor& x, const Tensor& target) = 0;
};

struct Mlp : Model {
  Mlp()
      : first(register_module("first", nn::Linear(24, 48))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({48})))),
        second(register_module("second", nn::Linear(48, 10))) {}
  Tensor loss(const Tensor& x, const Tensor& target) override {
    const Tensor h = norm(torch::gelu(first(x)));
    return torch::cross_entropy_loss(second(h), target);
  }
  nn::Linear first;
  nn::LayerNorm norm;
  nn::Linear second;
};

/// One block with attention written out, and tied embeddings.
struct Transformer : Model {
  static constexpr int64_t kWidth = 32, kHeads = 4, kWords = 50;
  Transformer()
      : words(register_module("words", nn::Embedding(kWords, kWidth))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", nn::Linear(kWidth, 3 * kWidth))),
        out(register_module("out", nn::Linear(kWidth, kWidth))),
        up(register_module("up", nn::Linear(kWidth, 4 * kWidth))),
        down(register_module("down", nn::Linear(4 * kWidth, kWidth))) {}
  Tensor loss(const Tensor& x, const Tensor& target) override {
    const int64_t batch = x.size(0), length = x.size(1);
    Tensor h = words(x);
    const auto parts = qkv(norm1(h)).chunk(3, -1);
    auto heads = [&](const Tensor& part) {
      return part.view({batch, length, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    Tensor scores = heads(parts[0]).matmul(heads(parts[1]).transpose(-2, -1)) / 2.83;
    const Tensor mask = torch::ones({length, length}, torch::kBool).triu(1);
    scores = scores.masked_fill(mask, -1e9);
    const Tensor mixed = torch::softmax(scores, -1).matmul(heads(parts[2]));
    h = h + out(mixed.transpose(1, 2).reshape({batch, length, kWidth}));
    h = h + down(torch::gelu(up(norm2(h)), "tanh"));
    const Tensor logits = h.matmul(words->weight.t());
    return torch::cross_entropy_loss(logits.view({-1, kWords}), target.view({-1}));
  }
  nn::Embedding words;
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, up, down;
};

/// One block with rotary embedding, gated units and norms by the root of the mean square. Wide
/// enough that a number for each row, spread over it, waits for its first reader.
struct RotaryBlock : Model {
  static constexpr int64_t kWidth = 128, kHeads = 2, kHead = kWidth / kHeads, kHidden = 192,
                           kWords = 50;
  RotaryBlock()
      : words(register_module("words", nn::Embedding(kWords, kWidth))),
        qkv(register_module("qkv", without_bias(kWidth, 3 * kWidth))),
        out(register_module("out", without_bias(kWidth, kWidth))),
        gate(register_module("gate", without_bias(kWidth, kHidden))),
        up(register_module("up", without_bias(kWidth, kHidden))),
        down(register_module("down", without_bias(kHidden, kWidth))),
        scale1(register_parameter("scale1", torch::ones({kWidth}))),
        scale2(register_parameter("scale2", torch::ones({kWidth}))),
        scale3(register_parameter("scale3", torch::ones({kWidth}))) {}
  static nn::Linear without_bias(int64_t from, int64_t to) {
    return nn::Linear(nn::LinearOptions(from, to).bias(false));
  }
  static Tensor normal(const Tensor& x, const Tensor& scale) {
    return x * torch::rsqrt((x * x).mean({-1}, true) + 1e-6) * scale;
  }
  virtual Tensor turned(const Tensor& x) const {
    const auto halves = x.chunk(2, -1);
    return torch::cat({-halves[1], halves[0]}, -1);
  }
  Tensor loss(const Tensor& x, const Tensor& target) override {
    const int64_t batch = x.size(0), length = x.size(1);
    Tensor h = words(x);
    const auto options = h.options().requires_grad(false);
    const Tensor speeds = torch::pow(1e4, torch::arange(kHead / 2, options) / -(kHead / 2.0));
    const Tensor angles = torch::outer(torch::arange(length, options), speeds).repeat({1, 2});
    const Tensor cosine = angles.cos(), sine = angles.sin();
    const auto heads = [&](const Tensor& part) {
      return part.view({batch, length, kHeads, kHead}).transpose(1, 2);
    };
    const auto rotated = [&](const Tensor& part) { return part * cosine + turned(part) * sine; };
    const auto parts = qkv(normal(h, scale1)).chunk(3, -1);
    Tensor scores =
        rotated(heads(parts[0])).matmul(rotated(heads(parts[1])).transpose(-2, -1)) / 8.0;
    const Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
    const Tensor mixed = torch::softmax(scores, -1).matmul(heads(parts[2]));
    h = h + out(mixed.transpose(1, 2).reshape({batch, length, kWidth}));
    const Tensor n = normal(h, scale2);
    h = h + down(torch::silu(gate(n)) * up(n));
    const Tensor logits = normal(h, scale3).matmul(words->weight.t());
    return torch::cross_entropy_loss(logits.view({-1, kWords}), target.view({-1}));
  }
  nn::Embedding words;
  nn::Linear qkv, out, gate, up, down;
  Tensor scale1, scale2, scale3;
};

/// The same with neighbours turned, not halves.
struct InterleavedRotaryBlock : RotaryBlock {
  Tensor turned(const Tensor& x) const override {
    const auto pairs = x.unflatten(-1, {kHead / 2, 2}).unbind(-1);
    return torch::stack({-pairs[1], pairs[0]}, -1).flatten(-2);
  }
};

/// Two convolutions with batch norm in training and a residual, pooling, a linear layer.
struct ResNet : Model {
  // Without bias: behind it a norm takes the mean away, and its gradient would be rounding alone.
  static nn::Conv2dOptions convolution(int64_t channels) {
    return nn::Conv2dOptions(channels, 8, 3).padding(1).bias(false);
  }
  ResNet()
      : conv1(register_module("conv1", nn::Conv2d(convolution(3)))),
        conv2(register_module("conv2", nn::Conv2d(convolution(8)))),
        norm1(register_module("norm1", nn::BatchNorm2d(8))),
        norm2(register_module("norm2", nn::BatchNorm2d(8))),
        last(register_module("last", nn::Linear(8, 10))) {}
  Tensor loss(const Tensor& x, const Tensor& target) override {
    Tensor h = torch::relu(norm1(conv1(x)));
    h = torch::max_pool2d(h, 2);
    h = torch::relu(norm2(conv2(h)) + h);
    return torch::cross_entropy_loss(last(h.mean({2, 3})), target);
  }
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1, norm2;
  nn::Linear last;
};

/// Results of a step by name: loss, gradients, buffers afterwards.
using Step = std::map<std::string, Tensor>;

Step step_of(Model& model, const std::function<Tensor(const Tensor&, const Tensor&)>& function,
             const Tensor& x, const Tensor& target) {
  model.zero_grad();
  const Tensor loss = function(x, target);
  loss.backward();
  Step out{{"loss", loss.detach().clone()}};
  for (const auto& item : model.named_parameters())
    out["gradient of " + item.key()] = item.value().grad().clone();
  for (const auto& item : model.named_buffers()) out[item.key()] = item.value().clone();
  return out;
}

template <class M>
std::shared_ptr<M> make(at::ScalarType dtype) {
  torch::manual_seed(3);
  auto model = std::make_shared<M>();
  model->to(dtype);
  return model;
}

template <class M>
void expect_as_exact_as_eager(const Tensor& x, const Tensor& target, Partitioner partitioner,
                              at::ScalarType dtype = at::kFloat) {
  auto truth = make<M>(at::kDouble), plain = make<M>(dtype), fused = make<M>(dtype);
  const bool floats = x.is_floating_point();
  auto in = [&](at::ScalarType wanted) { return floats ? x.to(wanted) : x; };
  const auto compiled = compile(
      [&](const Tensor& a, const Tensor& b) { return fused->loss(a, b); },
      Options{.backend = "llvm", .partitioner = std::move(partitioner), .modules = {fused}});
  auto direct = [](M& model) {
    return [&model](const Tensor& a, const Tensor& b) { return model.loss(a, b); };
  };
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const Step exact = step_of(*truth, direct(*truth), in(at::kDouble), target);
    const Step eager = step_of(*plain, direct(*plain), in(dtype), target);
    const Step ours = step_of(*fused, compiled, in(dtype), target);
    for (const auto& [name, value] : exact) {
      SCOPED_TRACE(name);
      const double eps = dtype == at::kBFloat16 ? 0x1p-7 : 0x1p-23;
      auto distance = [&](const Step& step) {
        return (step.at(name).to(at::kDouble) - value.to(at::kDouble))
            .abs()
            .max()
            .item()
            .toDouble();
      };
      ASSERT_EQ(ours.at(name).sizes(), value.sizes());
      EXPECT_EQ(ours.at(name).strides(), eager.at(name).strides());
      EXPECT_LE(distance(ours), 2 * distance(eager) +
                                    16 * eps * value.to(at::kDouble).abs().max().item().toDouble());
    }
  }
  EXPECT_NE(compiled.report().find("kernel runs"), std::string::npos) << compiled.report();
}

TEST(LlvmModels, Mlp) {
  for (const auto& partitioner : {default_partition, min_cut})
    expect_as_exact_as_eager<Mlp>(torch::randn({16, 24}), torch::randint(10, {16}), partitioner);
}

TEST(LlvmModels, MlpInBfloat16) {
  expect_as_exact_as_eager<Mlp>(torch::randn({16, 24}), torch::randint(10, {16}), min_cut,
                                at::kBFloat16);
}

TEST(LlvmModels, Transformer) {
  for (const auto& partitioner : {default_partition, min_cut}) {
    expect_as_exact_as_eager<Transformer>(torch::randint(50, {2, 12}), torch::randint(50, {2, 12}),
                                          partitioner);
  }
}

TEST(LlvmModels, RotaryEmbeddingAndGatedUnits) {
  for (const auto& partitioner : {default_partition, min_cut}) {
    expect_as_exact_as_eager<RotaryBlock>(torch::randint(50, {2, 12}), torch::randint(50, {2, 12}),
                                          partitioner);
  }
  expect_as_exact_as_eager<InterleavedRotaryBlock>(torch::randint(50, {2, 12}),
                                                   torch::randint(50, {2, 12}), min_cut);
}

TEST(LlvmModels, ResNet) {
  for (const auto& partitioner : {default_partition, min_cut}) {
    expect_as_exact_as_eager<ResNet>(torch::randn({4, 3, 8, 8}), torch::randint(10, {4}),
                                     partitioner);
  }
}

TEST(LlvmModels, ResNetInChannelsLast) {
  expect_as_exact_as_eager<ResNet>(
      torch::randn({4, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast),
      torch::randint(10, {4}), min_cut);
}

}  // namespace
}  // namespace tandem
