/// Ops that do something besides computing keep their order and their number, forward and backward.
#include "support/effect_ops.h"
#include "support/error_text.h"
#include "support/like_eager.h"
#include "tandem/tandem.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <regex>

namespace tandem::test {
namespace {

using test::error_text;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Lines = std::vector<std::string>;

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

class Effects : public ::testing::Test {
 protected:
  void SetUp() override {
    register_effect_ops();
    for (const char* op : {"say", "tap", "tap_grad", "tap_two", "note_sum", "require_positive"})
      tandem::mark_effectful(std::string("logging::") + op);
    taken_lines();
  }
};

/// `run` calls the function it is given as often as it likes. With each partitioner.
using Run = std::function<void(const Program&)>;
void expect_same_lines(const Program& program, const Run& run, Options options = {}) {
  taken_lines();
  torch::manual_seed(3);
  run(program);
  const Lines expected = taken_lines();
  EXPECT_FALSE(expected.empty());
  for (const Partitioner& partitioner :
       {Partitioner(default_partition), Partitioner(min_cut_recompute)}) {
    options.partitioner = partitioner;
    const auto compiled =
        tandem::compile_boxed([=](Tensors list) { return program(list); }, options);
    torch::manual_seed(3);
    run([&](const Tensors& arguments) { return compiled(arguments); });
    EXPECT_EQ(taken_lines(), expected);
  }
}

/// Without the line that says where.
std::string without_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\n  at: [^\n]*"), "");
}

int64_t count(const ir::Graph& graph, const std::string& op) {
  int64_t found = 0;
  graph.for_each_node([&](const ir::Node& node) {
    found += node.kind() == ir::NodeKind::Op && node.op().operator_name().name == op;
  });
  return found;
}

TEST_F(Effects, EqualCallsAreNotMergedAndUnreadOnesNotDropped) {
  const Program program = [](const Tensors& a) -> Tensors {
    say("first");
    const at::Tensor x = tap(a[0]), y = tap(a[0]);
    tap(a[0]);
    note_sum(x);
    note_sum(x);
    tap_two(y);
    say("last");
    return {x + y, tap_two(a[0])[1]};
  };
  expect_like_eager([] { return Case{{torch::randn({3})}, {}}; }, program);
  expect_same_lines(program, [](const Program& call) {
    for (int i = 0; i < 3; ++i) call({torch::randn({3})});
  });
}

// Without the mark the op is a pure function as far as anybody knows.
TEST_F(Effects, AnOpThatIsNotMarkedMayBeDropped) {
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("logging::unmeasured", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(x);
    return x + 1;
  });
  compiled(torch::ones({2}));
  EXPECT_EQ(count(compiled.entries()[0].forward(), "logging::unmeasured"), 0);
}

TEST_F(Effects, WritesOfArgumentsAndEffectsAreBothKept) {
  const Program program = [](const Tensors& a) -> Tensors {
    note_sum(a[0]);
    a[0].add_(1);
    note_sum(a[0]);
    a[0].t().mul_(2);
    note_sum(a[0]);
    return {a[0].view(-1)};
  };
  for (const Mutations mutations : {Mutations::in_graph, Mutations::epilogue}) {
    expect_like_eager([] { return Case{{torch::randn({2, 2})}, {}}; }, program,
                      {.mutations = mutations});
    expect_same_lines(program,
                      [](const Program& call) {
                        for (int i = 0; i < 2; ++i) call({torch::ones({2, 2})});
                      },
                      {.mutations = mutations});
  }
}

TEST_F(Effects, OwnAutogradKernelInForwardAndBackward) {
  const Program program = [](const Tensors& a) -> Tensors {
    return {tap_grad(a[0].exp()) * tap_grad(a[1])};
  };
  expect_like_eager(
      [] {
        const Tensors leaves = {leaf({3}), leaf({3})};
        return Case{leaves, leaves};
      },
      program);
  expect_same_lines(program, [](const Program& call) {
    for (int i = 0; i < 2; ++i) {
      const at::Tensor y = call({leaf({3}), leaf({3})})[0].sum();
      y.backward({}, /*retain_graph=*/true);
      y.backward();
    }
    const torch::NoGradGuard no_grad;
    call({leaf({3}), leaf({3})});
    const c10::InferenceMode inference;
    call({torch::ones({3}), torch::ones({3})});
  });
}

