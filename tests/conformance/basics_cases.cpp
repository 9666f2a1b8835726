#include "conformance/categories.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <tuple>

/// Calling convention, grad mode, training or inference.
namespace tandem::conformance {
namespace {

/// Runs its argument in inference mode: for `Settings::around`.
void in_inference_mode(const std::function<void()>& body) {
  const c10::InferenceMode inference;
  body();
}

Settings of_kind(EntryKind kind) {
  Settings settings;
  settings.entry = [kind](const Entry& entry) { EXPECT_EQ(entry.kind(), kind); };
  return settings;
}

Settings without_grad_mode() {
  Settings settings = of_kind(EntryKind::inference);
  settings.around = in_no_grad_mode;
  return settings;
}

/// One call after a seed, and what `backward()` of the sum of its results leaves in the arguments.
Tensors gradients_of(const Function& function, const Sizes& sizes) {
  torch::manual_seed(3);
  Tensors arguments;
  for (const auto& size : sizes) arguments.push_back(leaf(size));
  Tensors list = arguments;
  at::Tensor sum;
  for (const at::Tensor& result : function(list))
    sum = sum.defined() ? sum + result.sum() : result.sum();
  sum.backward();
  Tensors found;
  for (const at::Tensor& argument : arguments) {
    found.push_back(argument.detach());
    found.push_back(argument.grad());
  }
  return found;  // argument, gradient, argument, gradient, ...
}

/// Judged, and its gradients have the closed form: `expected` gets the arguments.
Case closed_form(std::string name, Sizes sizes, Function program, Function expected) {
  return {std::move(name), [=](Session& session) {
            session.judge(leaves(sizes), program);
            const auto compiled =
                tandem::compile_boxed([=](Tensors list) { return program(list); });
            const Tensors found = gradients_of([&](Tensors& a) { return compiled(a); }, sizes);
            Tensors arguments;
            for (size_t i = 0; i < found.size(); i += 2) arguments.push_back(found[i]);
            const Tensors wanted = expected(arguments);
            ASSERT_EQ(wanted.size() * 2, found.size());
            for (size_t i = 0; i < wanted.size(); ++i) {
              EXPECT_TRUE(at::allclose(found[2 * i + 1], wanted[i])) << "gradient " << i;
            }
          }};
}

void non_tensor_and_none_inputs(Session& session) {
  const auto function = [](int64_t n, const std::optional<at::Tensor>& none, const at::Tensor& x) {
    return none ? *none : n * x;
  };
  const auto call = [](const auto& f, Tensors& a) -> Tensors {
    return {f(int64_t{2}, std::optional<at::Tensor>(), a[0])};
  };
  session.judge(in_form(leaves({{3, 3}}), function, call));
  session.judge(in_form(plain({{3, 3}}), function, call));
}

void mutation_simple_with_none_and_nontensor(Session& session) {
  const auto function = [](const at::Tensor& x, const std::optional<at::Tensor>& none, int64_t n) {
    return none ? *none : x * n;
  };
  const auto call = [](const auto& f, Tensors& a) -> Tensors {
    return {f(a[0], std::optional<at::Tensor>(), int64_t{3})};
  };
  session.judge(in_form(leaves({{3, 3}}), function, call));
  session.judge(in_form(plain({{3, 3}}), function, call));
}

/// Of two inputs, which require grad.
MakeInputs two_inputs(bool first, bool second) {
  return [=] {
    at::Tensor a = leaf({3, 3}, first), b = leaf({3, 3}, second);
    Inputs inputs{{a, b}};
    for (const at::Tensor& t : {a, b})
      if (t.requires_grad()) inputs.leaves.push_back(t);
    return inputs;
  };
}

void multi_output(Session& session) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) {
    return std::tuple<at::Tensor, at::Tensor>(a + b, a - b);
  };
  const auto call = [](const auto& f, Tensors& a) -> Tensors {
    // The container is part of the signature.
    const std::tuple<at::Tensor, at::Tensor> both = f(a[0], a[1]);
    return {std::get<0>(both), std::get<1>(both)};
  };
  session.judge(in_form(two_inputs(true, false), function, call));
  session.judge(in_form(two_inputs(false, false), function, call));
}

