/// Models that train on batches of other sizes in each step: like eager at all of them, and a size
/// that comes again compiles nothing.
#include "fuzz/random.h"
#include "support/models.h"
#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/steps_like_eager.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;

using Tensors = std::vector<at::Tensor>;

constexpr int kSteps = 20;

enum class Optimizer { Sgd, Adam };

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Optimizer kind, const Tensors& parameters) {
  if (kind == Optimizer::Sgd)
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.05).momentum(0.9));
  return std::make_unique<torch::optim::Adam>(parameters,
                                              torch::optim::AdamOptions(1e-3).eps(adam_eps()));
}

/// A model with its batches, the same from the same seed.
template <class Net>
struct Training {
  Training(const std::function<Net()>& make_net,
           const std::function<Tensors(fuzz::Random&)>& make_batch, Optimizer kind)
      : net((torch::manual_seed(11), make_net())),
        optimizer(make_optimizer(kind, net->parameters())) {
    fuzz::Random random(22);
    for (int step = 0; step < kSteps; ++step) batches.push_back(make_batch(random));
  }

  Net net;
  std::vector<Tensors> batches{};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

template <class Net, class Loss>
Tensors train(Training<Net>& training, const Loss& loss_of, int begin, int end) {
  torch::manual_seed(static_cast<uint64_t>(12 + begin));
  Tensors seen;
  for (int step = begin; step < end; ++step) {
    training.optimizer->zero_grad();
    const at::Tensor loss = loss_of(training.batches[static_cast<size_t>(step)]);
    loss.backward();
    training.optimizer->step();
    seen.push_back(loss.detach());
  }
  for (const at::Tensor& parameter : training.net->parameters()) {
    seen.push_back(parameter.detach().clone());
    seen.push_back(parameter.grad().clone());
  }
  for (const at::Tensor& buffer : training.net->buffers()) seen.push_back(buffer.clone());
  seen.push_back(at::detail::getDefaultCPUGenerator().get_state());
  return seen;
}

void expect_equal(const Tensors& eager, const Tensors& compiled) {
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_TRUE(same_bits(eager[i], compiled[i])) << "value " << i << " of " << eager.size();
  }
}

/// Through data(), which no version counter sees.
template <class Net>
void take_over(Training<Net>& training, const Training<Net>& from) {
  const auto copy = [](const Tensors& to, const Tensors& source) {
    for (size_t i = 0; i < to.size(); ++i) to[i].data().copy_(source[i].data());
  };
  copy(training.net->parameters(), from.net->parameters());
  copy(training.net->buffers(), from.net->buffers());
  std::stringstream state;
  torch::save(*from.optimizer, state);
  torch::load(*training.optimizer, state);
}

template <class Net, class Loss>
void check_with(Optimizer kind, const std::function<Net()>& make_net,
                const std::function<Tensors(fuzz::Random&)>& make_batch, const Loss& loss,
                int64_t most_compiles) {
  SCOPED_TRACE(kind == Optimizer::Sgd ? "SGD" : "Adam");
  const OneThread one_thread;
  Training<Net> eager(make_net, make_batch, kind), twin(make_net, make_batch, kind);
  const auto loss_with = [&](Training<Net>& training) {
    return [&](const Tensors& batch) { return loss(training.net, batch); };
  };
  const auto compiled = tandem::compile(twin.net, loss_with(twin));
  expect_steps_like_eager(
      kSteps, [&] { take_over(twin, eager); },
      [&](int begin, int end) { return train(eager, loss_with(eager), begin, end); },
      [&](int begin, int end) { return train(twin, compiled, begin, end); }, expect_equal);
  const Stats before = compiled.stats();
  EXPECT_EQ(before.eager_calls, 0) << compiled.report();
  EXPECT_LE(before.compiles, most_compiles) << compiled.report();
  train(twin, compiled, 0, kSteps);
  const Stats after = compiled.stats();
  EXPECT_EQ(after.hits, before.hits + kSteps) << compiled.report();
  EXPECT_EQ(after.traces, before.traces) << compiled.report();
  EXPECT_EQ(after.compiles, before.compiles) << compiled.report();
}

/// `most_compiles`: how many kinds of op sequences the function has over all its sizes.
template <class Net, class Loss>
void check(const std::function<Net()>& make_net,
           const std::function<Tensors(fuzz::Random&)>& make_batch, Loss loss,
           int64_t most_compiles) {
  for (Optimizer kind : {Optimizer::Sgd, Optimizer::Adam})
    check_with<Net>(kind, make_net, make_batch, loss, most_compiles);
}

struct SequenceNetImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor states = std::get<0>(lstm(x));
    return head(states.select(0, states.size(0) - 1));
  }
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(4, 6).num_layers(2)));
  nn::Linear head = register_module("head", nn::Linear(6, 3));
};
TORCH_MODULE(SequenceNet);

TEST(ChangingModels, LstmOverSequencesOfAnyLength) {
  check<SequenceNet>(
      [] { return SequenceNet(); },
      [](fuzz::Random& random) {
        const int64_t length = random.between(1, 9), batch = random.between(1, 5);
        return Tensors{torch::randn({length, batch, 4}), torch::randn({batch, 3})};
      },
      [](SequenceNet& net, const Tensors& batch) { return F::mse_loss(net(batch[0]), batch[1]); },
      /*most_compiles=*/1);
}

