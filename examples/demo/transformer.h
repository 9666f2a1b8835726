#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace demo {

struct Shape {
  int64_t characters = 0;  // in the alphabet
  int64_t length = 64;     // of the window that it sees
  int64_t width = 64;
  int64_t hidden = 256;  // of the gated network
  int64_t heads = 4;
  int64_t blocks = 4;
  double dropout = 0.1;
};

/// Divides each row by the root of its mean square. libtorch's C++ front end has no such module, so
/// it is written with tensor operations, as is the rotation of positions below.
class RootMeanSquareNormImpl : public torch::nn::Module {
 public:
  explicit RootMeanSquareNormImpl(int64_t width);
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor weight_;
};
TORCH_MODULE(RootMeanSquareNorm);

/// Attention with rotated positions and a gated network, each behind a norm and added to its input.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const Shape& shape);
  /// `cosines` and `sines`: [length, width of a head / 2].
  at::Tensor forward(at::Tensor x, const at::Tensor& cosines, const at::Tensor& sines);

 private:
  int64_t heads_;
  double attention_dropout_;
  RootMeanSquareNorm attention_norm_, network_norm_;
  torch::nn::Linear query_key_value_, attention_out_, gate_, up_, down_;
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
  torch::nn::Embedding characters_;
  torch::nn::Dropout dropout_;
  torch::nn::ModuleList blocks_;
  RootMeanSquareNorm norm_;
  torch::nn::Linear head_;
  at::Tensor cosines_, sines_;
};
TORCH_MODULE(Transformer);

}  // namespace demo
