#include "support/error_text.h"
#include "tandem/backend.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace tandem {
namespace {

using at::Tensor;

std::unique_ptr<Executable> compile(const char* text, const CompileContext& context = {}) {
  return backend("eager")->compile(ir::parse(text), context);
}

std::vector<Tensor> run(const char* text, std::vector<Tensor> inputs) {
  return compile(text)->run(inputs);
}

TEST(EagerBackend, GivesTheBitsOfTheOpsCalledDirectly) {
  const Tensor x = torch::randn({4, 2}), w = torch::randn({3, 2}), b = torch::randn({3});

  std::vector<Tensor> results = run(R"(
    graph g(%x: f32[4, 2] user_input 0, %w: f32[3, 2] param "w", %b: f32[3] param "b") {
      %t: f32[2, 3] (1, 2) = aten.t(%w)
      %h: f32[4, 3] = aten.addmm(%b, %x, %t, beta=1, alpha=1)
      %r: f32[4, 3] = aten.relu(%h)
      %v: f32[4], %i: i64[4] = aten.max.dim(%r, 1, false)
      return %v: output 0, %i: output 1, none: output 2
    })",
                                    {x, w, b});

  const auto [values, places] = at::relu(at::addmm(b, x, w.t())).max(1);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].equal(values));
  EXPECT_TRUE(results[1].equal(places));
  EXPECT_FALSE(results[2].defined());
}

TEST(EagerBackend, TakesListsAbsentTensorsAndConstants) {
  const Tensor x = torch::randn({4}), places = torch::tensor({2, 0});

  std::vector<Tensor> results = run(R"(
    graph g(%x: f32[4] user_input 0, %i: i64[2] user_input 1) {
      %c: f32[2] = constant {1.0, 2.0}
      [%a: f32[2], %b: f32[2]] = aten.split.Tensor(%x, 2, 0)
      %y: f32[6] = aten.cat([%b, %c, %a], 0)
      %m: f32[2, 3] = aten.view(%y, [2, 3])
      %p: f32[2, 2] = aten.index.Tensor(%m, [none, %i])
      %n: f32[2, 2] = aten.clamp.Tensor(%p, none, %a)
      return %y: output 0, %n: output 1
    })",
                                    {x, places});

  const Tensor y = at::cat({x.slice(0, 2, 4), torch::tensor({1.0f, 2.0f}), x.slice(0, 0, 2)});
  EXPECT_TRUE(results[0].equal(y));
  EXPECT_TRUE(results[1].equal(
      at::clamp(y.view({2, 3}).index({torch::indexing::Slice(), places}), {}, x.slice(0, 0, 2))));
}

TEST(EagerBackend, PassesNumbersFromNodeToNode) {
  std::vector<Tensor> results = run(R"(
    graph g(%x: f32[] user_input 0, %y: f32[2] user_input 1) {
      %n: float = aten._local_scalar_dense(%x)
      %z: f32[2] = aten.mul.Scalar(%y, %n)
      return %z: output 0
    })",
                                    {torch::tensor(3.0f), torch::ones({2})});

  EXPECT_TRUE(results[0].equal(torch::full({2}, 3.0f)));
}

TEST(EagerBackend, RunsARegionInPlace) {
  ir::Graph body = ir::parse(R"(
    graph body(%a: f32[4] user_input 0, %b: f32[4] user_input 1) {
      %c: f32[4] = aten.mul.Tensor(%a, %b)
      %d: f32[4] = aten.sin(%c)
      return %d: output 0, %a: output 1
    })");
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[4] user_input 0) {
      %h: f32[4] = aten.exp(%x)
      return
    })");
  const ir::ValueId h = graph.node(graph.first_node()).results()[0], x = graph.inputs()[0];
  const ir::Node& region = graph.add_region(body, {h, x}, "checkpoint", ir::Phase::Forward);
  graph.add_output(region.results()[0], ir::Descriptor::output(0));
  graph.add_output(region.results()[1], ir::Descriptor::output(1));
  std::vector<Tensor> inputs = {torch::randn({4})};

  std::vector<Tensor> results = backend("eager")->compile(graph, {})->run(inputs);

  EXPECT_TRUE(results[0].equal((inputs[0].exp() * inputs[0]).sin()));
  EXPECT_TRUE(results[1].equal(inputs[0].exp()));
}

// Draws nobody reads included: they move the generator.
TEST(EagerBackend, DrawsTheSameNumbersInTheSameOrder) {
  std::unique_ptr<Executable> executable = compile(R"(
    graph g(%x: f32[64] user_input 0) {
      %a: f32[64] = aten.bernoulli.p(%x, 0.5, generator=none)
      %dead: f32[64] = aten.rand([64], dtype=f32, layout=none, device=none, pin_memory=none)
      %b: f32[64] = aten.bernoulli.p(%x, 0.5, generator=none)
      return %a: output 0, %b: output 1
    })");
  std::vector<Tensor> inputs = {torch::zeros({64})};

  torch::manual_seed(7);
  std::vector<Tensor> results = executable->run(inputs);
  const Tensor after = torch::rand({4});

  torch::manual_seed(7);
  EXPECT_TRUE(results[0].equal(at::bernoulli(inputs[0], 0.5)));
  torch::rand({64});
  EXPECT_TRUE(results[1].equal(at::bernoulli(inputs[0], 0.5)));
  EXPECT_TRUE(after.equal(torch::rand({4})));
}

