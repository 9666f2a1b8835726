// The stages of compile(), one by one: for people who want the graph, their own cut or their own
// backend.
#include "tandem/tandem.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

// A partitioner is a function. This one cuts as default_partition does and prints what is saved.
tandem::Split tell_and_cut(const tandem::Joint& joint, const tandem::Options& options) {
  tandem::Split split = tandem::default_partition(joint, options);
  int64_t bytes = 0;
  for (const tandem::Saved& saved : split.saved) bytes += saved.bytes;
  std::cout << "the cut keeps " << split.saved.size() << " values, " << bytes << " bytes\n";
  return split;
}

int main() {
  torch::manual_seed(3);
  const at::Tensor weight = torch::randn({5, 4}).requires_grad_();
  const at::Tensor x = torch::randn({3, 5}).requires_grad_();
  auto fn = [=](const at::Tensor& x) { return torch::tanh(x.matmul(weight)).pow(2).sum(); };

  // trace, signature, joint, passes: forward and backward in one graph. `weight` was found and
  // lifted. The backend is named from the start, because it says which ops it wants written as
  // others; this one wants none, and has eager's bits.
  const tandem::Joint joint = tandem::export_joint(fn, std::tuple{x}, {.backend = "eager"});
  std::cout << "--- joint\n" << tandem::ir::print(joint.graph);
  expect(joint.lifted.size() == 1 && joint.lifted[0].is_same(weight),
         "the closed-over tensor is lifted");
  expect(tandem::ir::violations(joint.graph).empty(), "the graph is well-formed");

  // partition: two graphs, and what the first keeps for the second.
  const tandem::Split parts = tandem::split(joint, {.partitioner = tell_and_cut});
  std::cout << "--- forward\n" << tandem::ir::print(parts.forward);
  std::cout << "--- backward\n" << tandem::ir::print(parts.backward);

  // lower: something to call, lifted tensors first. Its result is part of autograd's graph.
  const tandem::Boxed call = tandem::lower(parts, tandem::backend("eager"));
  const at::Tensor loss = call({weight, x}).at(0);
  loss.backward();
  const at::Tensor grad_x = x.grad().clone(), grad_weight = weight.grad().clone();

  x.mutable_grad().reset();
  weight.mutable_grad().reset();
  const at::Tensor eager_loss = fn(x);
  eager_loss.backward();
  expect(torch::equal(loss, eager_loss), "the same loss as eager");
  expect(torch::equal(grad_x, x.grad()), "the same gradient of the argument");
  expect(torch::equal(grad_weight, weight.grad()), "the same gradient of the lifted tensor");

  // A graph is data: change it, check it, run it without any of the stages before.
  tandem::ir::Graph graph = tandem::ir::parse(R"(
    graph g(%x: f32[3] user_input 0) {
      %unused: f32[3] = aten.sin(%x)
      %y: f32[3] = aten.exp(%x)
      return %y: output 0
    })");
  expect(tandem::apply_pass("remove-dead-nodes", graph).changes == 1, "one node was dead");
  std::vector<at::Tensor> inputs{torch::zeros({3})};
  const at::Tensor ones = tandem::backend("eager")->compile(graph, {})->run(inputs).at(0);
  expect(torch::equal(ones, torch::ones({3})), "exp(0) is 1");
  std::cout << "all stages agree with eager\n";
  return 0;
}
