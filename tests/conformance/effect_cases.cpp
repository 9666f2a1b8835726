#include "conformance/categories.h"
#include "conformance/variants.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <mutex>

/// Ops that do something besides computing: each call happens, in order, whoever reads its results.
namespace tandem::conformance {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the ops below have done.
struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
};
Log& effects() {
  static Log log;
  return log;
}
void note(std::string line) {
  const std::lock_guard lock(effects().mutex);
  effects().lines.push_back(std::move(line));
}
std::vector<std::string> taken() {
  const std::lock_guard lock(effects().mutex);
  return std::exchange(effects().lines, {});
}

constexpr const char* kOps[] = {"effects::logged", "effects::logged_cos", "effects::say"};

at::Tensor logged(const at::Tensor& x);
at::Tensor logged_cos(const at::Tensor& x);

/// The gradients that the ops have by themselves; without them eager would differentiate what their
/// kernels call.
struct LoggedGradient : torch::autograd::Function<LoggedGradient> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return logged(x);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0]}; }
};
struct LoggedCosGradient : torch::autograd::Function<LoggedCosGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    const at::AutoDispatchBelowADInplaceOrView below;
    return logged_cos(x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {-grads[0] * context->get_saved_variables()[0].sin()};
  }
};

void register_ops() {
  static auto* library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "effects", std::nullopt, __FILE__, __LINE__);
    made->def("logged(Tensor x) -> Tensor");
    made->impl("logged", c10::DispatchKey::CPU, [](const at::Tensor& x) {
      note("logged");
      return x.clone();
    });
    made->def("logged_cos(Tensor x) -> Tensor");
    made->impl("logged_cos", c10::DispatchKey::CPU, [](const at::Tensor& x) {
      note("cos");
      return x.cos();
    });
    const auto like = [](const at::Tensor& x) { return at::empty_like(x); };
    made->impl("logged", c10::DispatchKey::Meta, like);
    made->impl("logged_cos", c10::DispatchKey::Meta, like);
    made->impl("logged", c10::DispatchKey::Autograd,
               [](const at::Tensor& x) { return LoggedGradient::apply(x); });
    made->impl("logged_cos", c10::DispatchKey::Autograd,
               [](const at::Tensor& x) { return LoggedCosGradient::apply(x); });
    made->def("say(str text) -> ()", [](c10::string_view text) { note(std::string(text)); });
    made->def("fill_with_ones(Tensor(a!) x) -> ()");
    made->impl("fill_with_ones", c10::DispatchKey::CPU, [](at::Tensor x) { x.fill_(1); });
    return made;
  }();
  EXPECT_NE(library, nullptr);
}

at::Tensor call_op(const char* name, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}
at::Tensor logged(const at::Tensor& x) { return call_op("effects::logged", x); }
at::Tensor logged_cos(const at::Tensor& x) { return call_op("effects::logged_cos", x); }
void say(c10::string_view text) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("effects::say", "")
      .typed<void(c10::string_view)>()
      .call(text);
}

/// Effectful in the forward; the gradient passes as it is, or through the op once more.
template <bool kAgain>
struct Logged : torch::autograd::Function<Logged<kAgain>> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return logged(x); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {kAgain ? logged(grads[0]) : grads[0]};
  }
};

struct LoggedCos : torch::autograd::Function<LoggedCos> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return logged_cos(x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {grads[0] * logged_cos(context->get_saved_variables()[0])};
  }
};

/// Effectful in the backward only.
struct LogsItsGradient : torch::autograd::Function<LogsItsGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {logged(grads[0]) * 2};
  }
};

