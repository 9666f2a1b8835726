#include "transformer.h"

#include <vector>

namespace demo {
namespace {

torch::nn::LayerNorm layer_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

BlockImpl::BlockImpl(const Shape& shape)
    : heads_(shape.heads),
      attention_norm_(register_module("attention_norm", layer_norm(shape.width))),
      network_norm_(register_module("network_norm", layer_norm(shape.width))),
      query_key_value_(
          register_module("query_key_value", torch::nn::Linear(shape.width, 3 * shape.width))),
      attention_out_(register_module("attention_out", torch::nn::Linear(shape.width, shape.width))),
      up_(register_module("up", torch::nn::Linear(shape.width, 4 * shape.width))),
      down_(register_module("down", torch::nn::Linear(4 * shape.width, shape.width))),
      dropout_(register_module("dropout", torch::nn::Dropout(shape.dropout))) {}

at::Tensor BlockImpl::forward(at::Tensor x) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const std::vector<at::Tensor> parts = query_key_value_(attention_norm_(x))
                                            .view({batch, length, 3, heads_, width / heads_})
                                            .permute({2, 0, 3, 1, 4})
                                            .unbind(0);
  const at::Tensor seen =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
  x = x + dropout_(attention_out_(seen.transpose(1, 2).reshape({batch, length, width})));
  return x + dropout_(down_(at::gelu(up_(network_norm_(x)), "tanh")));
}

TransformerImpl::TransformerImpl(const Shape& shape)
    : characters_(
          register_module("characters", torch::nn::Embedding(shape.characters, shape.width))),
      positions_(register_module("positions", torch::nn::Embedding(shape.length, shape.width))),
      dropout_(register_module("dropout", torch::nn::Dropout(shape.dropout))),
      blocks_(register_module("blocks", torch::nn::ModuleList())),
      norm_(register_module("norm", layer_norm(shape.width))),
      head_(register_module("head", torch::nn::Linear(shape.width, shape.characters))) {
  for (int64_t i = 0; i < shape.blocks; ++i) blocks_->push_back(Block(shape));
  torch::NoGradGuard no_grad;
  // Embeddings of unit variance would drown what the blocks add.
  characters_->weight.mul_(0.2);
  positions_->weight.mul_(0.2);
}

at::Tensor TransformerImpl::forward(const at::Tensor& characters) {
  const at::Tensor places = torch::arange(characters.size(1), characters.device());
  at::Tensor x = dropout_(characters_(characters) + positions_(places));
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
  return head_(norm_(x));
}

}  // namespace demo