void multi_output_list(Session& session) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) {
    return Tensors{a + b, a - b};
  };
  const auto call = [](const auto& f, Tensors& a) -> Tensors { return f(a[0], a[1]); };
  session.judge(in_form(two_inputs(true, false), function, call));
  session.judge(in_form(two_inputs(false, false), function, call));
}

/// Without a change of dtype it is the tensor itself.
void to_dense_strided_tensor(Session& session) {
  const std::vector<Function> programs = {
      [](Tensors& a) -> Tensors { return {a[0].to_dense()}; },
      [](Tensors& a) -> Tensors { return {a[0].to_dense(std::nullopt, true)}; },
      [](Tensors& a) -> Tensors { return {a[0].to_dense(torch::kFloat)}; },
      [](Tensors& a) -> Tensors { return {a[0].to_dense(torch::kDouble)}; },
      [](Tensors& a) -> Tensors {
        return {a[0].to_dense(), a[0].to_dense(torch::kDouble, false), a[0] * 2};
      }};
  Settings settings;
  settings.sums_may_round = true;  // where the argument itself is a result
  for (const Function& program : programs) {
    session.judge(non_leaves({{3, 4}}), program, settings);
    session.judge(plain({{3, 4}}), program, settings);
  }
}

void complex_linear(Session& session) {
  session.judge([] {
    const auto complex = [](at::IntArrayRef sizes) {
      return torch::randn(sizes, torch::kComplexFloat).set_requires_grad(true);
    };
    const at::Tensor weight = complex({10, 10}), bias = complex({10});
    return Program{
        [=] { return Inputs{{torch::randn({1, 10, 10}, torch::kComplexFloat)}, {weight, bias}}; },
        [=](Tensors& a) -> Tensors { return {torch::linear(a[0], weight, bias).sum().abs()}; }};
  });
}

/// A module, its inputs and its parameters: the program is its forward.
template <class Net>
MakeProgram module_program(std::function<Net()> make, MakeInputs inputs) {
  return [=] {
    Net net = make();
    return Program{[=] {
                     Inputs made = inputs();
                     for (const at::Tensor& p : net->parameters()) made.leaves.push_back(p);
                     return made;
                   },
                   [net](Tensors& a) mutable -> Tensors { return {net->forward(a[0])}; },
                   [net](const Options& options) {
                     return handle_of(
                         tandem::compile(net, options),
                         [](const auto& f, Tensors& a) -> Tensors { return {f(a[0])}; });
                   }};
  };
}

std::function<torch::nn::Linear()> make_linear(int64_t in, int64_t out) {
  return [=] { return torch::nn::Linear(in, out); };
}

void composite_impl_compile(Session& session) {
  Settings training;
  training.entry = [](const Entry& entry) {
    EXPECT_EQ(op_names(entry.forward()), (std::vector<std::string>{"aten::t", "aten::addmm"}));
    EXPECT_EQ(outputs_of(entry.forward(), ir::Role::Output), 1);
    EXPECT_EQ(entry.saved().size(), 2) << "the input and the weight";
  };
  session.judge(module_program<torch::nn::Linear>(make_linear(3, 3), leaves({{3, 3}})), training);
  Settings inference = of_kind(EntryKind::inference);
  inference.around = in_inference_mode;
  session.judge(module_program<torch::nn::Linear>(make_linear(3, 3), plain({{3, 3}})), inference);
  inference.entry = [](const Entry& entry) { EXPECT_EQ(entry.forward().outputs().size(), 1); };
  session.judge(module_program<torch::nn::Linear>(make_linear(3, 3), plain({{3, 3}})), inference);
}

void inference_mode(Session& session) {
  Settings settings = of_kind(EntryKind::inference);
  settings.around = in_inference_mode;
  session.judge(module_program<torch::nn::Linear>(make_linear(3, 4), plain({{2, 3}})), settings);
  session.judge(module_program<torch::nn::Linear>(make_linear(3, 4), leaves({{2, 3}})), settings);
}

void no_grad_input_output(Session& session) {
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      session.judge(two_inputs(first, second),
                    [](Tensors& a) -> Tensors { return {a[0].cos(), a[1].cos(), a[0] * a[1]}; });
    }
  }
}

