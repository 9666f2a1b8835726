// A module as one graph: parameters and buffers by name, loss and gradients as outputs.
//
// The graph needs neither the module nor Tandem's call path. Here it is written to a file, read
// back and trained with: what a runtime of your own would do.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

// The loss is part of the module, because we want its gradients in the graph.
struct Classifier : torch::nn::Module {
  Classifier() {
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::BatchNorm1d(16),
                                      torch::nn::Linear(16, 2)));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor scores = body->forward(x);
    return {torch::nn::functional::cross_entropy(scores, y), scores.detach()};
  }
  torch::nn::Sequential body{nullptr};
};

int main(int argc, char** argv) {
  torch::manual_seed(7);
  const std::string file = argc > 1 ? argv[1] : "classifier.tdm";
  auto net = std::make_shared<Classifier>();
  const at::Tensor x = torch::randn({64, 4}), y = (x.select(1, 0) > x.select(1, 1)).to(at::kLong);

  const tandem::Exported m =
      tandem::export_module(net, std::tuple{x, y}, {.joint = true, .loss_output = 0});
  std::cout << "--- where everything is\n" << m.signature;
  std::cout << "--- the graph\n" << tandem::ir::print(m.graph);
  tandem::ir::write_file(file, {&m.graph, 1});

  // From here on: the file, the signature, and tensors of our own.
  const tandem::ir::Graph graph = tandem::ir::read_file(file).front();
  const auto program = tandem::backend("eager")->compile(graph, {});
  std::vector<at::Tensor> inputs(graph.inputs().size());
  for (const auto& [name, place] : m.signature.parameters)
    inputs[place] = net->named_parameters()[name].detach().clone();
  for (const auto& [name, place] : m.signature.buffers)
    inputs[place] = net->named_buffers()[name].clone();
  inputs[m.signature.user_inputs.at(0)] = x;
  inputs[m.signature.user_inputs.at(1)] = y;

  torch::optim::SGD optimizer(net->parameters(), 0.5);  // the module itself, eagerly, to compare
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const std::vector<at::Tensor> outputs = program->run(inputs);
    last = outputs[*m.signature.loss_output].item<double>();
    if (step == 0) first = last;
    for (const auto& [name, place] : m.signature.gradients)
      inputs[m.signature.parameters.at(name)].sub_(0.5 * outputs[place]);
    for (const auto& [name, place] : m.signature.mutated_buffers)
      inputs[m.signature.buffers.at(name)].copy_(outputs[place]);

    optimizer.zero_grad();
    const at::Tensor loss = std::get<0>(net->forward(x, y));
    loss.backward();
    optimizer.step();
    expect(loss.item<double>() == last, "the graph's loss is the module's, bit for bit");
  }
  std::printf("trained from the graph alone: loss %.4f to %.4f\n", first, last);
  expect(last < first / 2, "it learns");
  return 0;
}
