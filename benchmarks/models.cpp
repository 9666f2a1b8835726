#include "models.h"

#include <stdexcept>

namespace bench {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

nn::LayerNorm layer_norm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

/// Token and position embeddings, blocks with causal attention, a head without bias.
class GptImpl : public nn::Module {
 public:
  GptImpl(int64_t vocabulary, int64_t length, int64_t width, int64_t heads, int64_t blocks)
      : heads_(heads) {
    tokens_ = register_module("tokens", nn::Embedding(vocabulary, width));
    positions_ = register_module("positions", nn::Embedding(length, width));
    for (int64_t i = 0; i < blocks; ++i) {
      const std::string n = std::to_string(i);
      blocks_.push_back({register_module("norm1_" + n, layer_norm(width)),
                         register_module("norm2_" + n, layer_norm(width)),
                         register_module("qkv_" + n, nn::Linear(width, 3 * width)),
                         register_module("out_" + n, nn::Linear(width, width)),
                         register_module("up_" + n, nn::Linear(width, 4 * width)),
                         register_module("down_" + n, nn::Linear(4 * width, width))});
    }
    norm_ = register_module("norm", layer_norm(width));
    head_ = register_module("head", nn::Linear(nn::LinearOptions(width, vocabulary).bias(false)));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = tokens_(tokens) + positions_(torch::arange(tokens.size(1)));
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    for (Parts& block : blocks_) {
      std::vector<at::Tensor> parts = block.qkv(block.norm1(x)).split(width, 2);
      for (at::Tensor& part : parts)
        part = part.view({batch, length, heads_, width / heads_}).transpose(1, 2);
      const at::Tensor seen =
          at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
      x = x + block.out(seen.transpose(1, 2).reshape({batch, length, width}));
      x = x + block.down(at::gelu(block.up(block.norm2(x)), "tanh"));
    }
    return head_(norm_(x)).flatten(0, 1);
  }

 private:
  struct Parts {
    nn::LayerNorm norm1, norm2;
    nn::Linear qkv, out, up, down;
  };
  int64_t heads_;
  nn::Embedding tokens_ = nullptr, positions_ = nullptr;
  std::vector<Parts> blocks_;
  nn::LayerNorm norm_ = nullptr;
  nn::Linear head_ = nullptr;
};

Workload classify(std::string name, nn::Sequential net, at::Tensor input, int64_t classes) {
  const at::Tensor target = torch::randint(classes, {input.size(0)});
  auto loss = [net](const at::Tensor& x, const at::Tensor& y) mutable {
    return F::cross_entropy(net->forward(x), y);
  };
  return {std::move(name), net.ptr(), loss, std::move(input), target};
}

}  // namespace

Workload mlp() {
  torch::manual_seed(0);
  nn::Sequential net;
  for (int i = 0; i < 6; ++i) {
    net->push_back(nn::Linear(512, 512));
    net->push_back(layer_norm(512));
    net->push_back(nn::GELU());
    net->push_back(nn::Dropout(0.1));
  }
  net->push_back(nn::Linear(512, 10));
  return classify("mlp", net, torch::randn({256, 512}), 10);
}

Workload conv_net() {
  torch::manual_seed(0);
  nn::Sequential net;
  int64_t from = 3;
  for (int64_t to : {32, 32, 64, 64, 128}) {
    net->push_back(nn::Conv2d(
        nn::Conv2dOptions(from, to, 3).padding(1).stride(to > from ? 2 : 1).bias(false)));
    net->push_back(nn::BatchNorm2d(to));
    net->push_back(nn::ReLU());
    from = to;
  }
  net->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(from, 10));
  return classify("conv_net", net, torch::randn({32, 3, 32, 32}), 10);
}

Workload gpt() {
  torch::manual_seed(0);
  auto net = std::make_shared<GptImpl>(2048, 128, 256, 4, 4);
  auto loss = [net](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net->forward(x), y);
  };
  return {"gpt", net, loss, torch::randint(2048, {4, 128}), torch::randint(2048, {4 * 128})};
}

Workload workload(const std::string& name) {
  if (name == "mlp") return mlp();
  if (name == "conv_net") return conv_net();
  if (name == "gpt") return gpt();
  throw std::runtime_error("no model is called " + name + ": expected mlp, conv_net or gpt");
}

PlainBlockImpl::PlainBlockImpl(int64_t width, int64_t heads)
    : heads_(heads),
      norm1_(register_module("norm1", layer_norm(width))),
      norm2_(register_module("norm2", layer_norm(width))),
      qkv_(register_module("qkv", nn::Linear(width, 3 * width))),
      out_(register_module("out", nn::Linear(width, width))),
      up_(register_module("up", nn::Linear(width, 4 * width))),
      down_(register_module("down", nn::Linear(4 * width, width))) {}

at::Tensor PlainBlockImpl::forward(at::Tensor x) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  std::vector<at::Tensor> parts = qkv_(norm1_(x)).split(width, 2);
  for (at::Tensor& part : parts)
    part = part.view({batch, length, heads_, width / heads_}).transpose(1, 2);
  const at::Tensor weights =
      torch::softmax(torch::matmul(parts[0], parts[1].transpose(-2, -1)) * 0.125, -1);
  x = x + out_(torch::matmul(weights, parts[2]).transpose(1, 2).reshape({batch, length, width}));
  return x + down_(torch::gelu(up_(norm2_(x)), "tanh"));
}

nn::Sequential plain_blocks(int64_t count) {
  nn::Sequential net;
  for (int64_t i = 0; i < count; ++i) net->push_back(PlainBlock(768, 12));
  return net;
}

at::Tensor plain_input() { return torch::randn({2, 128, 768}); }

}  // namespace bench
