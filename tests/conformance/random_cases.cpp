#include "conformance/categories.h"
#include "conformance/variants.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

/// Random numbers. Where the peer needs a mode and CUDA, we have eager's own draws on every device;
/// its counter-based generator is our `Random::fast`.
namespace tandem::conformance {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void fast_random(Options& options) { options.random = Random::fast; }
void symbolic(Options& options) { options.dynamic = Dynamic::always; }

/// Draws in the forward and in the backward graph of the first entry.
Settings draws(const std::string& op, int64_t forward, int64_t backward) {
  Settings settings;
  settings.entry = [=](const Entry& entry) {
    EXPECT_EQ(count_of(entry.forward(), op), forward) << ir::print(entry.forward());
    if (entry.kind() == EntryKind::training) {
      EXPECT_EQ(count_of(entry.backward(), op), backward) << ir::print(entry.backward());
    }
  };
  return settings;
}

/// Ten seeds, each call against eager: bits, and where the stream stands afterwards.
void for_ten_seeds(const MakeInputs& inputs, const Function& program) {
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); });
  for (uint64_t seed = 0; seed < 10; ++seed) {
    torch::manual_seed(seed);
    Inputs made = inputs();
    torch::manual_seed(seed);
    const Tensors expected = program(made.arguments);
    const at::Tensor next = torch::rand({2});
    torch::manual_seed(seed);
    const Tensors found = compiled(made.arguments);
    EXPECT_TRUE(at::equal(torch::rand({2}), next)) << "stream after seed " << seed;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::equal(found[i], expected[i])) << "result " << i << ", seed " << seed;
  }
  EXPECT_EQ(compiled.stats().traces, 1);
}

/// Neither compiling nor preparing draws.
void preserve_random(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    return {torch::dropout(a[0], 0.5, true) + a[0]};
  };
  session.judge(plain({{10}}), program);
  session.judge(leaves({{10}}), program);
  const at::Tensor x = torch::randn({10});
  torch::manual_seed(5);
  const at::Tensor expected = torch::rand({4});
  torch::manual_seed(5);
  tandem::compile([=](const at::Tensor& a) { return torch::dropout(a, 0.5, true); }).prepare(x);
  EXPECT_TRUE(at::equal(torch::rand({4}), expected));
}

/// Without draws nothing about a call knows of random numbers.
void no_draws_no_seeds(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.forward().inputs().size(), 1);
    for (const ir::ValueId input : entry.forward().inputs())
      EXPECT_NE(entry.forward().input_role(input).role, ir::Role::Seed);
    EXPECT_TRUE(entry.forward().generators().empty());
  };
  session.judge(leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0] * 2}; }, settings);
}

void values_in_range(Session& session) {
  const Function program = [](Tensors& a) -> Tensors { return {torch::rand_like(a[0])}; };
  session.judge(plain({{4, 4}}), program, draws("aten::rand_like", 1, 0));
  const at::Tensor x = torch::randn({4, 4});
  const at::Tensor found =
      tandem::compile([](const at::Tensor& a) { return torch::rand_like(a); })(x);
  EXPECT_TRUE((found >= 0).all().item<bool>() && (found <= 1).all().item<bool>());
  EXPECT_EQ(found.sizes(), x.sizes());
}

void two_calls_differ(Session& session) {
  session.judge(plain({{4}}), [](Tensors& a) -> Tensors { return {torch::rand_like(a[0])}; });
  const auto compiled = tandem::compile([](const at::Tensor& a) { return torch::rand_like(a); });
  const at::Tensor x = torch::randn({8});
  EXPECT_FALSE(at::equal(compiled(x), compiled(x)));
}

/// With our own generator its seed is an input of the graph, and its state moves on.
/// A kernel that draws takes its seed from the generator itself: the graph has no input for one.
void seeds_are_no_inputs(Session& session, bool results_follow) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    int64_t seeds = 0;
    for (const ir::ValueId input : entry.forward().inputs())
      seeds += entry.forward().input_role(input).role == ir::Role::Seed;
    EXPECT_EQ(seeds, 0);
  };
  session.judge(with_options(
                    plain({{4}}),
                    [=](Tensors& a) -> Tensors {
                      Tensors results = {torch::rand_like(a[0]) * 0};
                      if (results_follow) results.push_back(a[0] * 2);
                      return results;
                    },
                    fast_random),
                settings);
}

