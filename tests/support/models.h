#pragma once

#include <torch/torch.h>

/// Small models of the kinds that people train, shared by the differential tests.
namespace tandem::test {

/// Linear, ReLU, dropout, Linear.
struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t in, int64_t hidden, int64_t out, double dropout)
      : first(register_module("first", torch::nn::Linear(in, hidden))),
        drop(register_module("drop", torch::nn::Dropout(dropout))),
        second(register_module("second", torch::nn::Linear(hidden, out))) {}
  at::Tensor forward(const at::Tensor& x) { return second(drop(torch::relu(first(x)))); }
  torch::nn::Linear first;
  torch::nn::Dropout drop;
  torch::nn::Linear second;
};
TORCH_MODULE(Mlp);

/// Convolutions with batch norm, pooling and a linear head.
struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl()
      : conv1(register_module("conv1",
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)))),
        norm1(register_module("norm1", torch::nn::BatchNorm2d(8))),
        conv2(register_module(
            "conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2).bias(false)))),
        norm2(register_module("norm2", torch::nn::BatchNorm2d(16))),
        head(register_module("head", torch::nn::Linear(16, 10))) {}
  at::Tensor forward(at::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::relu(norm2(conv2(x)));
    return head(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d norm2;
  torch::nn::Linear head;
};
TORCH_MODULE(ConvNet);

struct GptOptions {
  int64_t vocabulary = 31, length = 12, width = 32, heads = 4, blocks = 2;
  double dropout = 0.1;
  bool fused_attention = false;  // scaled_dot_product_attention instead of matmul and softmax
};

struct GptBlockImpl : torch::nn::Module {
  explicit GptBlockImpl(const GptOptions& o)
      : options(o),
        norm1(
            register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        norm2(
            register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))),
        qkv(register_module("qkv", torch::nn::Linear(o.width, 3 * o.width))),
        out(register_module("out", torch::nn::Linear(o.width, o.width))),
        up(register_module("up", torch::nn::Linear(o.width, 4 * o.width))),
        down(register_module("down", torch::nn::Linear(4 * o.width, o.width))),
        drop(register_module("drop", torch::nn::Dropout(o.dropout))) {
    mask = register_buffer(
        "mask", torch::ones({o.length, o.length}).tril().view({1, 1, o.length, o.length}));
  }
  at::Tensor attention(const at::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    std::vector<at::Tensor> parts = qkv(x).split(width, 2);
    for (at::Tensor& part : parts) {
      part = part.view({batch, length, options.heads, width / options.heads}).transpose(1, 2);
    }
    at::Tensor y;
    if (options.fused_attention) {
      y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0,
                                           /*is_causal=*/true);
    } else {
      at::Tensor scores =
          parts[0].matmul(parts[1].transpose(-2, -1)) /
          std::sqrt(static_cast<double>(width) / static_cast<double>(options.heads));
      scores = scores.masked_fill(mask == 0, -std::numeric_limits<float>::infinity());
      y = drop(torch::softmax(scores, -1)).matmul(parts[2]);
    }
    return drop(out(y.transpose(1, 2).reshape({batch, length, width})));
  }
  at::Tensor forward(at::Tensor x) {
    x = x + attention(norm1(x));
    return x + drop(down(torch::gelu(up(norm2(x)), "tanh")));
  }
  GptOptions options;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
  torch::nn::Dropout drop;
  at::Tensor mask;
};
TORCH_MODULE(GptBlock);

/// A decoder with the embedding tied to the output projection.
struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptOptions& o)
      : options(o),
        tokens(register_module("tokens", torch::nn::Embedding(o.vocabulary, o.width))),
        positions(register_module("positions", torch::nn::Embedding(o.length, o.width))),
        blocks(register_module("blocks", torch::nn::ModuleList())),
        norm(
            register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})))) {
    for (int64_t i = 0; i < o.blocks; ++i) blocks->push_back(GptBlock(o));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = tokens(ids) + positions(torch::arange(ids.size(1)));
    for (const auto& block : *blocks) x = block->as<GptBlock>()->forward(x);
    return torch::linear(norm(x), tokens->weight);
  }
  GptOptions options;
  torch::nn::Embedding tokens, positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
};
TORCH_MODULE(Gpt);

}  // namespace tandem::test
