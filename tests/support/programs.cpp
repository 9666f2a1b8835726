#include "support/programs.h"

#include "support/models.h"

#include <cmath>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;

/// A program with one part and one loss.
template <class Net, class Loss>
TrainingProgram single(const char* name, Net net, Loss loss, std::function<Tensors()> batch) {
  return {.name = name,
          .parts = {net.ptr()},
          .losses = [net, loss](const Tensors& batch) mutable { return Tensors{loss(net, batch)}; },
          .batch = std::move(batch)};
}

// ---- residual network ----

nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

struct ResidualBlockImpl : nn::Module {
  ResidualBlockImpl(int64_t in, int64_t out, int64_t stride)
      : conv1(register_module("conv1", conv3x3(in, out, stride))),
        norm1(register_module("norm1", nn::BatchNorm2d(out))),
        conv2(register_module("conv2", conv3x3(out, out, 1))),
        norm2(register_module("norm2", nn::BatchNorm2d(out))) {
    if (stride == 1 && in == out) return;
    shortcut = register_module(
        "shortcut",
        nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
                       nn::BatchNorm2d(out)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = norm2(conv2(norm1(conv1(x)).relu_()));
    y += shortcut.is_empty() ? x : shortcut->forward(x);
    return y.relu_();
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d norm1;
  nn::Conv2d conv2;
  nn::BatchNorm2d norm2;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(ResidualBlock);

/// ResNet-18 with a stem for small images.
struct ResNetImpl : nn::Module {
  ResNetImpl(int64_t width, int64_t classes)
      : stem(register_module("stem", conv3x3(3, width, 1))),
        norm(register_module("norm", nn::BatchNorm2d(width))),
        blocks(register_module("blocks", nn::Sequential())),
        head(register_module("head", nn::Linear(8 * width, classes))) {
    int64_t in = width;
    for (int64_t stage = 0; stage < 4; ++stage) {
      const int64_t out = width << stage;
      blocks->push_back(ResidualBlock(in, out, stage == 0 ? 1 : 2));
      blocks->push_back(ResidualBlock(out, out, 1));
      in = out;
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = blocks->forward(norm(stem(x)).relu_());
    return head(torch::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }
  nn::Conv2d stem;
  nn::BatchNorm2d norm;
  nn::Sequential blocks;
  nn::Linear head;
};
TORCH_MODULE(ResNet);

TrainingProgram resnet18(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t batch = small ? 2 : 16, side = small ? 16 : 32, classes = 10;
  return single(
      "resnet18", ResNet(small ? 4 : 64, classes),
      [](ResNet& net, const Tensors& b) { return F::cross_entropy(net->forward(b[0]), b[1]); },
      [=] {
        return Tensors{torch::randn({batch, 3, side, side}), torch::randint(classes, {batch})};
      });
}

// ---- language models ----

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return F::cross_entropy(logits.view({-1, logits.size(-1)}), targets.view({-1}));
}

TrainingProgram gpt(Scale scale) {
  GptOptions options;
  if (scale == Scale::Full) {
    options = {.vocabulary = 5000, .length = 128, .width = 256, .heads = 8, .blocks = 6};
  }
  const int64_t batch = scale == Scale::Small ? 2 : 4;
  return single(
      "gpt", Gpt(options),
      [](Gpt& net, const Tensors& b) { return token_loss(net->forward(b[0]), b[1]); },
      [=] {
        return Tensors{torch::randint(options.vocabulary, {batch, options.length}),
                       torch::randint(options.vocabulary, {batch, options.length})};
      });
}

struct RecurrentSizes {
  int64_t vocabulary, width, hidden, batch, length;
};

RecurrentSizes recurrent_sizes(Scale scale) {
  if (scale == Scale::Small) return {17, 6, 8, 3, 5};
  return {2000, 128, 256, 16, 64};
}

/// Embedding, two recurrent layers with dropout, a linear head.
template <class Layer, class LayerOptions>
struct RecurrentNet : nn::Module {
  explicit RecurrentNet(const RecurrentSizes& s)
      : tokens(register_module("tokens", nn::Embedding(s.vocabulary, s.width))),
        layers(register_module(
            "layers",
            Layer(LayerOptions(s.width, s.hidden).num_layers(2).dropout(0.1).batch_first(true)))),
        head(register_module("head", nn::Linear(s.hidden, s.vocabulary))) {}
  at::Tensor forward(const at::Tensor& ids) {
    return head(std::get<0>(layers->forward(tokens(ids))));
  }
  nn::Embedding tokens;
  Layer layers;
  nn::Linear head;
};

template <class Layer, class LayerOptions>
TrainingProgram recurrent(const char* name, Scale scale) {
  using Net = RecurrentNet<Layer, LayerOptions>;
  const RecurrentSizes s = recurrent_sizes(scale);
  return single(
      name, nn::ModuleHolder<Net>(s),
      [](nn::ModuleHolder<Net>& net, const Tensors& b) {
        return token_loss(net->forward(b[0]), b[1]);
      },
      [=] {
        return Tensors{torch::randint(s.vocabulary, {s.batch, s.length}),
                       torch::randint(s.vocabulary, {s.batch, s.length})};
      });
}

TrainingProgram lstm(Scale scale) { return recurrent<nn::LSTM, nn::LSTMOptions>("lstm", scale); }
TrainingProgram gru(Scale scale) { return recurrent<nn::GRU, nn::GRUOptions>("gru", scale); }

// ---- images to images ----

struct AutoencoderImpl : nn::Module {
  explicit AutoencoderImpl(int64_t width)
      : encoder(register_module(
            "encoder",
            nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, width, 3).stride(2).padding(1)),
                           nn::ReLU(),
                           nn::Conv2d(nn::Conv2dOptions(width, 2 * width, 3).stride(2).padding(1)),
                           nn::GroupNorm(nn::GroupNormOptions(2, 2 * width)), nn::SiLU()))),
        decoder(register_module(
            "decoder",
            nn::Sequential(
                nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2 * width, width, 3)
                                        .stride(2)
                                        .padding(1)
                                        .output_padding(1)),
                nn::LeakyReLU(),
                nn::ConvTranspose2d(
                    nn::ConvTranspose2dOptions(width, 1, 3).stride(2).padding(1).output_padding(1)),
                nn::Sigmoid()))) {}
  at::Tensor forward(const at::Tensor& x) { return decoder->forward(encoder->forward(x)); }
  nn::Sequential encoder, decoder;
};
TORCH_MODULE(Autoencoder);

