/// Gradient slots inside a compiled function: whatever reads or writes one is refused before it has
/// an effect, and every slot, optimizer state and history is as it was.
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <thread>

namespace tandem {
namespace {

using test::error_text;
using T = at::Tensor;

// Where it stands, as errors say it.
#define HERE (std::string(__FILE__) + ":" + std::to_string(__LINE__))

const char* const kRemedy =
    "\n  remedy: clear and clip gradients and step optimizers outside the compiled function; "
    "inside "
    "it, tandem::grad(outputs, inputs) returns gradients";

T leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

/// What a program can see of gradients, and of the tensors of an optimizer.
class Seen {
 public:
  explicit Seen(std::vector<T> leaves, torch::optim::Optimizer* optimizer = nullptr)
      : leaves_(std::move(leaves)), optimizer_(optimizer), before_(now()) {
    for (const T& leaf : leaves_) note(leaf.grad());
  }

  void expect_unchanged() const {
    EXPECT_EQ(now(), before_);
    for (const Content& one : contents_) {
      EXPECT_TRUE(one.tensor.equal(one.data));
      EXPECT_EQ(one.tensor._version(), one.version);
      EXPECT_EQ(one.tensor.requires_grad(), one.requires_grad);
    }
  }

 private:
  struct Content {
    T tensor, data;
    int64_t version;
    bool requires_grad;
  };

  void note(const T& tensor) {
    if (tensor.defined())
      contents_.push_back(
          {tensor, tensor.detach().clone(), tensor._version(), tensor.requires_grad()});
  }

  /// Which objects there are, and the state of the optimizer as it would be stored.
  std::string now() const {
    std::ostringstream out;
    for (const T& leaf : leaves_) {
      out << leaf.unsafeGetTensorImpl() << " " << leaf.grad().unsafeGetTensorImpl() << " "
          << leaf._version() << " " << leaf.detach().sum().item<double>() << "\n";
    }
    if (optimizer_ != nullptr) {
      torch::serialize::OutputArchive archive;
      optimizer_->save(archive);
      archive.save_to(out);
    }
    return out.str();
  }

  const std::vector<T> leaves_;
  torch::optim::Optimizer* const optimizer_;
  const std::string before_;
  std::vector<Content> contents_;
};

enum class Slots { undefined, defined };

/// The refusal of `body`, called with a net of one layer, before or after its forward.
struct Program {
  torch::nn::Linear net{3, 1};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::function<void()> body;
  bool body_first = true;