/// Judged, and two calls have the effects of two eager calls, in their order.
void judge_effects(Session& session, const MakeInputs& inputs, const Function& program,
                   const std::function<void(Options&)>& change = {}, int orders = 3) {
  register_ops();
  for (const char* op : kOps) tandem::mark_effectful(op);
  const auto run = [&](const Function& call) {
    torch::manual_seed(1);
    for (int i = 0; i < 2; ++i) {
      Inputs made = inputs();
      for (const at::Tensor& result : call(made.arguments))
        if (result.defined() && result.requires_grad()) result.sum().backward();
    }
    return taken();
  };
  taken();
  const std::vector<std::string> expected = run(program);
  EXPECT_FALSE(expected.empty());
  Options options;
  if (change) change(options);
  const auto compiled = tandem::compile_boxed([=](Tensors list) { return program(list); }, options);
  EXPECT_EQ(run([&](Tensors& a) { return compiled(a); }), expected);
  Settings settings;
  settings.orders = orders;
  session.judge(inputs, program, settings);
}

/// A case that is judged with its effects.
/// `orders` as in Settings.
Case effectful(std::string name, MakeInputs inputs, Function program, int orders = 3) {
  return {std::move(name),
          [=](Session& session) { judge_effects(session, inputs, program, {}, orders); }};
}

Tensors said_around_a_sum(Tensors& a) {
  say("before");
  const at::Tensor sum = a[0] + a[0];
  say("after");
  return {sum};
}

/// The peer counts tokens among the inputs. Here effects are in order because nodes are: no input
/// moves, and which of them are static stays what it was.
void static_inputs_without_tokens(Session&) {
  register_ops();
  tandem::mark_effectful("effects::logged");
  const auto backend = std::make_shared<RecordingBackend>();
  const at::Tensor w = leaf({3}), b = leaf({3});
  const auto compiled = tandem::compile(
      [=](const at::Tensor& x) { return Logged<false>::apply(x) * w + b; }, {.backend = backend});
  compiled(torch::ones({3}));
  const ir::Graph& graph = backend->graphs.at(0);
  const std::vector<bool>& fixed = backend->contexts.at(0).static_inputs;
  ASSERT_EQ(fixed.size(), graph.inputs().size());
  int64_t tokens = 0;
  for (size_t i = 0; i < fixed.size(); ++i) {
    const ir::Role role = graph.input_role(graph.inputs()[i]).role;
    EXPECT_EQ(fixed[i], role == ir::Role::Lifted) << i;
    tokens += role == ir::Role::Token;
  }
  EXPECT_EQ(tokens, 0);
  EXPECT_EQ(count_of(graph, "effects::logged"), 1) << ir::print(graph);
}

void said_and_buffer_written(Session& session) {
  register_ops();
  tandem::mark_effectful("effects::say");
  session.judge([] {
    const auto buffer = std::make_shared<at::Tensor>(torch::zeros({3}));
    return Program{[=] { return Inputs{{torch::randn({3})}, {}, {*buffer}}; },
                   [=](Tensors& a) -> Tensors {
                     say("before");
                     buffer->add_(1);
                     const at::Tensor sum = a[0] + *buffer;
                     say("after");
                     return {sum};
                   }};
  });
}

}  // namespace