TrainingProgram autoencoder(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t batch = small ? 3 : 32, side = small ? 12 : 64;
  return single(
      "autoencoder", Autoencoder(small ? 4 : 32),
      [](Autoencoder& net, const Tensors& b) { return F::mse_loss(net->forward(b[0]), b[0]); },
      [=] { return Tensors{torch::rand({batch, 1, side, side})}; });
}

// ---- recommender ----

struct RecommenderSizes {
  int64_t users, items, width, batch, bag;
};

/// A user's bag of past items and one candidate item: a score from both embeddings.
struct RecommenderImpl : nn::Module {
  explicit RecommenderImpl(const RecommenderSizes& s)
      : history(register_module(
            "history",
            nn::EmbeddingBag(nn::EmbeddingBagOptions(s.items, s.width).mode(torch::kMean)))),
        users(register_module(
            "users",
            nn::EmbeddingBag(nn::EmbeddingBagOptions(s.users, s.width).mode(torch::kSum)))),
        items(register_module("items", nn::Embedding(s.items, s.width))),
        top(register_module("top", nn::Sequential(nn::Linear(3 * s.width, s.width), nn::ReLU(),
                                                  nn::Linear(s.width, 1)))) {}
  at::Tensor forward(const Tensors& b) {
    const at::Tensor past = history(b[0], b[1]);
    return top->forward(torch::cat({past, users(b[2]), items(b[3])}, 1)).squeeze(1);
  }
  nn::EmbeddingBag history, users;
  nn::Embedding items;
  nn::Sequential top;
};
TORCH_MODULE(Recommender);

