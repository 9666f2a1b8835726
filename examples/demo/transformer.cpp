#include "transformer.h"

#include <vector>

namespace demo {
namespace {

torch::nn::Linear linear(int64_t from, int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

/// Turns each pair of numbers by an angle that grows with the position.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return torch::cat({halves[0] * cosines - halves[1] * sines,  //
                     halves[0] * sines + halves[1] * cosines},
                    -1);
}

}  // namespace

RootMeanSquareNormImpl::RootMeanSquareNormImpl(int64_t width)
    : weight_(register_parameter("weight", torch::ones({width}))) {}

at::Tensor RootMeanSquareNormImpl::forward(const at::Tensor& x) {
  return x * torch::rsqrt(x.square().mean(-1, /*keepdim=*/true) + 1e-6) * weight_;
}

BlockImpl::BlockImpl(const Shape& shape)
    : heads_(shape.heads),
      attention_dropout_(shape.dropout),
      attention_norm_(register_module("attention_norm", RootMeanSquareNorm(shape.width))),
      network_norm_(register_module("network_norm", RootMeanSquareNorm(shape.width))),
      query_key_value_(register_module("query_key_value", linear(shape.width, 3 * shape.width))),
      attention_out_(register_module("attention_out", linear(shape.width, shape.width))),
      gate_(register_module("gate", linear(shape.width, shape.hidden))),
      up_(register_module("up", linear(shape.width, shape.hidden))),
      down_(register_module("down", linear(shape.hidden, shape.width))),
      dropout_(register_module("dropout", torch::nn::Dropout(shape.dropout))) {}

at::Tensor BlockImpl::forward(at::Tensor x, const at::Tensor& cosines, const at::Tensor& sines) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const std::vector<at::Tensor> parts = query_key_value_(attention_norm_(x))
                                            .view({batch, length, 3, heads_, width / heads_})
                                            .permute({2, 0, 3, 1, 4})
                                            .unbind(0);
  const at::Tensor seen = at::scaled_dot_product_attention(
      rotate(parts[0], cosines, sines), rotate(parts[1], cosines, sines), parts[2], {},
      is_training() ? attention_dropout_ : 0.0, /*is_causal=*/true);
  x = x + dropout_(attention_out_(seen.transpose(1, 2).reshape({batch, length, width})));
  const at::Tensor y = network_norm_(x);
  return x + dropout_(down_(at::gelu(gate_(y), "tanh") * up_(y)));
}

TransformerImpl::TransformerImpl(const Shape& shape)
    : characters_(
          register_module("characters", torch::nn::Embedding(shape.characters, shape.width))),
      dropout_(register_module("dropout", torch::nn::Dropout(shape.dropout))),
      blocks_(register_module("blocks", torch::nn::ModuleList())),
      norm_(register_module("norm", RootMeanSquareNorm(shape.width))),
      head_(register_module("head", linear(shape.width, shape.characters))) {
  for (int64_t i = 0; i < shape.blocks; ++i) blocks_->push_back(Block(shape));
  const int64_t pairs = shape.width / shape.heads / 2;
  const at::Tensor speeds = torch::pow(1e4, -torch::arange(pairs) / static_cast<double>(pairs));
  const at::Tensor angles = torch::outer(torch::arange(shape.length), speeds);
  cosines_ = register_buffer("cosines", angles.cos());
  sines_ = register_buffer("sines", angles.sin());
  const torch::NoGradGuard no_grad;
  // Embeddings of unit variance would drown what the blocks add.
  characters_->weight.mul_(0.2);
}

at::Tensor TransformerImpl::forward(const at::Tensor& characters) {
  at::Tensor x = dropout_(characters_(characters));
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x, cosines_, sines_);
  return head_(norm_(x));
}

}  // namespace demo