/// The peer compiles the backward when it first runs; we in the call that traces.
void grad_context(Session&) {
  const auto log = std::make_shared<RecordingBackend>();
  const auto doubled = tandem::compile([](const at::Tensor& x) { return x * 2; }, {.backend = log});
  const at::Tensor x = leaf({3});
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(doubled(x).requires_grad());
  }
  EXPECT_EQ(log->count(GraphRole::inference), 1);
  EXPECT_EQ(log->contexts.size(), 1) << "no backward is compiled";

  const at::Tensor y = doubled(x);
  EXPECT_EQ(log->count(GraphRole::forward), 1);
  EXPECT_EQ(log->count(GraphRole::backward), 1);
  y.sum().backward();
  EXPECT_EQ(log->count(GraphRole::backward), 1) << "compiled once";
  EXPECT_TRUE(at::equal(x.grad(), torch::full({3}, 2.0)));
  EXPECT_EQ(log->contexts.size(), 3);
}

/// Stages taken by hand; the backward is compiled once, by `lower`.
void stages_keep_their_configuration(Session&) {
  const at::Tensor x = leaf({3}), w = leaf({3});
  const Joint joint = tandem::export_joint(
      [](const at::Tensor& a, const at::Tensor& b) { return a * b; }, std::tuple{x, w});
  const std::string before = ir::print(joint.graph);
  const Options options;
  const Split parts = tandem::split(joint, options);
  const auto log = std::make_shared<RecordingBackend>();
  const Boxed call = tandem::lower(parts, log);
  EXPECT_EQ(log->count(GraphRole::forward), 1);
  EXPECT_EQ(log->count(GraphRole::backward), 1);
  for (int i = 0; i < 2; ++i) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    call({a, b})[0].sum().backward();
    EXPECT_TRUE(at::equal(a.grad(), b.detach()));
    EXPECT_TRUE(at::equal(b.grad(), a.detach()));
  }
  EXPECT_EQ(log->count(GraphRole::backward), 1);
  EXPECT_EQ(ir::print(joint.graph), before) << "no stage changes what it was given";
}

void explicit_inference_compiler(Session&) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = leaf({3});
  const Split parts =
      tandem::split(tandem::export_joint([](const at::Tensor& a) { return a * a; }, std::tuple{x}));
  const auto log = std::make_shared<RecordingBackend>();
  const Boxed call = tandem::lower(parts, log);
  EXPECT_TRUE(at::equal(call({x})[0], x * x));
  EXPECT_EQ(log->count(GraphRole::inference), 1);
  EXPECT_EQ(log->contexts.size(), 1) << "neither forward nor backward";
}

void generate_gives_inference_graph(Session& session) {
  const Function squared = [](Tensors& a) -> Tensors { return {a[0] * a[0]}; };
  session.judge(leaves({{3}}), squared, without_grad_mode());
  session.judge(
      leaves({{3}}),
      [=](Tensors& a) -> Tensors {
        const torch::NoGradGuard no_grad;
        return squared(a);
      },
      of_kind(EntryKind::inference));
}

void linear_relu_module(Session& session) {
  const auto make = [] {
    return torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::ReLU());
  };
  session.judge(module_program<torch::nn::Sequential>(make, leaves({{2, 4}})));
}

void module_simplified(Session& session) {
  session.judge([] {
    torch::nn::Linear net(20, 30);
    return Program{[=] {
                     at::Tensor x = leaf({16, 20}), y = leaf({16, 30});
                     return Inputs{{x, y}, {x, y, net->weight, net->bias}};
                   },
                   [net](Tensors& a) mutable -> Tensors { return {net->forward(a[0]) + a[1]}; },
                   [net](const Options& options) {
                     return handle_of(
                         tandem::compile(
                             net,
                             [net](const at::Tensor& x, const at::Tensor& y) mutable {
                               return net->forward(x) + y;
                             },
                             options),
                         [](const auto& f, Tensors& a) -> Tensors { return {f(a[0], a[1])}; });
                   }};
  });
}

void upsampled(Session& session) {
  Settings settings = of_kind(EntryKind::inference);
  settings.write_results = false;  // large
  session.judge(
      plain({{2, 512, 40, 59}}),
      [](Tensors& a) -> Tensors {
        return {at::upsample_bilinear2d(a[0], {80, 118}, false, 2.0, 2.0)};
      },
      settings);
}