TrainingProgram recommender(Scale scale) {
  const RecommenderSizes s = scale == Scale::Small ? RecommenderSizes{11, 13, 6, 4, 3}
                                                   : RecommenderSizes{20000, 50000, 64, 512, 20};
  return single(
      "recommender", Recommender(s),
      [](Recommender& net, const Tensors& b) {
        return F::binary_cross_entropy_with_logits(net->forward(b), b[4]);
      },
      [=] {
        return Tensors{torch::randint(s.items, {s.batch * s.bag}), torch::arange(s.batch) * s.bag,
                       torch::randint(s.users, {s.batch, 1}), torch::randint(s.items, {s.batch}),
                       torch::randint(2, {s.batch}).to(torch::kFloat)};
      });
}

// ---- two nets against each other ----

TrainingProgram gan(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t noise = small ? 4 : 64, hidden = small ? 8 : 512, data = small ? 6 : 784;
  const int64_t batch = small ? 5 : 128;
  nn::Sequential generator(nn::Linear(noise, hidden), nn::BatchNorm1d(hidden), nn::ReLU(),
                           nn::Linear(hidden, data), nn::Tanh());
  nn::Sequential discriminator(nn::Linear(data, hidden),
                               nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                               nn::Dropout(0.3), nn::Linear(hidden, 1));
  const auto loss = [](const at::Tensor& logits, double target) {
    return F::binary_cross_entropy_with_logits(logits, torch::full_like(logits, target));
  };
  return {.name = "gan",
          .parts = {generator.ptr(), discriminator.ptr()},
          .losses =
              [=](const Tensors& b) mutable {
                const at::Tensor fake = generator->forward(b[1]);
                const at::Tensor fools = loss(discriminator->forward(fake), 1);
                const at::Tensor tells = loss(discriminator->forward(b[0]), 1) +
                                         loss(discriminator->forward(fake.detach()), 0);
                return Tensors{fools, tells};
              },
          .batch =
              [=] {
                return Tensors{torch::randn({batch, data}).tanh(), torch::randn({batch, noise})};
              }};
}

// ---- coordinate network ----

/// Sine activations, fitted to a function of two coordinates.
struct SineNetImpl : nn::Module {
  explicit SineNetImpl(int64_t hidden)
      : first(register_module("first", nn::Linear(2, hidden))),
        second(register_module("second", nn::Linear(hidden, hidden))),
        last(register_module("last", nn::Linear(hidden, 1))) {}
  at::Tensor forward(const at::Tensor& x) {
    return last(torch::sin(30 * second(torch::sin(30 * first(x)))));
  }
  nn::Linear first, second, last;
};
TORCH_MODULE(SineNet);

TrainingProgram sine(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t points = small ? 16 : 4096;
  return single(
      "sine", SineNet(small ? 8 : 256),
      [](SineNet& net, const Tensors& b) { return (net->forward(b[0]) - b[1]).square().mean(); },
      [=] {
        const at::Tensor x = torch::rand({points, 2}) * 2 - 1;
        return Tensors{x, torch::sin(4 * x).prod(1, /*keepdim=*/true)};
      });
}

// ---- custom autograd function ----

/// Rounds in the forward; the gradient passes straight through where the input lies in [-1, 1].
struct StraightThrough : torch::autograd::Function<StraightThrough> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double step) {
    context->save_for_backward({x});
    context->saved_data["scale"] = 1.0;
    return (x / step).round() * step;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list tangents) {
    const at::Tensor x = context->get_saved_variables()[0];
    const double scale = context->saved_data["scale"].toDouble();
    return {tangents[0] * (x.abs() <= 1).to(x.scalar_type()) * scale, at::Tensor()};
  }
};

struct QuantizedNetImpl : nn::Module {
  explicit QuantizedNetImpl(int64_t hidden)
      : first(register_module("first", nn::Linear(10, hidden))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({hidden})))),
        second(register_module("second", nn::Linear(hidden, 3))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = StraightThrough::apply(torch::tanh(norm(first(x))), 0.125);
    return torch::linear(h, StraightThrough::apply(second->weight, 0.0625), second->bias);
  }
  nn::Linear first;
  nn::LayerNorm norm;
  nn::Linear second;
};
TORCH_MODULE(QuantizedNet);

