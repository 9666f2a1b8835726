/// Backwards for some inputs of a call: eager runs, checks and frees only the formulas that lead
/// there.
#include "support/environment.h"
#include "support/error_text.h"
#include "support/twins.h"

namespace tandem::test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::grad;
using torch::autograd::variable_list;

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

Tensors gradients(const Tensor& of, const Tensors& inputs, bool keep = true) {
  return grad({of.sum()}, inputs, {}, keep, false, /*allow_unused=*/true);
}

/// Two products that meet in a sum.
auto two_products() {
  return [](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
    return a * b + (c * d).sin();
  };
}

struct Four {
  Tensor a = leaf({3}), b = leaf({3}), c = leaf({3}), d = leaf({3});
  Tensors all() const { return {a, b, c, d}; }
};

void write(const Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  tensor.add_(1);
}

TEST(SomeInputs, OnlyWhatLiesOnTheWayIsCompared) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(two_products());
    for (size_t written = 0; written < 4; ++written) {
      const Four in;
      const Tensor y = f(in.a, in.b, in.c, in.d);
      write(in.all()[written]);
      const std::string where = "with input " + std::to_string(written) + " written, in ";
      for (size_t i = 0; i < 4; ++i) {
        twin.record_error(where + std::to_string(i), [&] {
          twin.record(where + std::to_string(i), gradients(y, {in.all()[i]})[0]);
        });
      }
      twin.record_error(where + "two", [&] {
        for (const Tensor& g : gradients(y, {in.a, in.d})) twin.record(where + "two", g);
      });
      twin.record_error(where + "all", [&] { y.sum().backward(); });
    }
  });
}

// The product computes one gradient, and looks at both tensors that it has saved.
TEST(SomeInputs, AFormulaLooksAtAllThatItHasSaved) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& a, const Tensor& b) { return a * b; });
    const Tensor a = leaf({3}), b = leaf({3});
    const Tensor y = f(a, b);
    write(a);
    twin.record_error("in a, which needs b only", [&] { gradients(y, {a}); });
    twin.record_error("in b", [&] { gradients(y, {b}); });
  });
}

TEST(SomeInputs, AWrittenResultMattersWhereItIsRead) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& a, const Tensor& b) {
      const Tensor e = a.exp();
      return std::pair{e, e * 2 + b * b};
    });
    const Tensor a = leaf({3}), b = leaf({3});
    const auto [e, y] = f(a, b);
    write(e.detach());
    twin.record("in b", gradients(y, {b})[0]);
    // The text names the node that made the result.
    EXPECT_NE(error_text<c10::Error>([&] { gradients(y, {a}); }).find("is at version 1; expected"),
              std::string::npos);
  });
}

TEST(SomeInputs, OnlyWhatLiesOnTheWayIsUsedUp) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(two_products());
    const Four in;
    const Tensor y = f(in.a, in.b, in.c, in.d);
    twin.record("in a", gradients(y, {in.a}, /*keep=*/false)[0]);
    twin.record_error("in b, by the same product", [&] { gradients(y, {in.b}, false); });
    twin.record("in c", gradients(y, {in.c}, true)[0]);
    twin.record("in d", gradients(y, {in.d}, false)[0]);
    twin.record_error("in c once more", [&] { gradients(y, {in.c}, false); });
    twin.record_error("in all", [&] { y.sum().backward(); });
  });
}

/// x * 2, with a backward that draws.
struct DrawsInBackward : torch::autograd::Function<DrawsInBackward> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list g) {
    return {g[0] * torch::rand_like(g[0])};
  }
};

TEST(SomeInputs, OnlyWhatLiesOnTheWayDraws) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& a, const Tensor& b) {
      return DrawsInBackward::apply(a.sin()) + DrawsInBackward::apply(b.exp());
    });
    const Tensor a = leaf({3}), b = leaf({3});
    const Tensor y = f(a, b);
    const auto record = [&](const std::string& what, const Tensors& inputs) {
      for (const Tensor& g : gradients(y, inputs)) twin.record(what, g);
      twin.record("generator", at::detail::getDefaultCPUGenerator().get_state());
    };
    record("in a", {a});
    record("in b", {b});
    record("in both", {b, a});
    record("in a again", {a});
  });
}