  std::string refusal(bool named) {
    // libtorch cannot store the state of LBFGS after one step.
    const bool can_store = dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) == nullptr;
    const Seen before(net->parameters(), can_store ? optimizer.get() : nullptr);
    const auto function = [&](const T& x) {
      if (body_first) body();
      const T y = net(x).sum();
      if (!body_first) body();
      return y;
    };
    Compiled<T(T)> step = named ? compile<T(T)>(net, function) : compile<T(T)>(function);
    std::string text;
    for (int i = 0; i < 2; ++i)  // a refusal is remembered
      text = error_text<UnsupportedError>([&] { step(torch::ones({2, 3})); });
    before.expect_unchanged();
    return text;
  }
  void give_gradients() { net(torch::ones({2, 3})).sum().backward(); }
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(GradientErrors, ZeroGradOfANamedModule) {
  for (const Slots slots : {Slots::undefined, Slots::defined}) {
    for (const bool to_none : {true, false}) {
      for (const bool first : {true, false}) {
        Program program;
        if (slots == Slots::defined) program.give_gradients();
        std::string line;
        program.body = [&] { line = HERE, program.net->zero_grad(to_none); };
        program.body_first = first;
        EXPECT_EQ(program.refusal(true),
                  "trace: the compiled function calls torch::nn::Module::zero_grad, which uses "
                  ".grad() of parameter \"weight\"\n  at:     " +
                      line + kRemedy);
      }
    }
  }
}

TEST(GradientErrors, ZeroGradOfAnOptimizer) {
  for (const Slots slots : {Slots::undefined, Slots::defined}) {
    for (const bool to_none : {true, false}) {
      Program program;
      if (slots == Slots::defined) program.give_gradients();
      program.optimizer = std::make_unique<torch::optim::SGD>(program.net->parameters(), 0.1);
      program.body = [&] { program.optimizer->zero_grad(to_none); };
      EXPECT_EQ(first_line(program.refusal(true)),
                "trace: the compiled function calls torch::optim::Optimizer::zero_grad, which uses "
                ".grad() of parameter \"weight\"");
    }
  }
}

// Nobody has named the module: its parameters are not known before an op has met them.
TEST(GradientErrors, ZeroGradOfAModuleThatNobodyNamed) {
  for (const bool to_none : {true, false}) {
    Program program;
    program.give_gradients();
    std::string line;
    program.body = [&] { line = HERE, program.net->zero_grad(to_none); };
    EXPECT_EQ(program.refusal(false),
              "trace: the compiled function calls torch::nn::Module::zero_grad\n  at:     " + line +
                  kRemedy);
    program.optimizer = std::make_unique<torch::optim::SGD>(program.net->parameters(), 0.1);
    program.body = [&] { program.optimizer->zero_grad(to_none); };
    EXPECT_EQ(first_line(program.refusal(false)),
              "trace: the compiled function calls torch::optim::Optimizer::zero_grad");
    program.body_first = false;
    EXPECT_EQ(first_line(program.refusal(false)),
              "trace: the compiled function calls torch::optim::Optimizer::zero_grad, which uses "
              ".grad() of closed-over tensor 0 (f32[1, 3])");
  }
}

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<T>&)>;

template <class Optimizer, class OptimizerOptions>
MakeOptimizer with(const OptimizerOptions& options) {
  return [options](const std::vector<T>& parameters) {
    return std::make_unique<Optimizer>(parameters, options);
  };
}

std::vector<std::pair<std::string, MakeOptimizer>> optimizers() {
  namespace optim = torch::optim;
  return {{"SGD", with<optim::SGD>(optim::SGDOptions(0.1))},
          {"SGD", with<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1))},
          {"Adam", with<optim::Adam>(optim::AdamOptions(0.1))},
          {"AdamW", with<optim::AdamW>(optim::AdamWOptions(0.1))},
          {"RMSprop", with<optim::RMSprop>(optim::RMSpropOptions(0.1).momentum(0.5))},
          {"Adagrad", with<optim::Adagrad>(optim::AdagradOptions(0.1))}};
}

// The first step would make state, a later one counts before its first op.
TEST(GradientErrors, StepOfAnOptimizer) {
  for (const auto& [name, make] : optimizers()) {
    for (const int steps : {0, 2}) {
      for (const bool named : {true, false}) {
        Program program;
        program.optimizer = make(program.net->parameters());
        program.give_gradients();
        for (int i = 0; i < steps; ++i) program.optimizer->step();
        std::string line;
        program.body = [&] { line = HERE, program.optimizer->step(); };
        program.body_first = named;
        EXPECT_EQ(program.refusal(named),
                  "trace: the compiled function calls torch::optim::" + name +
                      "::step, which uses .grad() of " +
                      (named ? "parameter \"weight\"" : "closed-over tensor 0 (f32[1, 3])") +
                      "\n  at:     " + line + kRemedy);
      }
    }
  }
}

// Neither the module is named nor has an op met its parameters: the first op of the step shows it.
TEST(GradientErrors, FirstStepOfAnOptimizerOnUnknownParameters) {
  for (const auto& [name, make] : optimizers()) {
    if (name == "Adagrad") continue;  // has its state, and a count, from the beginning
    Program program;
    program.optimizer = make(program.net->parameters());
    program.give_gradients();
    std::string line;
    program.body = [&] { line = HERE, program.optimizer->step(); };
    EXPECT_EQ(program.refusal(false), "trace: the compiled function calls torch::optim::" + name +
                                          "::step\n  at:     " + line + kRemedy);
  }
}