/// Says its name in both directions; the word in the backward hangs on no tensor.
struct Speaks : torch::autograd::Function<Speaks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::string name) {
    context->saved_data["name"] = name;
    say("forward of " + name);
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    say("backward of " + context->saved_data["name"].toStringRef());
    return {grads[0] * 2 + torch::rand_like(grads[0]), at::Tensor()};
  }
};

// Eager's backward runs the nodes between a loss and its leaves, and no others.
TEST_F(Effects, ABackwardHasTheEffectsAndDrawsOfTheResultsThatItStartsFrom) {
  const Program program = [](const Tensors& a) -> Tensors {
    const at::Tensor x = Speaks::apply(a[0], "shared");
    return {Speaks::apply(x, "left"), Speaks::apply(x, "right"), x.exp()};
  };
  for (const std::vector<size_t>& used :
       {std::vector<size_t>{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}}) {
    expect_same_lines(program, [&](const Program& call) {
      const at::Tensor x = leaf({3});
      const Tensors results = call({x});
      at::Tensor loss = torch::zeros({});
      for (size_t i : used) loss = loss + results[i].sum();
      loss.backward();
      say(std::to_string(x.grad()[0].item<float>()));
      say(std::to_string(torch::rand({1}).item<float>()));  // where the stream stands
    });
  }
}

TEST_F(Effects, ResultsDifferentiatedOneAfterTheOther) {
  const Program program = [](const Tensors& a) -> Tensors {
    return {Speaks::apply(a[0], "left"), Speaks::apply(a[0], "right")};
  };
  expect_same_lines(program, [](const Program& call) {
    const Tensors results = call({leaf({3})});
    results[1].sum().backward();
    say("between");
    results[0].sum().backward();
  });
}

struct SquaresAndSpeaks : torch::autograd::Function<SquaresAndSpeaks> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    say("forward");
    return x * x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    say("backward");
    return {grads[0] * 2 * context->get_saved_variables()[0]};
  }
};

// Gradients with a history are computed by a function that runs the forward again, without what it
// has done already.
TEST_F(Effects, GradientsOfGradientsRepeatNoEffect) {
  const Program program = [](const Tensors& a) -> Tensors {
    note_sum(a[0]);
    return {SquaresAndSpeaks::apply(a[0]).sin()};
  };
  expect_same_lines(program, [](const Program& call) {
    for (int i = 0; i < 2; ++i) {
      const at::Tensor x = torch::full({2}, 0.5).set_requires_grad(true);
      const at::Tensor first = torch::autograd::grad({call({x})[0].sum()}, {x}, {}, true, true)[0];
      say("between");
      const at::Tensor second = torch::autograd::grad({first.sum()}, {x}, {}, true, true)[0];
      say("before the third");
      second.sum().backward();
      say(std::to_string(x.grad()[0].item<float>()));
    }
  });
}

// A rewritten argument has a node of its own, which must not repeat what the node of the results
// does.
TEST_F(Effects, RewrittenArgumentsInTheBackward) {
  const Program program = [](const Tensors& a) -> Tensors {
    const at::Tensor result = Speaks::apply(a[1], "result");
    a[0].copy_(Speaks::apply(a[0], "argument"));
    return {result};
  };
  for (const bool both : {false, true}) {
    expect_same_lines(program, [&](const Program& call) {
      const at::Tensor root = leaf({3}), other = leaf({3});
      const at::Tensor x = root * 1;
      const at::Tensor result = call({x, other})[0];
      (both ? result + x : result).sum().backward();
    });
  }
}

TEST_F(Effects, InTheBodyOfAnotherLibrarysOp) {
  const Program program = [](const Tensors& a) -> Tensors { return {twice(a[0]), twice(a[0])}; };
  const auto make = [] {
    const at::Tensor x = leaf({3});
    return Case{{x}, {x}};
  };
  expect_like_eager(make, program);
  expect_same_lines(program, [](const Program& call) {
    for (int i = 0; i < 2; ++i) call({leaf({3})})[0].sum().backward();
  });
}