void gradient_is_ones(Session& session) {
  const Function program = [](Tensors& a) -> Tensors { return {torch::rand_like(a[0]) + a[0]}; };
  session.judge(leaves({{4}}), program, draws("aten::rand_like", 1, 0));
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); });
  const at::Tensor x = leaf({4});
  compiled({x})[0].sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), torch::ones({4})));
}

void rrelu(Session& session) {
  session.judge(leaves({{4, 4}}),
                [](Tensors& a) -> Tensors { return {torch::rrelu(a[0], 0.1, 0.3, true)}; });
  session.judge(leaves({{4, 4}}), [](Tensors& a) -> Tensors {
    at::Tensor y = a[0] * 2;
    torch::rrelu_(y, 0.1, 0.3, true);
    return {y + 1};
  });
}

/// `n` by `n` for several n, one trace each.
void dynamic_draws(Session& session, bool requires_grad) {
  Settings settings;
  settings.traces = 4;
  settings.epilogue_traces = 2;
  session.judge(
      [=] {
        auto n = std::make_shared<int64_t>(0);
        return with_options(
            Program{[=] {
                      ++*n;
                      at::Tensor x = leaf({*n, *n}, requires_grad);
                      Inputs inputs{{x}};
                      if (requires_grad) inputs.leaves = {x};
                      return inputs;
                    },
                    [](Tensors& a) -> Tensors {
                      return {torch::rand_like(a[0]) * torch::rand_like(a[0]) * a[0]};
                    }},
            symbolic);
      },
      settings);
}

/// Two draws in the forward, one in the backward.
struct DrawsInBoth : torch::autograd::Function<DrawsInBoth> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return torch::rand_like(x) * torch::rand_like(x) * x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {grads[0] * torch::rand_like(context->get_saved_variables()[0])};
  }
};

void draws_in_the_backward(Session& session) {
  const Function program = [](Tensors& a) -> Tensors { return {DrawsInBoth::apply(a[0])}; };
  session.judge(leaves({{4}}), program, draws("aten::rand_like", 2, 1));
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); });
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto run = [&](const Function& call) {
      torch::manual_seed(seed);
      const at::Tensor x = leaf({4});
      Tensors list = {x};
      const at::Tensor y = call(list)[0];
      y.sum().backward();
      return Tensors{y.detach(), x.grad(), torch::rand({2})};
    };
    const Tensors expected = run(program), found = run([&](Tensors& a) { return compiled(a); });
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::equal(found[i], expected[i])) << i << ", seed " << seed;
  }
}

/// State read and put back between draws. A generator's state is host memory, and what host code
/// does with it happens at the trace only: the third draw is the next one of the stream, in every
/// call. A draw that shall repeat another takes its numbers from a tensor.
void state_put_back(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor first = torch::rand_like(a[0]);
    const at::Tensor state = generator.get_state();
    const at::Tensor second = torch::rand_like(a[0]);
    generator.set_state(state);
    return {first * a[0], second * a[0], torch::rand_like(a[0]) * a[0]};
  };
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); });
  const at::Tensor x = torch::ones({4});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    torch::manual_seed(seed);
    Tensors list = {x};
    const Tensors expected = program(list);
    torch::manual_seed(seed);
    const Tensors found = compiled({x});
    EXPECT_TRUE(at::equal(expected[1], expected[2]));
    torch::manual_seed(seed);
    torch::rand({4}), torch::rand({4});
    EXPECT_TRUE(at::equal(found[0], expected[0])) << "seed " << seed;
    EXPECT_TRUE(at::equal(found[1], expected[1])) << "seed " << seed;
    EXPECT_TRUE(at::equal(found[2], torch::rand({4}))) << "seed " << seed;
  }
  EXPECT_EQ(compiled.stats().traces, 1);
  session.judge(plain({{4}}), [](Tensors& a) -> Tensors {
    const at::Tensor first = torch::rand_like(a[0]), second = torch::rand_like(a[0]);
    return {first * a[0], second * a[0], second * a[0]};
  });
}

}  // namespace

