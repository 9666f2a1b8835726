/// Recurrent layers, attention, transformers and containers of the C++ front end: compiled as in
/// eager.
#include "support/module_cases.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

namespace nn = torch::nn;

Tensors none() { return {}; }

std::function<Tensors()> randn(std::vector<std::vector<int64_t>> sizes) {
  return [=] {
    Tensors tensors;
    for (const auto& size : sizes) tensors.push_back(torch::randn(size));
    return tensors;
  };
}

/// Without and with an initial state.
template <class MakeModule>
ModuleCase recurrent(std::string name, MakeModule make) {
  return module_case(std::move(name), make, randn({{5, 3, 4}}), none,
                     [](auto& m, const Tensors& x) {
                       auto [output, state] = m(x[0]);
                       return Tensors{output, state};
                     });
}

template <class MakeModule>
ModuleCase lstm(std::string name, MakeModule make) {
  return module_case(std::move(name), make, randn({{5, 3, 4}}), none,
                     [](nn::LSTM& m, const Tensors& x) {
                       auto [output, state] = m(x[0]);
                       return Tensors{output, std::get<0>(state), std::get<1>(state)};
                     });
}

const ModuleCase kRecurrent[] = {
    recurrent("RNN", [] { return nn::RNN(4, 6); }),
    recurrent(
        "RNN_relu",
        [] { return nn::RNN(nn::RNNOptions(4, 6).nonlinearity(torch::kReLU).num_layers(2)); }),
    recurrent("RNN_bidirectional",
              [] { return nn::RNN(nn::RNNOptions(4, 6).bidirectional(true).batch_first(true)); }),
    up_to_rounding(recurrent("GRU", [] { return nn::GRU(4, 6); })),
    up_to_rounding(recurrent(
        "GRU_deep",
        [] {
          return nn::GRU(
              nn::GRUOptions(4, 6).num_layers(2).dropout(0.3).bidirectional(true).bias(false));
        })),
    up_to_rounding(module_case(
        "GRU_state", [] { return nn::GRU(4, 6); }, randn({{5, 3, 4}, {1, 3, 6}}), none,
        [](nn::GRU& m, const Tensors& x) {
          auto [output, state] = m(x[0], x[1]);
          return Tensors{output, state};
        })),
    lstm("LSTM", [] { return nn::LSTM(4, 6); }),
    lstm("LSTM_deep",
         [] {
           return nn::LSTM(
               nn::LSTMOptions(4, 6).num_layers(2).dropout(0.3).bidirectional(true).batch_first(
                   true));
         }),
    lstm("LSTM_projected", [] { return nn::LSTM(nn::LSTMOptions(4, 6).proj_size(3)); }),
    lstm("LSTM_unbiased", [] { return nn::LSTM(nn::LSTMOptions(4, 6).bias(false)); }),
    module_case(
        "LSTM_state", [] { return nn::LSTM(4, 6); }, randn({{5, 3, 4}, {1, 3, 6}, {1, 3, 6}}), none,
        [](nn::LSTM& m, const Tensors& x) {
          auto [output, state] = m(x[0], std::make_tuple(x[1], x[2]));
          return Tensors{output, std::get<0>(state), std::get<1>(state)};
        }),
    module_case(
        "RNNCell", [] { return nn::RNNCell(4, 6); }, randn({{3, 4}, {3, 6}}), none,
        [](nn::RNNCell& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; }),
    unary("RNNCell_relu", {3, 4},
          [] { return nn::RNNCell(nn::RNNCellOptions(4, 6).nonlinearity(torch::kReLU)); }),
    module_case(
        "GRUCell", [] { return nn::GRUCell(4, 6); }, randn({{3, 4}, {3, 6}}), none,
        [](nn::GRUCell& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; }),
    module_case(
        "LSTMCell", [] { return nn::LSTMCell(4, 6); }, randn({{3, 4}, {3, 6}, {3, 6}}), none,
        [](nn::LSTMCell& m, const Tensors& x) {
          auto [h, c] = m(x[0], std::make_tuple(x[1], x[2]));
          return Tensors{h, c};
        }),
    module_case(
        "LSTMCell_unrolled", [] { return nn::LSTMCell(4, 6); }, randn({{4, 3, 4}}), none,
        [](nn::LSTMCell& m, const Tensors& x) {
          at::Tensor h = torch::zeros({3, 6}, x[0].options().requires_grad(false)), c = h;
          for (const at::Tensor& step : x[0].unbind(0)) {
            std::tie(h, c) = m(step, std::make_tuple(h, c));
          }
          return Tensors{h, c};
        }),
};