TEST_F(Effects, ClosedOverTensorsAndModulesAsOperands) {
  const at::Tensor w = leaf({3});
  expect_same_lines(
      [w](const Tensors& a) -> Tensors {
        note_sum(w);
        return {a[0] * w};
      },
      [&](const Program& call) {
        const torch::NoGradGuard no_grad;
        w.fill_(1);
        call({torch::ones({3})});
        w.fill_(2);
        call({torch::ones({3})});
      });
}

// ---- asserts ----

TEST_F(Effects, AnAssertRaisesInTheCallThatBreaksItAndNothingIsHalfDone) {
  at::Tensor counter = torch::zeros({1});
  const auto function = [counter](const at::Tensor& x) mutable {
    counter.add_(1);
    x.mul_(2);
    require_positive(x);
    at::_assert_async(x.sum() < 100, "too large");
    return x + torch::rand({2});
  };
  const auto compiled = tandem::compile(function);
  const at::Tensor x = torch::ones({2});
  compiled(x);
  EXPECT_EQ(counter.item<float>(), 1);
  for (const auto& [bad, words] :
       {std::pair{-1.0, "a number is not positive"}, std::pair{1000.0, "too large"}}) {
    const at::Tensor y = torch::full({2}, bad);
    const auto version = y._version();
    torch::manual_seed(1);
    try {
      compiled(y);
      ADD_FAILURE() << "no error";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what_without_backtrace()).find(words), std::string::npos)
          << error.what();
    }
    EXPECT_TRUE(at::equal(y, torch::full({2}, bad)));
    EXPECT_EQ(y._version(), version);
    EXPECT_EQ(counter.item<float>(), 1);
    const at::Tensor next = torch::rand({2});
    torch::manual_seed(1);
    EXPECT_TRUE(at::equal(next, torch::rand({2}))) << "the draw comes after the assert";
  }
  compiled(x);
  EXPECT_EQ(counter.item<float>(), 2);
  EXPECT_EQ(compiled.stats().traces, 1);
}

struct ChecksItsGradient : torch::autograd::Function<ChecksItsGradient> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) {
    require_positive(grads[0]);
    return {grads[0] * 2};
  }
};

TEST_F(Effects, AnAssertInTheBackwardRaisesThere) {
  const auto compiled =
      tandem::compile([](const at::Tensor& x) { return ChecksItsGradient::apply(x); });
  const at::Tensor x = leaf({2});
  compiled(x).backward(torch::ones({2}));
  const at::Tensor y = compiled(x);
  EXPECT_THROW(y.backward(-torch::ones({2})), c10::Error);
  EXPECT_TRUE(at::equal(x.grad(), torch::full({2}, 2.0)));
}

// A check that fails ends a call, which then runs eagerly: effects before it would happen twice.
TEST_F(Effects, ComparedValuesAfterAnEffectAreRefused) {
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    say("before");
    return at::equal(x * 2, x + x) ? x : x + 1;
  });
  EXPECT_THROW(compiled(torch::ones({2})), UnsupportedError);
  EXPECT_EQ(taken_lines(), Lines{});
  const auto after = tandem::compile([](const at::Tensor& x) {
    const at::Tensor y = at::equal(x * 2, x + x) ? x : x + 1;
    say("after");
    return y;
  });
  EXPECT_TRUE(at::equal(after(torch::ones({2})), torch::ones({2})));
  EXPECT_EQ(taken_lines(), Lines{"after"});
}

// ---- marking ----

TEST_F(Effects, NamesThatNoOpHas) {
  EXPECT_EQ(error_text<UserError>([] { tandem::mark_effectful("logging::tapp"); }),
            "options: mark_effectful: no op is called \"logging::tapp\"\n"
            "  near:   logging.tap\n"
            "  remedy: load the library that registers the op first, and write its name as there: "
            "\"mylib::log\", or \"mylib::log.overload\" for one overload");
}

