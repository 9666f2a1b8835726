#include "conformance/categories.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

/// Which saved values belong to the backward alone when it runs, so that it may free or reuse them.
namespace tandem::conformance {
namespace {

/// The backend `eager`; for each run of a backward, which of its saved values nobody else holds.
class HoldersBackend : public Backend {
 public:
  using Runs = std::vector<std::vector<bool>>;

  std::string_view name() const override { return "holders"; }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    auto inner = tandem::backend("eager")->compile(graph, context);
    if (context.role != GraphRole::backward) return inner;
    size_t saved = 0;
    for (const ir::ValueId input : graph.inputs())
      saved += graph.input_role(input).role == ir::Role::Saved;
    return std::make_unique<Probe>(std::move(inner), runs, saved);
  }

  std::shared_ptr<Runs> runs = std::make_shared<Runs>();

 private:
  const test::EnvironmentVariable no_other_{"TANDEM_BACKEND", nullptr};
  class Probe : public Executable {
   public:
    Probe(std::unique_ptr<Executable> inner, std::shared_ptr<Runs> runs, size_t saved)
        : inner_(std::move(inner)), runs_(std::move(runs)), saved_(saved) {}
    Tensors run(std::span<at::Tensor> inputs) override {
      std::vector<bool>& alone = runs_->emplace_back();
      for (size_t i = 0; i < saved_; ++i)
        alone.push_back(inputs[i].storage().use_count() == 1 && inputs[i].use_count() == 1);
      return inner_->run(inputs);
    }

   private:
    std::unique_ptr<Executable> inner_;
    std::shared_ptr<Runs> runs_;
    size_t saved_;
  };
};

/// One training step: `alone` says which saved values the backward owns.
Case owned(std::string name, Sizes sizes, std::vector<bool> alone, Function program) {
  return {std::move(name), [=](Session& session) {
            const auto backend = std::make_shared<HoldersBackend>();
            const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); },
                                                        {.backend = backend});
            Inputs inputs = leaves(sizes)();
            Tensors results = compiled(inputs.arguments);
            results.back().sum().backward();
            ASSERT_EQ(backend->runs->size(), 1);
            EXPECT_EQ(backend->runs->front(), alone);
            session.judge(leaves(sizes), program);
          }};
}

/// What one compiled function returns is an argument of the next, which saves it.
void saved_by_the_next_call(Session&) {
  const auto backend = std::make_shared<HoldersBackend>();
  const auto first = tandem::compile([](const at::Tensor& x) { return x.exp(); });
  const auto second =
      tandem::compile([](const at::Tensor& y) { return y.sin(); }, {.backend = backend});
  const at::Tensor x = leaf({4}), y = first(x);
  second(y).sum().backward();
  ASSERT_EQ(backend->runs->size(), 1);
  EXPECT_EQ(backend->runs->front(), std::vector<bool>{false}) << "the caller holds it";
  const at::Tensor z = x.detach().clone().requires_grad_();
  z.exp().sin().sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), z.grad()));
}

Tensors relu_times_weight(Tensors& a) { return {(torch::relu(a[0] * 2) * a[1]).sum()}; }

void five_steps(Session&) {
  const auto backend = std::make_shared<HoldersBackend>();
  const auto compiled = tandem::compile_boxed([](Tensors list) { return relu_times_weight(list); },
                                              {.backend = backend});
  for (int step = 0; step < 5; ++step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    Inputs inputs = leaves({{3, 3}, {3, 3}})();
    compiled(inputs.arguments)[0].backward();
    const Tensors found = {inputs.leaves[0].grad(), inputs.leaves[1].grad()};
    for (const at::Tensor& item : inputs.leaves) item.mutable_grad().reset();
    relu_times_weight(inputs.arguments)[0].backward();
    EXPECT_TRUE(at::equal(found[0], inputs.leaves[0].grad()));
    EXPECT_TRUE(at::equal(found[1], inputs.leaves[1].grad()));
  }
  for (const auto& alone : *backend->runs) EXPECT_EQ(alone, (std::vector<bool>{false, true}));
}

/// As long as the graph is kept the call keeps its values; the last backward owns them.
void graph_is_kept(Session&) {
  const auto backend = std::make_shared<HoldersBackend>();
  const auto compiled = tandem::compile_boxed([](Tensors list) { return relu_times_weight(list); },
                                              {.backend = backend});
  Inputs inputs = leaves({{3, 3}, {3, 3}})();
  const at::Tensor loss = compiled(inputs.arguments)[0];
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = inputs.leaves[0].grad().clone();
  for (int i = 0; i < 3; ++i) loss.backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(at::allclose(inputs.leaves[0].grad(), once * 4));
  loss.backward();
  EXPECT_TRUE(at::allclose(inputs.leaves[0].grad(), once * 5));
  ASSERT_EQ(backend->runs->size(), 5);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ((*backend->runs)[i], (std::vector<bool>{false, false})) << "run " << i;
  EXPECT_EQ(backend->runs->back(), (std::vector<bool>{false, true}));
}

void graph_is_created(Session&) {
  const auto compiled = tandem::compile_boxed([](Tensors list) { return relu_times_weight(list); });
  Inputs inputs = leaves({{3, 3}, {3, 3}})();
  const at::Tensor loss = compiled(inputs.arguments)[0];
  loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  const at::Tensor once = inputs.leaves[0].grad().detach().clone();
  for (int i = 0; i < 4; ++i) loss.backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(at::allclose(inputs.leaves[0].grad(), once * 5));
}

}  // namespace

Category donated_buffers() {
  return {"Saved-tensor hooks and donated buffers",
          {
              owned("test_donated_buffer1", {{4}}, {true},
                    [](Tensors& a) -> Tensors { return {torch::relu(a[0]) * 2}; }),
              owned("test_donated_buffer2", {{4}, {4}}, {false, true},
                    [](Tensors& a) -> Tensors { return {torch::relu(a[0]) * a[1]}; }),
              owned("test_donated_buffer3", {{4}, {4}}, {false, false},
                    [](Tensors& a) -> Tensors { return {a[0] * a[1]}; }),
              owned("test_donated_buffer4", {{4}, {4}}, {false, false, true},
                    [](Tensors& a) -> Tensors { return {torch::relu(a[0] * a[1]) * 3}; }),
              {"test_donated_buffer5", saved_by_the_next_call},
              owned("test_donated_buffer6", {{4}}, {false},
                    [](Tensors& a) -> Tensors {
                      const at::Tensor y = torch::relu(a[0]);
                      return {y, y * 2};
                    }),
              {"test_donated_buffer_with_retain_or_create_graph1", five_steps},
              {"test_donated_buffer_with_retain_or_create_graph2", graph_is_kept},
              {"test_donated_buffer_with_retain_or_create_graph3", graph_is_created},
          }};
}

}  // namespace tandem::conformance