// Before it calls the closure for the first time it makes a state, which is empty.
TEST(GradientErrors, StepWithAClosure) {
  for (const bool named : {true, false}) {
    Program program;
    program.give_gradients();
    program.optimizer = std::make_unique<torch::optim::LBFGS>(program.net->parameters());
    program.optimizer->step([&] {
      const T loss = program.net(torch::ones({2, 3})).pow(2).sum();
      program.optimizer->zero_grad();
      loss.backward();
      return loss;
    });
    program.body_first = named;
    const auto& state = static_cast<const torch::optim::LBFGSParamState&>(
        *program.optimizer->state().at(program.net->weight.unsafeGetTensorImpl()));
    const int64_t evaluations = state.func_evals(), iterations = state.n_iter();
    program.body = [&] {
      program.optimizer->step([&] {
        program.optimizer->zero_grad();
        return program.net(torch::ones({2, 3})).sum();
      });
    };
    EXPECT_EQ(first_line(program.refusal(named)),
              std::string("trace: the compiled function calls torch::optim::Optimizer::zero_grad, "
                          "which uses .grad() of ") +
                  (named ? "parameter \"weight\"" : "closed-over tensor 0 (f32[1, 3])"));
    EXPECT_EQ(state.func_evals(), evaluations);
    EXPECT_EQ(state.n_iter(), iterations);
  }
}

TEST(GradientErrors, Clipping) {
  Program program;
  program.give_gradients();
  const std::string text = "trace: the compiled function uses .grad() of parameter \"weight\"";
  program.body = [&] { torch::nn::utils::clip_grad_norm_(program.net->parameters(), 1.0); };
  EXPECT_EQ(first_line(program.refusal(true)), text);
  program.body = [&] { torch::nn::utils::clip_grad_value_(program.net->parameters(), 1.0); };
  EXPECT_EQ(first_line(program.refusal(true)), text);
}

TEST(GradientErrors, StepWithoutGradients) {
  Program program;
  program.optimizer = std::make_unique<torch::optim::SGD>(program.net->parameters(), 0.1);
  program.body = [&] { program.optimizer->step(); };
  EXPECT_EQ(first_line(program.refusal(true)),
            "trace: the compiled function calls torch::optim::SGD::step, which uses .grad() of "
            "parameter \"weight\"");
}

TEST(GradientErrors, AssignmentAndReading) {
  for (const Slots slots : {Slots::undefined, Slots::defined}) {
    Program program;
    if (slots == Slots::defined) program.give_gradients();
    std::string line;
    const std::string start =
        "trace: the compiled function uses .grad() of parameter \"weight\"\n  at:     ";
    program.body = [&] { line = HERE, program.net->weight.mutable_grad() = torch::ones({1, 3}); };
    EXPECT_EQ(program.refusal(true), start + line + kRemedy);
    program.body = [&] { line = HERE, program.net->weight.mutable_grad().reset(); };
    EXPECT_EQ(program.refusal(true), start + line + kRemedy);
    bool defined = false;
    program.body = [&] { line = HERE, defined = program.net->weight.grad().defined(); };
    EXPECT_EQ(program.refusal(true), start + line + kRemedy);
  }
}

TEST(GradientErrors, OfAnArgument) {
  const T x = leaf({3});
  (x * x).sum().backward();
  const Seen before({x});
  auto f = compile([](const T& a) { return a * a.grad(); });
  EXPECT_EQ(first_line(error_text<UnsupportedError>([&] { f(x); })),
            "trace: the compiled function uses .grad() of argument 0");
  auto g = compile([](const T& a) {
    a.mutable_grad() = torch::ones({3});
    return a * 2;
  });
  EXPECT_EQ(first_line(error_text<UnsupportedError>([&] { g(x); })),
            "trace: the compiled function uses .grad() of argument 0");
  before.expect_unchanged();
  EXPECT_TRUE(compile([](const T& a) { return a * 2; })(x).equal(x * 2));
}

