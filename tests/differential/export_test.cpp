// An exported module, run without Tandem's call path: eager's numbers, by name.
#include "support/graph_text.h"
#include "support/models.h"
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace tandem {
namespace {

using test::same_bits;
using T = at::Tensor;
using Tensors = std::vector<T>;

/// A loss over a net's result, as a module: what `export_module` wants for a joint graph.
template <class Net>
struct WithLossImpl : torch::nn::Module {
  explicit WithLossImpl(Net net) : net(register_module("net", std::move(net))) {}
  T forward(const T& x, const T& y) {
    return torch::nn::functional::cross_entropy(net->forward(x), y);
  }
  Net net;
};
template <class Net>
std::shared_ptr<WithLossImpl<Net>> with_loss(Net net) {
  return std::make_shared<WithLossImpl<Net>>(std::move(net));
}

/// Everything that an exported graph says about one call, by name.
struct Answers {
  Tensors outputs;
  std::map<std::string, T> gradients, buffers;
};

/// Prints, parses, verifies, compiles and runs the graph on the module's present state.
Answers run(const Exported& exported, const torch::nn::Module& module, const Tensors& arguments) {
  const std::string text = ir::print(exported.graph);
  const ir::Graph graph = ir::parse(text);
  EXPECT_EQ(ir::print(graph), text);
  EXPECT_TRUE(ir::violations(graph).empty());

  Tensors inputs(graph.inputs().size());
  const auto parameters = module.named_parameters(), buffers = module.named_buffers();
  for (const auto& [name, place] : exported.signature.parameters)
    inputs.at(place) = parameters[name];
  for (const auto& [name, place] : exported.signature.buffers) inputs.at(place) = buffers[name];
  for (const auto& [index, place] : exported.signature.user_inputs)
    inputs.at(place) = arguments.at(index);
  const Tensors results = backend("eager")->compile(graph, {})->run(inputs);

  Answers answers;
  for (int64_t place : exported.signature.user_outputs)
    answers.outputs.push_back(results.at(place));
  for (const auto& [name, place] : exported.signature.gradients)
    answers.gradients[name] = results.at(place);
  for (const auto& [name, place] : exported.signature.mutated_buffers)
    answers.buffers[name] = results.at(place);
  return answers;
}

/// One eager step; the module's own buffers and gradients change. Afterwards `answers` must equal
/// them, the buffers that the graph does not return must be as before.
template <class Net>
void expect_like_eager(const Answers& answers, Net& net, const Tensors& arguments) {
  std::map<std::string, T> before;
  for (const auto& buffer : net->named_buffers()) before[buffer.key()] = buffer.value().clone();
  const T loss = net->forward(arguments[0], arguments[1]);
  loss.backward();
  EXPECT_TRUE(same_bits(answers.outputs.at(0), loss.detach()));
  for (const auto& parameter : net->named_parameters()) {
    EXPECT_TRUE(same_bits(answers.gradients.at(parameter.key()), parameter.value().grad()))
        << parameter.key();
  }
  for (const auto& buffer : net->named_buffers()) {
    const auto written = answers.buffers.find(buffer.key());
    EXPECT_TRUE(same_bits(written == answers.buffers.end() ? before[buffer.key()] : written->second,
                          buffer.value()))
        << buffer.key();
  }
}

TEST(ExportModule, AJointGraphOfAnMlpHasEagersLossAndGradients) {
  torch::manual_seed(1);
  auto net = with_loss(test::Mlp(6, 8, 3, /*dropout=*/0.0));
  const T x = torch::randn({5, 6}), y = torch::randint(3, {5}, torch::kLong);

  const Exported exported = export_module(net, std::tuple{x, y}, {.joint = true});

  EXPECT_EQ(to_string(exported.signature),
            "parameter \"net.first.bias\"     input 1, gradient: output 2\n"
            "parameter \"net.first.weight\"   input 0, gradient: output 1\n"
            "parameter \"net.second.bias\"    input 3, gradient: output 4\n"
            "parameter \"net.second.weight\"  input 2, gradient: output 3\n"
            "user input 0                   input 4\n"
            "user input 1                   input 5\n"
            "user output 0                  output 0, the loss\n");
  for (const ir::ValueId input : exported.graph.inputs())
    EXPECT_NE(exported.graph.input_role(input).role, ir::Role::Tangent);
  EXPECT_EQ(ir::to_string(exported.graph.outputs()[1].role), "grad 0 \"net.first.weight\"");
  expect_like_eager(run(exported, *net, {x, y}), net, {x, y});
  // Numbers of the trace are nowhere in the graph.
  const T x2 = torch::randn({5, 6}), y2 = torch::randint(3, {5}, torch::kLong);
  net->zero_grad();
  expect_like_eager(run(exported, *net, {x2, y2}), net, {x2, y2});
}

TEST(ExportModule, BatchNormReturnsItsStatisticsInTrainingAndNotInEval) {
  torch::manual_seed(2);
  auto net = with_loss(test::ConvNet());
  const T x = torch::randn({4, 3, 12, 12}), y = torch::randint(10, {4}, torch::kLong);

  const Exported training = export_module(net, std::tuple{x, y}, {.joint = true});
  EXPECT_EQ(training.signature.buffers.size(), 6);
  EXPECT_EQ(training.signature.mutated_buffers.size(), 6);
  expect_like_eager(run(training, *net, {x, y}), net, {x, y});

  net->eval();
  net->zero_grad();
  const Exported eval = export_module(net, std::tuple{x, y}, {.joint = true});
  EXPECT_EQ(eval.signature.buffers.size(), 6);
  EXPECT_TRUE(eval.signature.mutated_buffers.empty());
  expect_like_eager(run(eval, *net, {x, y}), net, {x, y});
}

TEST(ExportModule, ExportingChangesNeitherTheModuleNorTheRandomStream) {
  auto net = with_loss(test::ConvNet());
  const T x = torch::randn({4, 3, 12, 12}), y = torch::randint(10, {4}, torch::kLong);
  torch::manual_seed(3);
  const T expected = torch::randn({4});

  torch::manual_seed(3);
  export_module(net, std::tuple{x, y}, {.joint = true});

  EXPECT_TRUE(same_bits(torch::randn({4}), expected));
  EXPECT_EQ(net->net->norm1->num_batches_tracked.item<int64_t>(), 0);
  EXPECT_FALSE(net->parameters()[0].grad().defined());
}

TEST(ExportModule, DropoutDrawsWhatEagerDraws) {
  auto net = with_loss(test::Mlp(6, 32, 3, /*dropout=*/0.5));
  const T x = torch::randn({5, 6}), y = torch::randint(3, {5}, torch::kLong);
  const Exported exported = export_module(net, std::tuple{x, y}, {.joint = true});

  torch::manual_seed(4);
  const Answers answers = run(exported, *net, {x, y});
  torch::manual_seed(4);
  expect_like_eager(answers, net, {x, y});
}

TEST(ExportModule, WithoutJointItIsAnInferenceGraph) {
  torch::nn::Linear net(4, 2);
  const T x = torch::randn({3, 4});

  const Exported exported = export_module(net, std::tuple{x});

  EXPECT_GRAPH_EQ(exported.graph, R"(
    graph module.forward(%w: f32[2, 4] param "weight", %b: f32[2] param "bias", %x: f32[3, 4] user_input 0) {
      %0: f32[4, 2] (1, 4) = aten.t(%w)
      %1: f32[3, 2] = aten.addmm(%b, %x, %0, beta=1, alpha=1)
      return %1: output 0
    })");
  EXPECT_FALSE(exported.signature.loss_output);
  EXPECT_TRUE(exported.signature.gradients.empty());
  EXPECT_TRUE(same_bits(run(exported, *net, {x}).outputs[0], net->forward(x).detach()));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embed = register_module("embed", torch::nn::Embedding(7, 4));
    head =
        register_module("head", std::make_shared<Head>(torch::nn::LinearOptions(4, 7).bias(false)));
    head->unregister_weight();
    head->register_weight(embed->weight);
  }
  struct Head : torch::nn::LinearImpl {
    using torch::nn::LinearImpl::LinearImpl;
    void unregister_weight() { parameters_.erase("weight"); }
    void register_weight(const T& shared) { weight = register_parameter("weight", shared); }
  };
  T forward(const T& tokens, const T& y) {
    return torch::nn::functional::cross_entropy(head->forward(embed->forward(tokens)), y);
  }
  torch::nn::Embedding embed{nullptr};
  std::shared_ptr<Head> head;
};
TORCH_MODULE(Tied);

TEST(ExportModule, ATiedWeightIsOneInputWithTwoNamesAndOneGradient) {
  torch::manual_seed(5);
  Tied net;
  const T tokens = torch::randint(7, {6}, torch::kLong), y = torch::randint(7, {6}, torch::kLong);

  const Exported exported = export_module(net, std::tuple{tokens, y}, {.joint = true});

  const ModuleSignature& signature = exported.signature;
  EXPECT_EQ(exported.graph.inputs().size(), 3);
  EXPECT_EQ(signature.parameters.at("embed.weight"), 0);
  EXPECT_EQ(signature.parameters.at("head.weight"), 0);
  EXPECT_EQ(signature.gradients.at("embed.weight"), signature.gradients.at("head.weight"));
  expect_like_eager(run(exported, *net, {tokens, y}), net, {tokens, y});
}

struct ManyRoles : torch::nn::Module {
  ManyRoles() {
    weight = register_parameter("weight", torch::randn({3}));
    frozen = register_parameter("frozen", torch::randn({3}), /*requires_grad=*/false);
    spare = register_parameter("spare", torch::randn({2}), /*requires_grad=*/false);
    calls = register_buffer("calls", torch::zeros({}));
  }
  /// The loss is the second result; the first is a view of an argument, the third one is undefined.
  std::tuple<T, T, T> forward(const T& x, const T& scratch) {
    calls.add_(1);
    scratch.mul_(2);
    return {x.detach().view({3, 1}), (x * weight * frozen * scratch).sum(), T()};
  }
  T weight, frozen, spare, calls;
};

TEST(ExportModule, UnusedFrozenWrittenAliasedAndUndefinedThingsHaveTheirPlaces) {
  torch::manual_seed(6);
  auto net = std::make_shared<ManyRoles>();
  const T x = torch::randn({3}).requires_grad_(), scratch = torch::randn({3});

  const Exported exported =
      export_module(net, std::tuple{x, scratch}, {.joint = true, .loss_output = 1});

  EXPECT_EQ(to_string(exported.signature),
            "parameter \"frozen\"  input 1\n"
            "parameter \"spare\"   input 2\n"
            "parameter \"weight\"  input 0, gradient: output 5\n"
            "buffer \"calls\"      input 3, new data: output 0\n"
            "user input 0        input 4, gradient: output 6\n"
            "user input 1        input 5, new data: output 1\n"
            "user output 0       output 2\n"
            "user output 1       output 3, the loss\n"
            "user output 2       output 4\n");
  const Answers answers = run(exported, *net, {x, scratch});
  EXPECT_EQ(net->calls.item<double>(), 0);  // the graph is functional: the caller writes back
  const auto [view, loss, undefined] = net->forward(x, scratch);
  loss.backward();
  EXPECT_TRUE(same_bits(answers.outputs[0], view));
  EXPECT_TRUE(same_bits(answers.outputs[1], loss.detach()));
  EXPECT_FALSE(answers.outputs[2].defined());
  EXPECT_TRUE(same_bits(answers.gradients.at("weight"), net->weight.grad()));
  EXPECT_TRUE(same_bits(answers.buffers.at("calls"), net->calls));
}

// In a compiled call one tensor given twice is one tensor; a graph is for whatever comes later.
TEST(ExportModule, ArgumentsThatAreTheSameTensorStayTwoInputs) {
  struct Difference : torch::nn::Module {
    T forward(const T& a, const T& b) { return a - 2 * b; }
  };
  auto net = std::make_shared<Difference>();
  const T x = torch::ones({2});

  const Exported exported = export_module(net, std::tuple{x, x});

  const Answers answers = run(exported, *net, {torch::full({2}, 5.0), torch::full({2}, 1.0)});
  EXPECT_TRUE(same_bits(answers.outputs[0], torch::full({2}, 3.0)));
}

TEST(ExportModule, AParameterAsArgumentIsAnInputOfItsOwn) {
  torch::nn::Linear net(torch::nn::LinearOptions(2, 2).bias(false));

  const Exported exported = export_module(net, std::tuple{net->weight});

  EXPECT_EQ(exported.graph.inputs().size(), 2);
  const T x = torch::randn({2, 2});
  EXPECT_TRUE(same_bits(run(exported, *net, {x}).outputs[0], net->forward(x).detach()));
}

}  // namespace
}  // namespace tandem
