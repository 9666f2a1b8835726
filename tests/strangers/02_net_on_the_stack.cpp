// A module that is a local variable, batches of a DataLoader of which the last is smaller, and
// eval() after each epoch.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <iomanip>
#include <iostream>

struct Digits : torch::data::datasets::Dataset<Digits> {
  torch::Tensor images = torch::randn({54, 1, 12, 12});
  torch::Tensor labels = torch::randint(10, {54});

  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images[i], labels[i]};
  }
  torch::optional<size_t> size() const override { return 54; }
};

struct Net : torch::nn::Module {
  Net()
      : conv1(torch::nn::Conv2dOptions(1, 6, 3)),
        conv2(torch::nn::Conv2dOptions(6, 8, 3)),
        fc1(8 * 2 * 2, 20),
        fc2(20, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("drop", drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(drop->forward(conv2->forward(x)), 1));
    x = torch::adaptive_avg_pool2d(x, {2, 2});
    x = x.view({x.size(0), -1});
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, 0.25, is_training());
    return torch::log_softmax(fc2->forward(x), 1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Dropout2d drop;
  torch::nn::Linear fc1, fc2;
};

int main() {
  torch::manual_seed(1);
  std::cout << std::setprecision(9);
  Net model;
  auto train_step = tandem::compile(model, [&](torch::Tensor data, torch::Tensor target) {
    return torch::nll_loss(model.forward(data), target);
  });
  auto predict =
      tandem::compile(model, [&model](torch::Tensor data) { return model.forward(data); });
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Digits().map(torch::data::transforms::Stack<>()), 16);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  for (int epoch = 1; epoch <= 2; ++epoch) {
    model.train();
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = train_step(batch.data, batch.target);
      loss.backward();
      optimizer.step();
      std::cout << "loss " << loss.item<float>() << "\n";
    }
    model.eval();
    torch::NoGradGuard no_grad;
    int64_t correct = 0;
    double test_loss = 0;
    for (auto& batch : *loader) {
      auto output = predict(batch.data);
      test_loss += torch::nll_loss(output, batch.target, {}, torch::Reduction::Sum).item<double>();
      correct += output.argmax(1).eq(batch.target).sum().item<int64_t>();
    }
    std::cout << "epoch " << epoch << " test loss " << test_loss / 54 << " correct " << correct
              << "\n";
  }
}