struct Doubled : torch::autograd::Function<Doubled> {
  static T forward(torch::autograd::AutogradContext* context, T x) {
    x.mul_(2);
    context->mark_dirty({x});
    return x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list tangents) {
    return {tangents[0] * 2};
  }
};

// libtorch takes away the gradient of what a custom function has marked as dirty.
TEST(GradientErrors, OfATensorThatIsMarkedAsDirty) {
  auto f = compile([](const T& x) { return Doubled::apply(x) * 1; });
  const T w = leaf({3});
  T x = w * 1;
  f(x).sum().backward();
  EXPECT_TRUE(w.grad().equal(torch::full({3}, 2.0)));
  T kept = w * 1;
  kept.retain_grad();
  kept.sum().backward();
  const T gradient = kept.grad();
  EXPECT_EQ(first_line(error_text<UnsupportedError>([&] {
              f.reset();
              f(kept);
            })),
            "trace: the compiled function uses .grad() of argument 0");
  EXPECT_TRUE(kept.grad().is_same(gradient));
}

// A tensor that has never required grad has no slot to watch; it is put back.
TEST(GradientErrors, AssignmentToATensorWithoutGrad) {
  const T w = torch::ones({3});
  auto f = compile([&](const T& x) {
    const T y = x * w;
    w.mutable_grad() = y;
    return y;
  });
  EXPECT_EQ(error_text<UnsupportedError>([&] { f(torch::ones({3})); }),
            std::string("trace: the compiled function uses .grad() of closed-over tensor 0 "
                        "(f32[3])") +
                kRemedy);
  EXPECT_FALSE(w.grad().defined());
}

// What the function catches is refused all the same.
TEST(GradientErrors, ARefusalThatTheFunctionCatches) {
  Program program;
  program.body = [&] {
    try {
      program.net->zero_grad();
    } catch (const std::exception&) {
    }
  };
  const std::string text =
      "trace: the compiled function calls torch::nn::Module::zero_grad, which uses .grad() of "
      "parameter \"weight\"";
  EXPECT_EQ(first_line(program.refusal(true)), text);
  program.body = [&] {
    try {
      program.net->zero_grad();
    } catch (const std::exception&) {
      throw std::runtime_error("something else");
    }
  };
  EXPECT_EQ(first_line(program.refusal(true)), text);
  // So is what an op refuses.
  program.body = [&] {
    try {
      program.net->weight.sum().item<float>();
    } catch (const std::exception&) {
    }
  };
  EXPECT_EQ(first_line(program.refusal(true)),
            "trace: item() or a branch on a tensor reads the value of a tensor, which a trace does "
            "not have");
}

// Other threads use the parameters of a function that is being traced.
TEST(GradientErrors, AnotherThreadMayUseGradients) {
  Program program;
  const auto step = compile(program.net, [&](const T& x) {
    std::thread([&] {
      program.give_gradients();
      program.net->zero_grad();
      program.give_gradients();
    }).join();
    return program.net(x);
  });
  step(torch::ones({2, 3}));
  EXPECT_TRUE(program.net->weight.grad().equal(torch::full({1, 3}, 2.0)));
}

const char* const kBackward = "trace: the compiled function calls backward()\n  at:     ";
const char* const kBackwardRemedy =
    "\n  remedy: return the loss and call backward() on it outside; inside, "
    "tandem::grad(outputs, inputs) returns gradients";

TEST(GradientErrors, BackwardInside) {
  const T w = leaf({4}), x = leaf({4});
  for (const Slots slots : {Slots::undefined, Slots::defined}) {
    if (slots == Slots::defined) (w * x).sum().backward();
    const Seen before({w, x});
    std::string line;
    const auto text = [&](const std::function<void(const T&)>& body) {
      auto f = compile<T(T)>([&](const T& a) {
        const T loss = (a * w).sum();
        body(loss);
        return loss;
      });
      return error_text<UnsupportedError>([&] { f(x); });
    };
    EXPECT_EQ(text([&](const T& loss) { line = HERE, loss.backward(); }),
              kBackward + line + kBackwardRemedy);
    const std::vector<T> inputs{w};
    EXPECT_EQ(text([&](const T& loss) { line = HERE, loss.backward({}, {}, false, inputs); }),
              kBackward + line + kBackwardRemedy);
    EXPECT_EQ(text([&](const T& loss) { line = HERE, torch::autograd::backward({loss}); }),
              kBackward + line + kBackwardRemedy);
    before.expect_unchanged();
  }
}