TEST(SomeInputs, OnlyHooksOnTheWayRun) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& a, const Tensor& b, Tensor of_a, Tensor of_b) {
      const Tensor h = a.sin(), k = b.exp();
      h.register_hook([of_a](const Tensor&) { of_a.add_(1); });
      k.register_hook([of_b](const Tensor& g) { of_b.add_(g.sum()); });
      return h * 2 + k;
    });
    const Tensor a = leaf({3}), b = leaf({3}), of_a = torch::zeros({}), of_b = torch::zeros({});
    const Tensor y = f(a, b, of_a, of_b);
    const auto record = [&](const std::string& what, const Tensors& inputs) {
      for (const Tensor& g : gradients(y, inputs)) twin.record(what, g);
      twin.record_tensor("of a", of_a);
      twin.record_tensor("of b", of_b);
    };
    record("in a", {a});
    record("in b", {b});
    record("in both", {a, b});
  });
}

TEST(SomeInputs, AFormulaThatRaisesMattersWhereItLies) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& a, const Tensor& b) {
      const Tensor e = a.exp(), y = e * 2;
      e.detach().add_(1);
      return y + b * b;
    });
    const Tensor a = leaf({3}), b = leaf({3});
    const Tensor y = f(a, b);
    twin.record("in b", gradients(y, {b})[0]);
    twin.record_error("in a", [&] { gradients(y, {a}); });
  });
}

TEST(SomeInputs, OfARewrittenArgument) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile([](const Tensor& a, const Tensor& b, Tensor state) {
      state.mul_(a);
      return state.detach() * b + a * a;
    });
    const Tensor a = leaf({3}), b = leaf({3}), root = leaf({3});
    const Tensor state = root * 2;
    const Tensor y = f(a, b, state);
    twin.record("of the result in a", gradients(y, {a})[0]);
    twin.record("of the result in b", gradients(y, {b})[0]);
    twin.record("of the state in its root", gradients(state, {root})[0]);
    twin.record("of the state in a", gradients(state, {a})[0]);
    write(b);
    twin.record("of the state in a, b written", gradients(state, {a})[0]);
    twin.record("of the result in a, b written", gradients(y, {a})[0]);
  });
}

TEST(SomeInputs, WithAHistory) {
  expect_twins_agree([](Twin& twin) {
    const auto f = twin.compile(two_products());
    const Four in;
    const Tensor y = f(in.a, in.b, in.c, in.d);
    for (const Tensor& input : in.all()) {
      const Tensor g = grad({y.sum()}, {input}, {}, true, /*create_graph=*/true)[0];
      twin.record("first order", g);
      for (const Tensor& second : gradients(g.sin(), in.all())) twin.record("second", second);
    }
  });
}

// A documented difference: the call is one node, so what is computed from its first result seems to
// lead to the input of the second.
TEST(SomeInputs, AReaderOutsideThatLeadsElsewhereMayRaise) {
  const auto program = [](const Tensor& a, const Tensor& b) { return std::pair{a.sin(), b.cos()}; };
  const auto outcome = [](const auto& function) {
    const Tensor a = leaf({3}), b = leaf({3});
    const Tensor first = function(a, b).first, square = first * first;
    write(first.detach());
    return error_text<c10::Error>([&] { EXPECT_FALSE(gradients(square, {b})[0].defined()); });
  };
  EXPECT_EQ(outcome(program), "(no error)");
  EXPECT_NE(outcome(tandem::compile(program)).find("is at version 1; expected version 0"),
            std::string::npos);
}

/// Counts the backwards that are lowered, and the nodes of the last one.
struct Counting : Backend {
  std::string_view name() const override { return "counting"; }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    if (context.role == GraphRole::backward) {
      ++backwards;
      nodes = graph.node_count();
    }
    return inner->compile(graph, context);
  }
  std::shared_ptr<Backend> inner = tandem::backend("eager");
  int backwards = 0;
  size_t nodes = 0;
};

TEST(SomeInputs, EachChoiceIsCompiledOnceAndNoneForAPlainBackward) {
  const EnvironmentVariable no_other("TANDEM_BACKEND", nullptr);
  const auto backend = std::make_shared<Counting>();
  const auto f =
      tandem::compile(two_products(), {.backend = std::static_pointer_cast<Backend>(backend)});
  const Four in;
  const auto call = [&] { return f(in.a, in.b, in.c, in.d); };
  for (int i = 0; i < 2; ++i) call().sum().backward();
  gradients(call(), in.all());
  call().sum().backward({}, false, false, Tensors{in.d, in.c, in.b, in.a});
  EXPECT_EQ(backend->backwards, 1) << "all of them are asked for";
  const size_t whole = backend->nodes;
  for (int i = 0; i < 2; ++i) gradients(call(), {in.a});
  EXPECT_EQ(backend->backwards, 2);
  EXPECT_LT(backend->nodes, whole) << "what leads elsewhere is left out";
  gradients(call(), {in.a, in.c});
  EXPECT_EQ(backend->backwards, 3);
  call().sum().backward();
  EXPECT_EQ(backend->backwards, 3);
}

}  // namespace
}  // namespace tandem::test
