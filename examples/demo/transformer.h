#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace demo {

struct Shape {
  int64_t characters = 0;  // in the alphabet
  int64_t length = 48;     // of the window that it sees
  int64_t width = 128;
  int64_t heads = 4;
  int64_t blocks = 3;
  double dropout = 0.05;
};

/// Attention and a two-layer network, each behind a layer norm and added to its input.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const Shape& shape);
  at::Tensor forward(at::Tensor x);

 private:
  int64_t heads_;
  torch::nn::LayerNorm attention_norm_, network_norm_;
  torch::nn::Linear query_key_value_, attention_out_, up_, down_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(Block);

/// A character-level language model: characters [batch, length] in, logits [batch, length,
/// characters] out. Plain libtorch; nothing in it knows about Tandem.
class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const Shape& shape);
  at::Tensor forward(const at::Tensor& characters);

 private:
  torch::nn::Embedding characters_, positions_;
  torch::nn::Dropout dropout_;
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Transformer);

}  // namespace demo