TrainingProgram custom_function(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t batch = small ? 6 : 256;
  return single(
      "custom_function", QuantizedNet(small ? 12 : 512),
      [](QuantizedNet& net, const Tensors& b) {
        return F::cross_entropy(net->forward(b[0]), b[1]);
      },
      [=] { return Tensors{torch::randn({batch, 10}), torch::randint(3, {batch})}; });
}

// ---- attention modules of the front end ----

struct AttentionNetImpl : nn::Module {
  AttentionNetImpl(int64_t width, int64_t heads)
      : attention(register_module(
            "attention",
            nn::MultiheadAttention(nn::MultiheadAttentionOptions(width, heads).dropout(0.1)))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        head(register_module("head", nn::Linear(width, 5))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = norm(x + std::get<0>(attention->forward(x, x, x)));
    return head(y.mean(0));
  }
  nn::MultiheadAttention attention;
  nn::LayerNorm norm;
  nn::Linear head;
};
TORCH_MODULE(AttentionNet);

TrainingProgram attention(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t width = small ? 8 : 256, length = small ? 5 : 128, batch = small ? 2 : 8;
  return single(
      "attention", AttentionNet(width, small ? 2 : 8),
      [](AttentionNet& net, const Tensors& b) {
        return F::cross_entropy(net->forward(b[0]), b[1]);
      },
      [=] { return Tensors{torch::randn({length, batch, width}), torch::randint(5, {batch})}; });
}

struct TranslatorImpl : nn::Module {
  TranslatorImpl(int64_t vocabulary, int64_t width, int64_t heads, int64_t layers)
      : tokens(register_module("tokens", nn::Embedding(vocabulary, width))),
        transformer(
            register_module("transformer", nn::Transformer(nn::TransformerOptions(width, heads)
                                                               .num_encoder_layers(layers)
                                                               .num_decoder_layers(layers)
                                                               .dim_feedforward(2 * width)
                                                               .dropout(0.1)))),
        head(register_module("head", nn::Linear(width, vocabulary))) {}
  at::Tensor forward(const at::Tensor& source, const at::Tensor& target) {
    const at::Tensor mask = nn::TransformerImpl::generate_square_subsequent_mask(target.size(0));
    return head(transformer->forward(tokens(source), tokens(target), /*src_mask=*/{}, mask));
  }
  nn::Embedding tokens;
  nn::Transformer transformer;
  nn::Linear head;
};
TORCH_MODULE(Translator);

TrainingProgram transformer(Scale scale) {
  const bool small = scale == Scale::Small;
  const int64_t vocabulary = small ? 13 : 1000, batch = small ? 2 : 8;
  const int64_t from = small ? 6 : 64, to = small ? 5 : 48;
  return single(
      "transformer", Translator(vocabulary, small ? 8 : 256, small ? 2 : 8, small ? 1 : 3),
      [](Translator& net, const Tensors& b) { return token_loss(net->forward(b[0], b[1]), b[2]); },
      [=] {
        return Tensors{torch::randint(vocabulary, {from, batch}),
                       torch::randint(vocabulary, {to, batch}),
                       torch::randint(vocabulary, {to, batch})};
      });
}

constexpr ProgramMaker kPrograms[] = {
    {"resnet18", resnet18},
    {"gpt", gpt},
    {"lstm", lstm},
    {"gru", gru},
    {"autoencoder", autoencoder},
    {"recommender", recommender},
    {"gan", gan},
    {"sine", sine},
    {"custom_function", custom_function},
    {"attention", attention},
    {"transformer", transformer},
};

}  // namespace

std::span<const ProgramMaker> training_programs() { return kPrograms; }

std::vector<at::Tensor> training_step(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& losses,
    const std::vector<at::Tensor>& batch, std::vector<OptimizerPtr>& optimizers) {
  Tensors results = losses(batch);
  for (size_t i = 0; i < optimizers.size(); ++i) {
    optimizers[i]->zero_grad();
    results[i].backward({}, /*retain_graph=*/i + 1 < optimizers.size());
  }
  for (OptimizerPtr& optimizer : optimizers) optimizer->step();
  for (at::Tensor& loss : results) loss = loss.detach();
  return results;
}

}  // namespace tandem::test