/// Query, key and value; the result and, if asked for, the weights.
Tensors attend(nn::MultiheadAttention& m, const at::Tensor& q, const at::Tensor& k,
               const at::Tensor& v, const at::Tensor& padding = {}, const at::Tensor& mask = {}) {
  auto [output, weights] = m(q, k, v, padding, /*need_weights=*/true, mask);
  return {output, weights};
}

nn::MultiheadAttentionOptions attention_options() { return nn::MultiheadAttentionOptions(8, 2); }

const ModuleCase kAttention[] = {
    module_case(
        "MultiheadAttention_self",
        [] { return nn::MultiheadAttention(attention_options().dropout(0.2)); }, randn({{4, 2, 8}}),
        none,
        [](nn::MultiheadAttention& m, const Tensors& x) { return attend(m, x[0], x[0], x[0]); }),
    module_case(
        "MultiheadAttention_cross", [] { return nn::MultiheadAttention(attention_options()); },
        randn({{4, 2, 8}, {5, 2, 8}}), none,
        [](nn::MultiheadAttention& m, const Tensors& x) { return attend(m, x[0], x[1], x[1]); }),
    // Three arguments of one size: compared by value in every call.
    module_case(
        "MultiheadAttention_separate", [] { return nn::MultiheadAttention(attention_options()); },
        randn({{4, 2, 8}, {4, 2, 8}, {4, 2, 8}}), none,
        [](nn::MultiheadAttention& m, const Tensors& x) { return attend(m, x[0], x[1], x[2]); }),
    module_case(
        "MultiheadAttention_intermediates",
        [] { return nn::MultiheadAttention(attention_options()); }, randn({{4, 2, 8}, {4, 2, 8}}),
        none,
        [](nn::MultiheadAttention& m, const Tensors& x) {
          const at::Tensor memory = x[1].tanh();
          return attend(m, x[0].sin(), memory, memory);
        }),
    module_case(
        "MultiheadAttention_otherWidths",
        [] {
          return nn::MultiheadAttention(
              attention_options().kdim(6).vdim(5).bias(false).add_bias_kv(false));
        },
        randn({{4, 2, 8}, {5, 2, 6}, {5, 2, 5}}), none,
        [](nn::MultiheadAttention& m, const Tensors& x) { return attend(m, x[0], x[1], x[2]); }),
    module_case(
        "MultiheadAttention_extras",
        [] {
          return nn::MultiheadAttention(attention_options().add_bias_kv(true).add_zero_attn(true));
        },
        randn({{4, 2, 8}}), none,
        [](nn::MultiheadAttention& m, const Tensors& x) { return attend(m, x[0], x[0], x[0]); }),
    module_case(
        "MultiheadAttention_masked", [] { return nn::MultiheadAttention(attention_options()); },
        randn({{4, 2, 8}}),
        [] {
          return Tensors{torch::tensor({{false, false, true, true}, {false, true, false, false}}),
                         torch::randn({4, 4})};
        },
        [](nn::MultiheadAttention& m, const Tensors& x) {
          return attend(m, x[0], x[0], x[0], x[1], x[2]);
        }),

    unary("TransformerEncoderLayer", {4, 2, 8},
          [] {
            return nn::TransformerEncoderLayer(
                nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).activation(
                    torch::kGELU));
          }),
    module_case(
        "TransformerDecoderLayer",
        [] {
          return nn::TransformerDecoderLayer(
              nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12));
        },
        randn({{4, 2, 8}, {4, 2, 8}}), none,
        [](nn::TransformerDecoderLayer& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; }),
    unary("TransformerEncoder", {4, 2, 8},
          [] {
            return nn::TransformerEncoder(nn::TransformerEncoderOptions(
                nn::TransformerEncoderLayer(
                    nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12)),
                2));
          }),
    module_case(
        "TransformerDecoder",
        [] {
          return nn::TransformerDecoder(nn::TransformerDecoderOptions(
              nn::TransformerDecoderLayer(
                  nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12)),
              2));
        },
        randn({{4, 2, 8}, {5, 2, 8}}), none,
        [](nn::TransformerDecoder& m, const Tensors& x) { return Tensors{m(x[0], x[1])}; }),
    module_case(
        "Transformer",
        [] {
          return nn::Transformer(nn::TransformerOptions(8, 2)
                                     .num_encoder_layers(1)
                                     .num_decoder_layers(1)
                                     .dim_feedforward(12));
        },
        randn({{4, 2, 8}, {4, 2, 8}}), none,
        [](nn::Transformer& m, const Tensors& x) {
          return Tensors{
              m(x[0], x[1], at::Tensor(), nn::TransformerImpl::generate_square_subsequent_mask(4))};
        }),
};

