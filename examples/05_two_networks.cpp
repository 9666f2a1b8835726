// Two networks, two losses, two optimizers: a generator learns to imitate numbers that a
// discriminator tells apart.
//
// Each loss is compiled by itself and names both modules. Nothing else differs from eager code:
// gradients that are not wanted are cut with detach(), or zeroed before the next step.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace F = torch::nn::functional;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

torch::nn::Sequential make_net(int64_t in, int64_t out) {
  return torch::nn::Sequential(torch::nn::Linear(in, 24), torch::nn::LeakyReLU(),
                               torch::nn::Linear(24, out));
}

at::Tensor real_numbers(int64_t count) { return torch::randn({count, 1}) * 0.5 + 3.0; }

int main() {
  torch::manual_seed(5);
  auto generator = make_net(4, 1), discriminator = make_net(1, 1);
  const auto adam = torch::optim::AdamOptions(0.01).betas({0.5, 0.9});
  torch::optim::Adam generator_optimizer(generator->parameters(), adam);
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(), adam);

  auto says = [discriminator](const at::Tensor& x, double label) mutable {
    const at::Tensor answer = discriminator->forward(x);
    return F::binary_cross_entropy_with_logits(answer, torch::full_like(answer, label));
  };
  auto discriminator_loss =
      tandem::compile(std::tuple{generator, discriminator},
                      [=](const at::Tensor& real, const at::Tensor& noise) mutable {
                        return says(real, 1.0) + says(generator->forward(noise).detach(), 0.0);
                      });
  auto generator_loss = tandem::compile(
      std::tuple{generator, discriminator},
      [=](const at::Tensor& noise) mutable { return says(generator->forward(noise), 1.0); });

  auto mean_made = [&] {
    torch::NoGradGuard no_grad;
    return generator->forward(torch::randn({1000, 4})).mean().item<double>();
  };
  const double before = mean_made();
  for (int step = 0; step < 400; ++step) {
    const at::Tensor noise = torch::randn({64, 4});
    discriminator_optimizer.zero_grad();
    discriminator_loss(real_numbers(64), noise).backward();
    discriminator_optimizer.step();

    // Its backward also reaches the discriminator; zero_grad() above throws those gradients away.
    generator_optimizer.zero_grad();
    generator_loss(noise).backward();
    generator_optimizer.step();
    if (step % 100 == 0)
      std::printf("step %3d  the made numbers average %.2f\n", step, mean_made());
  }
  std::printf("the made numbers average %.2f; the real ones 3.00\n", mean_made());
  expect(std::abs(mean_made() - 3.0) < std::abs(before - 3.0) / 2, "the generator imitates");

  // The detached generator is part of the graph, but nothing is saved for a backward of it.
  const tandem::Entry entry = discriminator_loss.entries().front();
  for (const tandem::ir::Output& output : entry.backward().outputs()) {
    const bool of_generator = output.role.name.starts_with("0.");
    expect(!of_generator || output.value == tandem::ir::kNoValue,
           "no gradient of the generator comes from the discriminator's loss");
  }
  expect(discriminator_loss.stats().traces == 1 && generator_loss.stats().traces == 1,
         "both losses were traced once");
  return 0;
}