// The graph was made outside: it is not even released.
TEST(GradientErrors, BackwardOfALossThatIsClosedOver) {
  const T w = leaf({4});
  const T loss = (w * w).sum();
  auto f = compile([&](const T& x) {
    loss.backward();
    return x * 2;
  });
  EXPECT_EQ(first_line(error_text<UnsupportedError>([&] { f(torch::ones({4})); })),
            "trace: the compiled function calls backward()");
  auto g = compile([&](const T& x) { return x * tandem::grad({loss}, {w})[0]; });
  EXPECT_EQ(
      first_line(error_text<UnsupportedError>([&] { g(torch::ones({4})); })),
      "trace: the compiled function asks for a gradient that passes through closed-over tensor "
      "0 (f32[]), which was computed outside");
  const T one = torch::ones({});
  auto h = compile([&](const T& x) { return x * tandem::grad({loss}, {w}, {one})[0]; });
  EXPECT_EQ(
      first_line(error_text<UnsupportedError>([&] { h(torch::ones({4})); })),
      "trace: the compiled function asks for gradients of a tensor that was computed outside");
  EXPECT_FALSE(w.grad().defined());
  loss.backward();
  EXPECT_TRUE(w.grad().equal(2 * w));
}

std::string without_line(std::string text) {
  const size_t from = text.find("\n  at: ");
  return text.erase(from, text.find('\n', from + 1) - from);
}

/// The text of what cannot be asked for, by either function.
template <class Body>
void expect_refused(Body body, const std::string& text) {
  for (const bool libtorchs : {false, true}) {
    const auto grad = [&](const T& of, const T& in) {
      return libtorchs ? torch::autograd::grad({of}, {in}, {}, {}, false, true)[0]
                       : tandem::grad({of}, {in}, {}, {}, false, true)[0];
    };
    EXPECT_EQ(without_line(error_text<UnsupportedError>([&] { body(grad); })), text);
  }
}

// The engine would have to go on through what was computed outside.
TEST(GradientErrors, AGradientThatPassesThroughTheOutside) {
  const T w = leaf({3});
  const T h = w.exp();
  const auto text = [&](const std::string& name) {
    return "trace: the compiled function asks for a gradient that passes through " + name +
           ", which was computed outside\n  remedy: compute it inside, or ask for the gradient "
           "outside the compiled function";
  };
  expect_refused(
      [&](const auto& grad) {
        compile([&](const T& x) { return grad((x * h).sum(), w); })(torch::ones({3}));
      },
      text("closed-over tensor 0 (f32[3])"));
  expect_refused(
      [&](const auto& grad) {
        compile([&](const T& a, const T& b) { return grad((a * b).sum(), a); })(w, h);
      },
      text("argument 1"));
  // Not if nothing of it is asked for.
  auto f = compile([&](const T& x) { return tandem::grad({(x * h * w).sum()}, {h})[0]; });
  EXPECT_TRUE(f(torch::ones({3})).equal(w));
}

TEST(GradientErrors, AHookThatWasRegisteredOutside) {
  const T w = leaf({3});
  int runs = 0;
  const unsigned hook = w.register_hook([&](const T&) { ++runs; });
  expect_refused(
      [&](const auto& grad) {
        compile([&](const T& x) { return grad((x * w).sum(), w); })(torch::ones({3}));
      },
      "trace: the compiled function asks for the gradient of closed-over tensor 0 (f32[3]), which "
      "has a hook that was registered outside\n  remedy: ask for the gradient outside the compiled "
      "function, or apply the hook inside it");
  EXPECT_EQ(runs, 0);
  w.remove_hook(hook);
}

}  // namespace
}  // namespace tandem