/// The caller's grad mode is what the function leaves.
void grad_enabled_mutation(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    const at::Tensor y = a[0] * 2;
    torch::GradMode::set_enabled(false);
    return {y};
  };
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); });
  for (int i = 0; i < 2; ++i) {
    const torch::AutoGradMode restored(true);
    EXPECT_TRUE(compiled({leaf({3})})[0].requires_grad());
    EXPECT_FALSE(torch::GradMode::is_enabled()) << "call " << i;
  }
  Settings settings;
  settings.around = [](const std::function<void()>& body) {
    const torch::AutoGradMode restored(true);
    body();
  };
  session.judge(leaves({{3}}), program, settings);
}

void grad_mode_mutation(Session& session) {
  const Function program = [](Tensors& a) -> Tensors {
    const at::Tensor y = a[0] * a[0];
    torch::GradMode::set_enabled(false);
    return {y.clone(), y};
  };
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); });
  for (int i = 0; i < 2; ++i) {
    const torch::AutoGradMode restored(true);
    const at::Tensor x = leaf({3});
    const Tensors results = compiled({x});
    EXPECT_FALSE(torch::GradMode::is_enabled()) << "call " << i;
    EXPECT_FALSE(results[0].requires_grad());
    ASSERT_TRUE(results[1].requires_grad());
    torch::GradMode::set_enabled(true);
    results[1].sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), x.detach() * 2));
  }
  Settings settings;
  settings.around = [](const std::function<void()>& body) {
    const torch::AutoGradMode restored(true);
    body();
  };
  session.judge(leaves({{3}}), program, settings);
}

void lstm(Session& session) {
  Settings settings;
  settings.write_results = false;
  session.judge(
      [] {
        torch::nn::LSTM net(torch::nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true));
        return Program{[=] {
                         at::Tensor x = leaf({5, 2, 8});
                         Inputs inputs{{x.slice(2, 0, 8, 2)}, {x}};
                         for (const at::Tensor& p : net->parameters()) inputs.leaves.push_back(p);
                         return inputs;
                       },
                       [net](Tensors& a) mutable -> Tensors {
                         const auto [out, state] = net->forward(a[0]);
                         return {out, std::get<0>(state), std::get<1>(state)};
                       }};
      },
      settings);
}

