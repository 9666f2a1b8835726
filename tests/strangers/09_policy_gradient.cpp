// Acts with one observation at a time, then learns from an episode whose length nobody knows.
#include <tandem/tandem.h>

#include <torch/torch.h>

#include <cstdio>
#include <vector>

struct Corridor {
  int64_t place = 3;
  torch::Tensor see() const { return torch::one_hot(torch::tensor(place), 7).to(torch::kFloat); }
  // Reward, and whether it is over.
  std::pair<float, bool> move(int64_t action) {
    place += action == 1 ? 1 : -1;
    return {place == 6 ? 1.f : -0.05f, place == 0 || place == 6};
  }
};

int main() {
  torch::manual_seed(8);
  torch::nn::Sequential policy(torch::nn::Linear(7, 32), torch::nn::ReLU(),
                               torch::nn::Linear(32, 2), torch::nn::Softmax(-1));
  torch::optim::Adam optimizer(policy->parameters(), 1e-2);
  auto act = tandem::compile(policy, [&](torch::Tensor state) { return policy->forward(state); });
  auto learn = tandem::compile(
      policy, [&](torch::Tensor states, torch::Tensor actions, torch::Tensor returns) {
        auto chosen = policy->forward(states).gather(1, actions.unsqueeze(1)).squeeze(1);
        return -(chosen.log() * returns).sum();
      });
  for (int episode = 0; episode < 30; ++episode) {
    Corridor world;
    std::vector<torch::Tensor> states;
    std::vector<int64_t> actions;
    std::vector<float> rewards;
    for (bool over = false; !over && rewards.size() < 20;) {
      torch::NoGradGuard no_grad;
      states.push_back(world.see());
      actions.push_back(act(states.back()).multinomial(1).item<int64_t>());
      const auto [reward, ends] = world.move(actions.back());
      rewards.push_back(reward);
      over = ends;
    }
    std::vector<float> returns(rewards.size());
    float sum = 0;
    for (size_t i = rewards.size(); i-- > 0;) returns[i] = sum = rewards[i] + 0.9f * sum;
    auto loss = learn(torch::stack(states), torch::tensor(actions), torch::tensor(returns));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    std::printf("%zu steps, loss %.9g\n", rewards.size(), loss.item<double>());
  }
}