struct WithParametersImpl : nn::Module {
  WithParametersImpl() {
    list = register_module("list", nn::ParameterList(torch::randn({4}), torch::randn({4})));
    dict = register_module("dict", nn::ParameterDict());
    dict->insert("scale", torch::randn({4}));
    // The containers make parameters of what they are given only in some overloads.
    for (at::Tensor& parameter : parameters()) parameter.set_requires_grad(true);
  }
  at::Tensor forward(const at::Tensor& x) {
    return (x * (*list)[0] + (*list)[1]) * (*dict)["scale"];
  }
  nn::ParameterList list{nullptr};
  nn::ParameterDict dict{nullptr};
};
TORCH_MODULE(WithParameters);

const ModuleCase kContainers[] = {
    module_case(
        "Sequential",
        [] { return nn::Sequential(nn::Linear(4, 5), nn::BatchNorm1d(5), nn::Dropout(0.5)); },
        randn({{3, 4}}), none,
        [](nn::Sequential& m, const Tensors& x) { return Tensors{m->forward(x[0])}; }),
    module_case(
        "Sequential_named",
        [] {
          return nn::Sequential({{"first", nn::AnyModule(nn::Linear(4, 5))},
                                 {"second", nn::AnyModule(nn::Functional(torch::relu))}});
        },
        randn({{3, 4}}), none,
        [](nn::Sequential& m, const Tensors& x) { return Tensors{m->forward(x[0])}; }),
    unary("Functional", {3, 4}, [] { return nn::Functional(torch::tanh); }),
    module_case(
        "ModuleList", [] { return nn::ModuleList(nn::Linear(4, 4), nn::Linear(4, 4)); },
        randn({{3, 4}}), none,
        [](nn::ModuleList& m, const Tensors& x) {
          at::Tensor y = x[0];
          for (const auto& layer : *m) y = layer->as<nn::Linear>()->forward(y).sin();
          return Tensors{y};
        }),
    module_case(
        "ModuleDict",
        [] {
          torch::OrderedDict<std::string, std::shared_ptr<nn::Module>> modules;
          modules.insert("fc", nn::Linear(4, 5).ptr());
          modules.insert("act", nn::GELU().ptr());
          return nn::ModuleDict(modules);
        },
        randn({{3, 4}}), none,
        [](nn::ModuleDict& m, const Tensors& x) {
          return Tensors{
              m["act"]->as<nn::GELU>()->forward(m["fc"]->as<nn::Linear>()->forward(x[0]))};
        }),
    unary("ParameterList", {3, 4}, [] { return WithParameters(); }),
    unary("ParameterDict", {3, 4}, [] { return WithParameters(); }),
};

class SequenceModules : public ::testing::TestWithParam<ModuleCase> {};

TEST_P(SequenceModules, LikeEager) { expect_module_like_eager(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Recurrent, SequenceModules, ::testing::ValuesIn(kRecurrent),
                         module_case_name);
INSTANTIATE_TEST_SUITE_P(Attention, SequenceModules, ::testing::ValuesIn(kAttention),
                         module_case_name);
INSTANTIATE_TEST_SUITE_P(Containers, SequenceModules, ::testing::ValuesIn(kContainers),
                         module_case_name);

// How many sequences are still running at each step is data.
TEST(SequenceModules, PackedSequencesAreRefused) {
  const auto pack = [](const at::Tensor& x) {
    return nn::utils::rnn::pack_padded_sequence(x, torch::tensor({5, 3, 2}));
  };
  const auto packed =
      nn::utils::rnn::pack_padded_sequence(torch::randn({5, 3, 4}), torch::tensor({5, 3, 2}));
  expect_module_refused(module_case(
                            "GRU", [] { return nn::GRU(4, 6); }, randn({{5, 3, 4}}), none,
                            [=](nn::GRU& m, const Tensors& x) {
                              auto [output, state] = m->forward_with_packed_input(pack(x[0]));
                              return Tensors{output.data(), state};
                            }),
                        "_pack_padded_sequence reads the value of a tensor");
  expect_module_refused(
      module_case(
          "LSTM", [] { return nn::LSTM(4, 6); }, randn({{10, 4}}), none,
          [=](nn::LSTM& m, const Tensors& x) {
            const nn::utils::rnn::PackedSequence sequence(
                x[0], packed.batch_sizes(), packed.sorted_indices(), packed.unsorted_indices());
            return Tensors{std::get<0>(m->forward_with_packed_input(sequence)).data()};
          }),
      "reads the value of a tensor");
}

}  // namespace
}  // namespace tandem::test