TEST_F(Effects, ViewsCannotBeMarked) {
  EXPECT_EQ(error_text<UserError>([] { tandem::mark_effectful("logging::half"); }),
            "options: mark_effectful: logging.half returns a view of its argument, and views are "
            "made again where they are needed\n"
            "  schema: logging::half(Tensor(a) x) -> Tensor(a)\n"
            "  remedy: give the effect to an op that returns new tensors");
}

TEST_F(Effects, OpsThatAreRecordedAsOthersCannotBeMarked) {
  for (const char* name : {"aten::add_", "aten::linear"}) {
    EXPECT_EQ(error_text<UserError>([&] { tandem::mark_effectful(name); }),
              "options: mark_effectful: " + std::string(name) +
                  " is an op of libtorch that is recorded as other ops\n"
                  "  remedy: put the effect into an op of your own");
  }
}

TEST_F(Effects, MarkingInsideATraceIsAnError) {
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    tandem::mark_effectful("logging::fill");
    return x + 1;
  });
  EXPECT_EQ(error_text<UserError>([&] { compiled(torch::ones({1})); }),
            "options: mark_effectful of logging::fill is called inside a function that is being "
            "traced\n  remedy: mark the op before the first call of the compiled function");
}

// What was compiled before may have dropped calls of the op: it is compiled again.
TEST_F(Effects, MarkingLaterCompilesAgain) {
  static auto* const library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "logging_late", std::nullopt, __FILE__, __LINE__);
    made->def("tap.one(Tensor x) -> Tensor");
    made->impl("tap.one", c10::DispatchKey::CPU, [](const at::Tensor& x) { return tap(x); });
    made->impl("tap.one", c10::DispatchKey::Meta,
               [](const at::Tensor& x) { return at::empty_like(x); });
    return made;
  }();
  ASSERT_NE(library, nullptr);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("logging_late::tap", "one")
                      .typed<at::Tensor(const at::Tensor&)>();
  const auto compiled = tandem::compile([op](const at::Tensor& x) {
    op.call(x);
    return x + 1;
  });
  const at::Tensor x = torch::ones({1});
  compiled(x);
  EXPECT_EQ(taken_lines(), Lines{});
  tandem::mark_effectful("logging_late::tap.one");
  compiled(x);
  compiled(x);
  EXPECT_EQ(taken_lines(), (Lines{"tap", "tap"}));
  const Stats stats = compiled.stats();
  EXPECT_EQ(stats.compiles, 2);
  EXPECT_EQ(stats.entries, 1);
  EXPECT_EQ(stats.evictions, 1);
  EXPECT_NE(stats.misses[1].reason.find("ops were marked as effectful since"), std::string::npos)
      << stats.misses[1].reason;
  tandem::mark_effectful("logging_late::tap");  // again: nothing new
  compiled(x);
  EXPECT_EQ(compiled.stats().compiles, 2);
}

TEST_F(Effects, AMarkedOpNeedsAMetaKernelForItsResults) {
  tandem::mark_effectful("logging::unmeasured");
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("logging::unmeasured", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(x);
  });
  const std::string text = error_text<UnsupportedError>([&] { compiled(torch::ones({2})); });
  EXPECT_EQ(without_line(text),
            "trace: logging.unmeasured has no metadata rule, and it is not a pure function that "
            "could be tried on zeros\n"
            "  operands: f32[2]\n"
            "  remedy:   register a Meta kernel for it (TORCH_LIBRARY_IMPL), or call it outside "
            "the compiled function");
  EXPECT_EQ(taken_lines(), Lines{}) << "the trace had the effect";
}

TEST_F(Effects, ABodyWithGradientsCannotBeKeptWhole) {
  tandem::mark_effectful("logging::whole");
  const auto compiled = tandem::compile([](const at::Tensor& x) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("logging::whole", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(x);
  });
  const std::string text = error_text<UnsupportedError>([&] { compiled(leaf({2})); });
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "trace: logging.whole is marked as effectful and has an operand that requires grad, "
            "but its gradient is that of the ops in its body");
}

}  // namespace
}  // namespace tandem::test