/// Reads a number in between, so that the whole call runs eagerly, as the options allow.
void alias_inputs(Session&) {
  const Function program = [](Tensors& a) -> Tensors {
    at::Tensor part = a[0].slice(0, 1, 3);
    part.add_(1);
    if (part.sum().item<double>() > 0) part.mul_(2);
    return {a[0] * 3};
  };
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); },
                                              {.on_unsupported = OnUnsupported::eager});
  for (const double start : {1.0, -5.0}) {
    const at::Tensor found = torch::full({4}, start), expected = torch::full({4}, start);
    Tensors list = {expected};
    EXPECT_TRUE(at::equal(compiled({found})[0], program(list)[0]));
    EXPECT_TRUE(at::equal(found, expected));
    EXPECT_EQ(found._version(), expected._version());
  }
  EXPECT_EQ(compiled.stats().eager_calls, 2);
  // Otherwise refused, and nothing has happened.
  const at::Tensor x = torch::ones({4});
  try {
    tandem::compile_boxed([=](Tensors list) { return program(list); })({x});
    ADD_FAILURE() << "not refused";
  } catch (const UnsupportedError& error) {
    EXPECT_NE(std::string(error.what()).find("remedy"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(at::equal(x, torch::ones({4})));
  EXPECT_EQ(x._version(), 0);
}

}  // namespace

Category basics() {
  const auto normalised = [](bool layer) -> Function {
    return [=](Tensors& a) -> Tensors {
      if (layer) return {torch::layer_norm(a[0], {16}, a[1], a[2])};
      return {at::rms_norm(a[0], {16}, a[1], 1e-5)};
    };
  };
  return {
      "Basics: calling convention, grad mode, training/inference choice",
      {
          {"test_non_tensor_and_none_inputs", non_tensor_and_none_inputs},
          {"test_single_output",
           [](Session& session) {
             const Function sum = [](Tensors& a) -> Tensors { return {a[0] + a[1]}; };
             session.judge(two_inputs(true, false), sum);
             session.judge(two_inputs(false, false), sum);
           }},
          {"test_multi_output", multi_output},
          {"test_multi_output_list", multi_output_list},
          {"test_to_dense_strided_tensor", to_dense_strided_tensor},
          {"test_complex_linear", complex_linear},
          {"test_input_mutation_simple_with_none_and_nontensor",
           mutation_simple_with_none_and_nontensor},
          {"test_composite_impl_compile", composite_impl_compile},
          judged("test_input_inplace_requires_grad_true", plain({{3, 3}, {3, 3}}),
                 [](Tensors& a) -> Tensors {
                   a[0].requires_grad_(true);
                   return {a[0] * a[1]};
                 }),
          {"test_no_grad_input_output", no_grad_input_output},
          {"test_grad_context", grad_context, differs("the backward is compiled with the call")},
          {"test_module", linear_relu_module},
          {"test_inference_mode", inference_mode},
          {"test_generate_gives_inference_graph", generate_gives_inference_graph},
          closed_form(
              "test_backward_prologue_correctness_multi_output", {{4}, {4}},
              [](Tensors& a) -> Tensors { return {a[0] * a[1], a[0] + a[1]}; },
              [](Tensors& a) -> Tensors { return {a[1] + 1, a[0] + 1}; }),
          judged("test_compiled_forward_correctness", leaves({{4}, {4}}),
                 [](Tensors& a) -> Tensors { return {a[0] * a[1] + a[0]}; }),
          closed_form(
              "test_compiled_backward_correctness", {{4}, {4}},
              [](Tensors& a) -> Tensors { return {a[0] * a[1]}; },
              [](Tensors& a) -> Tensors { return {a[1], a[0]}; }),
          closed_form(
              "test_compiled_backward_multiple_outputs", {{4}},
              [](Tensors& a) -> Tensors { return {a[0] * 3, a[0] * a[0]}; },
              [](Tensors& a) -> Tensors { return {3 + 2 * a[0]}; }),
          closed_form(
              "test_backward_epilogue_correctness", {{4}, {4}},
              [](Tensors& a) -> Tensors { return {a[0] * a[1]}; },
              [](Tensors& a) -> Tensors { return {a[1], a[0]}; }),
          closed_form(
              "test_backward_epilogue_correctness_multi_output", {{4}},
              [](Tensors& a) -> Tensors { return {a[0] * 2, a[0] * 3}; },
              [](Tensors& a) -> Tensors { return {torch::full_like(a[0], 5)}; }),
          {"test_aot_stage2_keeps_aot_config_immutable_for_lazy_backward",
           stages_keep_their_configuration, differs("the backward is compiled with the call")},
          {"test_aot_stage2_uses_explicit_inference_compiler", explicit_inference_compiler},
          judged(
              "test_aot_dispatch_output_requires_grad_in_no_grad_views", non_leaves({{2, 3}}),
              [](Tensors& a) -> Tensors { return {a[0].view(-1), a[0].sin()}; },
              without_grad_mode()),
          {"test_aot_module_simplified", module_simplified},
          judged_both("test_lift_fresh_copy_in_graph", {{3}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor numbers = torch::tensor({1.5, -2.0, 3.25});
                        return {at::lift_fresh_copy(numbers) * a[0]};
                      }),
          {"test_inference_python_dispatcher", upsampled},
          judged("test_layer_norm", plain({{8, 16}, {16}, {16}}), normalised(true),
                 of_kind(EntryKind::inference)),
          judged("test_rms_norm", plain({{8, 16}, {16}}), normalised(false),
                 of_kind(EntryKind::inference)),
          judged("test_training_with_detach_indices", non_leaves({{4}, {4}}),
                 [](Tensors& a) -> Tensors { return {a[0] * a[1].detach()}; }),
          {"test_grad_enabled_mutation", grad_enabled_mutation},
          {"test_LSTM", lstm},
          judged_both("test_nn_parameter_construction", {{4}},
                      [](Tensors& a) -> Tensors {
                        const at::Tensor p = torch::ones({4}).set_requires_grad(true);
                        return {a[0] * 2 + p};
                      }),
          {"test_alias_inputs", alias_inputs},
          {"test_aot_grad_mode_mutation", grad_mode_mutation},
      }};
}

}  // namespace tandem::conformance