Category random_numbers() {
  const Function noise_times_x = [](Tensors& a) -> Tensors {
    return {torch::rand_like(a[0]) * a[0]};
  };
  return {
      "RNG",
      {
          {"test_preserve_random", preserve_random},
          {"test_functionalized_rng_no_codegen_returns_same_fn", no_draws_no_seeds},
          {"test_functionalized_rng_codegen_correctness", values_in_range},
          judged("test_functionalized_rng_codegen_multi_output", plain({{4}}),
                 [](Tensors& a) -> Tensors { return {torch::rand_like(a[0]), a[0] + 1}; }),
          {"test_functionalized_rng_codegen_advances_state", two_calls_differ},
          {"test_functionalized_rng_codegen_unit_return_new_outs",
           [](Session& session) { seeds_are_no_inputs(session, true); },
           differs("draws are eager's own")},
          {"test_functionalized_rng_codegen_unit_no_return_new_outs",
           [](Session& session) { seeds_are_no_inputs(session, false); },
           differs("draws are eager's own")},
          judged("test_functionalized_rng_codegen_training", leaves({{4}}), noise_times_x,
                 draws("aten::rand_like", 1, 0)),
          {"test_compiled_backward_rng_correctness", gradient_is_ones},
          judged("test_backward_epilogue_rng_correctness", leaves({{4}}),
                 [](Tensors& a) -> Tensors { return {torch::rand_like(a[0]) + 2 * a[0]}; }),
          {"test_rrelu", rrelu},
          judged("test_lift_after_factory", plain({{4}}),
                 [](Tensors& a) -> Tensors {
                   return {at::lift(torch::randint(0, 10, {4}, torch::kLong)) + a[0]};
                 }),
          {"test_rand_like",
           [](Session& session) {
             const Function program = [](Tensors& a) -> Tensors {
               return {torch::rand_like(a[0]) * torch::rand_like(a[0]) * a[0]};
             };
             session.judge(plain({{10}}), program, draws("aten::rand_like", 2, 0));
             for_ten_seeds(plain({{10}}), program);
           }},
          {"test_rand",
           [](Session& session) {
             const Function program = [](Tensors& a) -> Tensors {
               return {torch::rand({4, 4}) * torch::rand({4, 4}) * a[0]};
             };
             session.judge(plain({{4, 4}}), program, draws("aten::rand", 2, 0));
             for_ten_seeds(plain({{4, 4}}), program);
           }},
          {"test_rand_like_dynamic", [](Session& session) { dynamic_draws(session, false); }},
          {"test_rand_like_dynamic_bwd", [](Session& session) { dynamic_draws(session, true); }},
          {"test_autograd_function", draws_in_the_backward},
          {"test_set_get_rng_state", state_put_back, differs("api: host code runs at a trace")},
          {"test_min_cut_partitioner",
           [](Session& session) {
             session.judge(with_options(
                               leaves({{4}}),
                               [](Tensors& a) -> Tensors {
                                 return {(torch::rand_like(a[0]) * torch::rand_like(a[0]) * a[0])
                                             .sin()
                                             .sin()
                                             .sin()};
                               },
                               [](Options& options) { options.partitioner = min_cut_recompute; }),
                           draws("aten::rand_like", 2, 0));
           }},
          {"test_checkpoint",
           [](Session& session) {
             session.judge(
                 leaves({{2, 2}}),
                 [](Tensors& a) -> Tensors {
                   return {tandem::checkpoint(
                       [](const at::Tensor& x) { return torch::dropout(x.sin(), 0.6, true).sin(); },
                       a[0])};
                 },
                 draws("aten::native_dropout", 1, 0));
           },
           later(Feature::Checkpoint, "checkpoint")},
          judged(
              "test_dropout_decomp", leaves({{10}}),
              [](Tensors& a) -> Tensors { return {torch::dropout(a[0], 0.6, true) * a[0]}; },
              [] {
                Settings settings;
                settings.entry = [](const Entry& entry) {
                  int64_t random = 0;
                  for (const std::string& name : op_names(entry.forward()))
                    random += name == "aten::bernoulli" || name == "aten::native_dropout" ||
                              name == "aten::rand_like";
                  EXPECT_EQ(random, 1) << ir::print(entry.forward());
                };
                return settings;
              }()),
      }};
}

}  // namespace tandem::conformance