Category effect_tokens() {
  const Function two_tokens = [](Tensors& a) -> Tensors {
    say("token");
    return {logged(a[0]) + 1, at::Tensor()};
  };
  return {"Effect tokens",
          {
              judged(
                  "test_disable_functionalization_ignores_effect_token_metadata",
                  [] {
                    at::Tensor x =
                        (torch::randn({3, 3}) + 3 * torch::eye(3)).set_requires_grad(true);
                    return Inputs{{x}, {x}};
                  },
                  [](Tensors& a) -> Tensors { return {torch::linalg_inv(a[0])}; }),
              {"test_static_input_indices_with_effect_tokens", static_inputs_without_tokens,
               differs("effects need no tokens")},
              effectful("test_effect_tokens_codegen_correctness", plain({{4}}),
                        [](Tensors& a) -> Tensors { return {logged(a[0]) + 1}; }),
              effectful("test_effect_tokens_codegen_multiple_outputs", plain({{4}}),
                        [](Tensors& a) -> Tensors { return {logged(a[0]), a[0] + 1, a[0] * 2}; }),
              effectful("test_effect_tokens_codegen_with_mutation", plain({{4}}),
                        [](Tensors& a) -> Tensors {
                          const at::Tensor before = logged(a[0]);
                          a[0].add_(1);
                          return {before};
                        }),
              effectful("test_effect_tokens_codegen_training_path", leaves({{4}}),
                        [](Tensors& a) -> Tensors { return {Logged<false>::apply(a[0]) * 2}; }),
              effectful("test_effect_tokens_codegen_multiple_tokens", plain({{4}}), two_tokens),
              effectful("test_effect_tokens_codegen_none_output", plain({{4}}),
                        [](Tensors& a) -> Tensors { return {at::Tensor(), logged(a[0])}; }),
              effectful(
                  "test_backward_epilogue_tokens_correctness", leaves({{4}}),
                  [](Tensors& a) -> Tensors { return {Logged<true>::apply(a[0]) * 2}; }, 1),
              effectful(
                  "test_backward_epilogue_multi_token_correctness", leaves({{4}}),
                  [](Tensors& a) -> Tensors {
                    return {Logged<true>::apply(Logged<true>::apply(a[0])) * 2};
                  },
                  1),
              effectful("test_print", plain({{3}}), said_around_a_sum),
              {"test_print_with_buffer_mutations", said_and_buffer_written},
              effectful("test_print_with_input_mutations", plain({{3}}),
                        [](Tensors& a) -> Tensors {
                          say("before");
                          a[0].add_(1);
                          say("after");
                          return {a[0] + a[0]};
                        }),
              effectful("test_compile_aot_eager", plain({{3}}), said_around_a_sum),
              {"test_compile_inductor",
               [](Session& session) {
                 judge_effects(session, plain({{3}}), said_around_a_sum,
                               [](Options& options) { options.mutations = Mutations::epilogue; });
               }},
              effectful("test_compile_aot_eager_requires_grad", leaves({{3}}), said_around_a_sum),
              {"test_compile_inductor_external_op_return_none",
               [](Session& session) {
                 register_ops();
                 session.judge(plain({{3}}), [](Tensors& a) -> Tensors {
                   at::Tensor made = a[0] * 2;
                   c10::Dispatcher::singleton()
                       .findSchemaOrThrow("effects::fill_with_ones", "")
                       .typed<void(at::Tensor)>()
                       .call(made);
                   return {made + a[0]};
                 });
               }},
              effectful("test_dce", plain({{3}}),
                        [](Tensors& a) -> Tensors {
                          logged(a[0]);
                          return {a[0] + 1};
                        }),
              effectful("test_effects_and_input_mutation_return", plain({{3}, {3}}),
                        [](Tensors& a) -> Tensors {
                          say("before");
                          at::add_out(a[1], a[0], a[0]);
                          return {a[1]};
                        }),
              effectful("test_effects_and_input_output_view_simple", plain({{2, 2}}),
                        [](Tensors& a) -> Tensors {
                          say("before");
                          return {a[0].view(-1)};
                        }),
              effectful("test_effects_and_aliased_outputs", plain({{2, 2}}),
                        [](Tensors& a) -> Tensors {
                          const at::Tensor made = a[0] * 2;
                          say("before");
                          return {made.view(-1), made.view({1, 4})};
                        }),
              effectful("test_effects_and_input_mutation_is_output", plain({{2, 2}}),
                        [](Tensors& a) -> Tensors {
                          a[0].mul_(2);
                          say("after");
                          return {a[0]};
                        }),
              effectful(
                  "test_effectful_op_in_backward", leaves({{2, 2}}),
                  [](Tensors& a) -> Tensors { return {Logged<true>::apply(a[0])}; }, 1),
              effectful(
                  "test_regular_effectful_op_in_forward_and_backward", leaves({{2, 2}}),
                  [](Tensors& a) -> Tensors { return {LoggedCos::apply(a[0]) + a[0]}; }, 1),
              effectful(
                  "test_effect_autograd_function", leaves({{2, 2}}),
                  [](Tensors& a) -> Tensors { return {LogsItsGradient::apply(a[0])}; }, 1),
          }};
}

}  // namespace tandem::conformance
