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

/// A convolution without bias and its batch norm.
nn::Sequential convolution(int64_t from, int64_t to, int64_t kernel, int64_t stride) {
  return nn::Sequential(
      nn::Conv2d(
          nn::Conv2dOptions(from, to, kernel).stride(stride).padding(kernel / 2).bias(false)),
      nn::BatchNorm2d(to));
}

/// Three convolutions, a narrow one in the middle, around a shortcut.
class BottleneckImpl : public nn::Module {
 public:
  BottleneckImpl(int64_t from, int64_t middle, int64_t to, int64_t stride)
      : a_(register_module("a", convolution(from, middle, 1, 1))),
        b_(register_module("b", convolution(middle, middle, 3, stride))),
        c_(register_module("c", convolution(middle, to, 1, 1))) {
    if (from != to || stride != 1)
      shortcut_ = register_module("d", convolution(from, to, 1, stride));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor beside = shortcut_ ? shortcut_->forward(x) : x;
    return torch::relu(c_->forward(torch::relu(b_->forward(torch::relu(a_->forward(x))))) + beside);
  }

 private:
  nn::Sequential a_, b_, c_, shortcut_ = nullptr;
};
TORCH_MODULE(Bottleneck);

/// A residual network for pictures: one bottleneck per stage.
class ResnetImpl : public nn::Module {
 public:
  ResnetImpl(const std::vector<int64_t>& blocks, int64_t width)
      : stem_(register_module("stem", convolution(3, width, 7, 2))) {
    int64_t from = width;
    nn::Sequential stages;
    for (size_t stage = 0; stage < blocks.size(); ++stage) {
      const int64_t middle = width << stage;
      for (int64_t i = 0; i < blocks[stage]; ++i) {
        stages->push_back(Bottleneck(from, middle, 4 * middle, i == 0 && stage > 0 ? 2 : 1));
        from = 4 * middle;
      }
    }
    stages_ = register_module("stages", stages);
    head_ = register_module("head", nn::Linear(from, 1000));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor seen = torch::max_pool2d(torch::relu(stem_->forward(x)), 3, 2, 1);
    return head_(torch::adaptive_avg_pool2d(stages_->forward(seen), {1, 1}).flatten(1));
  }

 private:
  nn::Sequential stem_ = nullptr, stages_ = nullptr;
  nn::Linear head_ = nullptr;
};

/// Nothing but pointwise ops and sums over rows.
class PointwiseImpl : public nn::Module {
 public:
  explicit PointwiseImpl(int64_t width)
      : w_(register_parameter("w", torch::randn(width))),
        b_(register_parameter("b", torch::randn(width))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = torch::tanh(x * w_ + b_);
    const at::Tensor z = torch::sigmoid(y) * x + torch::exp(-y.abs());
    return (z * z.cos()).sum(1, true) + z.mean(-1, true);
  }

 private:
  at::Tensor w_, b_;
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

namespace {

Workload gpt_of(std::string name, at::ScalarType dtype) {
  torch::manual_seed(0);
  auto net = std::make_shared<GptImpl>(2048, 128, 256, 4, 4);
  net->to(dtype);
  auto loss = [net](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net->forward(x).to(at::kFloat), y);
  };
  return {std::move(name), net, loss, torch::randint(2048, {4, 128}),
          torch::randint(2048, {4 * 128})};
}

}  // namespace

Workload gpt() { return gpt_of("gpt", at::kFloat); }
Workload gpt_bf16() { return gpt_of("gpt_bf16", at::kBFloat16); }

Workload resnet() {
  torch::manual_seed(0);
  auto net = std::make_shared<ResnetImpl>(std::vector<int64_t>{1, 1, 1, 1}, 16);
  auto loss = [net](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net->forward(x), y);
  };
  return {"resnet", net, loss, torch::randn({8, 3, 96, 96}), torch::randint(1000, {8})};
}

Workload pointwise() {
  torch::manual_seed(0);
  auto net = std::make_shared<PointwiseImpl>(4096);
  auto loss = [net](const at::Tensor& x, const at::Tensor&) { return net->forward(x).sum(); };
  return {"pointwise", net, loss, torch::randn({512, 4096}), torch::zeros({})};
}

Workload workload(const std::string& name) {
  if (name == "mlp") return mlp();
  if (name == "conv_net") return conv_net();
  if (name == "gpt") return gpt();
  if (name == "gpt_bf16") return gpt_bf16();
  if (name == "resnet") return resnet();
  if (name == "pointwise") return pointwise();
  throw std::runtime_error("no model is called " + name +
                           ": expected mlp, conv_net, gpt, gpt_bf16, resnet or pointwise");
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
