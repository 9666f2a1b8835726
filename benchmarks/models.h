#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// A training step whose first call is timed: `loss` of `net` on fixed arguments. The rival's
/// copies are in peers/models.py.
struct Workload {
  std::string name;
  std::shared_ptr<torch::nn::Module> net;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> loss;
  at::Tensor input, target;
};

/// Six times linear, layer norm, GELU and dropout, width 512, batch 256.
Workload mlp();
/// Five convolutions with batch norm and ReLU on 32 x 32 pictures, batch 32.
Workload conv_net();
/// Four blocks, width 256, vocabulary 2048, 4 x 128 tokens, causal attention.
Workload gpt();
/// The same in bfloat16; the loss in float32.
Workload gpt_bf16();
/// Four bottlenecks with batch norm on 96 x 96 pictures, batch 8.
Workload resnet();
/// tanh, sigmoid, exp and cos of 512 x 4096 numbers, summed by rows. No target.
Workload pointwise();
/// One of them by name; a std::runtime_error lists them.
Workload workload(const std::string& name);

/// A transformer block as the peer's script has it: matmul attention, no mask.
class PlainBlockImpl : public torch::nn::Module {
 public:
  PlainBlockImpl(int64_t width, int64_t heads);
  at::Tensor forward(at::Tensor x);

 private:
  int64_t heads_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear qkv_, out_, up_, down_;
};
TORCH_MODULE(PlainBlock);

/// The model of the capture benchmark: such blocks in a row, width 768, 12 heads.
torch::nn::Sequential plain_blocks(int64_t count);
/// What goes into it: batch 2, length 128.
at::Tensor plain_input();

}  // namespace bench