TEST(EagerBackend, DrawsFromAGeneratorOfTheGraph) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[64] user_input 0) {
      %a: f32[64] = aten.bernoulli.p(%x, 0.5, generator=none)
      return %a: output 0
    })");
  graph.set_operand(graph.node(graph.first_node()), 2, graph.add_generator(generator));
  std::vector<Tensor> inputs = {torch::zeros({64})};

  const Tensor drawn = backend("eager")->compile(graph, {})->run(inputs)[0];

  EXPECT_TRUE(drawn.equal(at::bernoulli(inputs[0], 0.5, at::detail::createCPUGenerator(3))));
}

TEST(EagerBackend, RunsBelowAutogradAndAutocast) {
  const Tensor x = torch::randn({4, 4}, torch::requires_grad());
  at::autocast::set_autocast_enabled(at::kCPU, true);

  std::vector<Tensor> results = run(R"(
    graph g(%x: f32[4, 4] user_input 0) {
      %y: f32[4, 4] = aten.mm(%x, %x)
      %z: f32[4, 4] (1, 4) = aten.t(%y)
      return %y: output 0, %z: output 1, %x: output 2
    })",
                                    {x});
  at::autocast::set_autocast_enabled(at::kCPU, false);

  EXPECT_EQ(results[0].scalar_type(), at::kFloat);
  EXPECT_FALSE(results[0].requires_grad());
  EXPECT_EQ(results[0].grad_fn(), nullptr);
  EXPECT_FALSE(results[1].is_view());
  EXPECT_TRUE(results[2].is_same(x));
  EXPECT_EQ(x._version(), 0);
}

TEST(EagerBackend, LetsAKernelsErrorThroughAsItIs) {
  const std::string text = test::error_text<c10::Error>([] {
    run(R"(
      graph g(%x: f32[2, 2] user_input 0) {
        %y: f32[2, 2] = aten.mm(%x, %x)
        return %y: output 0
      })",
        {torch::ones({2, 3})});
  });
  const std::string eager =
      test::error_text<c10::Error>([] { at::mm(torch::ones({2, 3}), torch::ones({2, 3})); });

  EXPECT_EQ(text.substr(0, text.find('\n')), eager.substr(0, eager.find('\n')));
}

TEST(EagerBackend, RefusesAWrongNumberOfInputs) {
  constexpr char graph[] = R"(
    graph g(%x: f32[2] user_input 0) {
      return %x: output 0
    })";

  EXPECT_EQ(test::error_text<UserError>([&] { run(graph, {}); }),
            "call: the graph takes 1 inputs, got 0\n  remedy: pass one tensor per input, undefined "
            "ones too");
  EXPECT_EQ(
      test::error_text<UserError>([&] { compile(graph, {.releasable_inputs = {true, true}}); }),
      "lower: graph g has 1 inputs, got 2 flags\n"
      "  remedy: leave releasable_inputs empty, or give one flag per input");
}

TEST(EagerBackend, RefusesToReturnANumber) {
  EXPECT_EQ(test::error_text<UnsupportedError>([] {
              compile(R"(
                graph g(%x: f32[] user_input 0) {
                  %n: float = aten._local_scalar_dense(%x)
                  return %n: output 0
                })");
            }),
            "lower: backend \"eager\" returns tensors only, output 0 is a number\n"
            "  remedy: return it as a tensor of no dimensions");
}

TEST(EagerBackend, MayRunInSeveralThreadsAtOnce) {
  std::unique_ptr<Executable> executable = compile(R"(
    graph g(%x: f32[1000] user_input 0) {
      %a: f32[1000] = aten.sin(%x)
      %b: f32[1000] = aten.mul.Tensor(%a, %x)
      %c: f32[1000] = aten.exp(%b)
      return %c: output 0
    })");
  std::vector<int> equal(4, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < equal.size(); ++i) {
    threads.emplace_back([&, i] {
      const Tensor x = torch::full({1000}, 0.1 * static_cast<double>(i + 1));
      const Tensor expected = (x.sin() * x).exp();
      for (int n = 0; n < 50; ++n) {
        std::vector<Tensor> inputs = {x};
        equal[i] += executable->run(inputs)[0].equal(expected) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(equal, std::vector<int>(4, 50));
}

TEST(BackendRegistry, KnowsItsBackends) {
  EXPECT_EQ(backend("eager")->name(), "eager");
  EXPECT_EQ(backend("llvm")->name(), "llvm");
}

TEST(BackendRegistry, SaysWhatItDoesNotKnow) {
  EXPECT_EQ(test::error_text<UserError>([] { backend("egaer"); }),
            "lower: no backend is called \"egaer\"\n"
            "  known:  eager, llvm\n"
            "  remedy: use backend \"eager\", or pass a std::shared_ptr<Backend>");
}

}  // namespace
}  // namespace tandem
