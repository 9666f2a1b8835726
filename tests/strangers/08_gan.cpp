// Two networks against each other, two optimizers.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>

int main() {
  torch::manual_seed(7);
  torch::nn::Sequential generator(torch::nn::Linear(4, 16), torch::nn::BatchNorm1d(16),
                                  torch::nn::ReLU(), torch::nn::Linear(16, 2));
  torch::nn::Sequential discriminator(
      torch::nn::Linear(2, 16),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Linear(16, 1), torch::nn::Sigmoid());
  torch::optim::Adam generator_optimizer(generator->parameters(),
                                         torch::optim::AdamOptions(2e-3).betas({0.5, 0.999}));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(),
                                             torch::optim::AdamOptions(2e-3).betas({0.5, 0.999}));

  auto generate = tandem::compile(generator);
  auto judge = tandem::compile(discriminator, [&](torch::Tensor points, torch::Tensor labels) {
    return torch::binary_cross_entropy(discriminator->forward(points).squeeze(1), labels);
  });
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    for (int64_t batch = 0; batch < 4; ++batch) {
      const int64_t size = batch == 3 ? 5 : 16;
      discriminator->zero_grad();
      torch::Tensor real = torch::randn({size, 2}) * 0.5 + 2;
      torch::Tensor real_labels = torch::empty({size}).uniform_(0.8, 1.0);
      torch::Tensor d_loss_real = judge(real, real_labels);
      d_loss_real.backward();
      torch::Tensor fake = generate(torch::randn({size, 4}));
      torch::Tensor d_loss_fake = judge(fake.detach(), torch::zeros(size));
      d_loss_fake.backward();
      torch::Tensor d_loss = d_loss_real + d_loss_fake;
      discriminator_optimizer.step();

      generator->zero_grad();
      torch::Tensor g_loss = judge(fake, torch::ones(size));
      g_loss.backward();
      generator_optimizer.step();
      std::printf("D %.9g G %.9g\n", d_loss.item<double>(), g_loss.item<double>());
    }
  }
}