/// Each user has looked at so many articles; their numbers lie one behind the other.
struct RecommenderImpl : nn::Module {
  at::Tensor forward(const at::Tensor& articles, const at::Tensor& offsets,
                     const at::Tensor& dense) {
    const at::Tensor history = bag(articles, offsets);
    const at::Tensor features = torch::relu(bottom(dense));
    const at::Tensor crossed = (history * features).sum(1, /*keepdim=*/true);
    return top(torch::cat({history, features, crossed}, 1)).squeeze(1);
  }
  nn::EmbeddingBag bag =
      register_module("bag", nn::EmbeddingBag(nn::EmbeddingBagOptions(20, 5).mode(torch::kSum)));
  nn::Linear bottom = register_module("bottom", nn::Linear(3, 5));
  nn::Linear top = register_module("top", nn::Linear(11, 1));
};
TORCH_MODULE(Recommender);

TEST(ChangingModels, RaggedRecommender) {
  check<Recommender>(
      [] { return Recommender(); },
      [](fuzz::Random& random) {
        const int64_t users = random.between(1, 6);
        std::vector<int64_t> offsets;
        int64_t articles = 0;
        for (int64_t user = 0; user < users; ++user) {
          offsets.push_back(articles);
          articles += random.between(user == 0 ? 1 : 0, 4);  // some have looked at nothing
        }
        return Tensors{torch::randint(20, {articles}), torch::tensor(offsets),
                       torch::randn({users, 3}), torch::rand({users})};
      },
      [](Recommender& net, const Tensors& batch) {
        return F::binary_cross_entropy_with_logits(net(batch[0], batch[1], batch[2]), batch[3]);
      },
      /*most_compiles=*/1);
}

/// A block with libtorch's own attention; the mask is made for the length of the batch.
struct AttentionNetImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const int64_t length = x.size(0);
    const at::Tensor later = torch::ones({length, length}, at::kBool).triu(1);
    const at::Tensor mask =
        torch::zeros({length, length}).masked_fill(later, -std::numeric_limits<float>::infinity());
    const at::Tensor y = norm1(x);
    const at::Tensor z =
        x + std::get<0>(attention->forward(y, y, y, {}, /*need_weights=*/false, mask));
    return z + down(torch::gelu(up(norm2(z))));
  }
  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({8})));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({8})));
  nn::MultiheadAttention attention = register_module(
      "attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).dropout(0.1)));
  nn::Linear up = register_module("up", nn::Linear(8, 16));
  nn::Linear down = register_module("down", nn::Linear(16, 8));
};
TORCH_MODULE(AttentionNet);

// libtorch's front end calls other ops where the length or the batch is 1.
TEST(ChangingModels, TransformerWithMultiheadAttention) {
  check<AttentionNet>(
      [] { return AttentionNet(); },
      [](fuzz::Random& random) {
        const int64_t length = random.between(1, 10), batch = random.between(1, 4);
        return Tensors{torch::randn({length, batch, 8}), torch::randn({length, batch, 8})};
      },
      [](AttentionNet& net, const Tensors& batch) { return F::mse_loss(net(batch[0]), batch[1]); },
      /*most_compiles=*/2);
}

TEST(ChangingModels, ConvNetOverBatchHeightAndWidth) {
  check<ConvNet>(
      [] { return ConvNet(); },
      [](fuzz::Random& random) {
        const int64_t batch = random.between(1, 4);
        const int64_t height = random.between(8, 17), width = random.between(8, 17);
        return Tensors{torch::randn({batch, 3, height, width}), torch::randint(10, {batch})};
      },
      [](ConvNet& net, const Tensors& batch) { return F::cross_entropy(net(batch[0]), batch[1]); },
      /*most_compiles=*/1);
}

/// Pools to fixed sizes and to shares of the size, and back to the size of the batch.
struct PyramidImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = torch::relu(norm(conv(x)));
    const std::vector<int64_t> whole = {x.size(2), x.size(3)};
    const auto to_whole = F::InterpolateFuncOptions().size(whole);
    const at::Tensor coarse = F::interpolate(at::adaptive_avg_pool2d(y, {2, 3}), to_whole);
    const at::Tensor half = F::interpolate(
        F::avg_pool2d(y, F::AvgPool2dFuncOptions(2)),
        F::InterpolateFuncOptions(to_whole).mode(torch::kBilinear).align_corners(false));
    const at::Tensor twice = F::interpolate(
        y,
        F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));
    const at::Tensor largest = std::get<0>(at::adaptive_max_pool2d(twice, whole));
    return mix(torch::cat({y, coarse, half, largest}, 1));
  }
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
  nn::Conv2d mix = register_module("mix", nn::Conv2d(nn::Conv2dOptions(16, 2, 1)));
};
TORCH_MODULE(Pyramid);

TEST(ChangingModels, PoolsAndInterpolationBetweenSizes) {
  check<Pyramid>(
      [] { return Pyramid(); },
      [](fuzz::Random& random) {
        const int64_t batch = random.between(1, 3);
        const int64_t height = random.between(3, 9), width = random.between(3, 9);
        return Tensors{torch::randn({batch, 2, height, width}),
                       torch::randn({batch, 2, height, width})};
      },
      [](Pyramid& net, const Tensors& batch) { return F::mse_loss(net(batch[0]), batch[1]); },
      /*most_compiles=*/1);
}

}  // namespace
}  // namespace tandem::test
