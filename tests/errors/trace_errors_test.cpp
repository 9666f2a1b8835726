/// What Tandem says when a function cannot be captured, and that nothing has happened by then.
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>

namespace tandem {
namespace {

using test::error_text;
using T = at::Tensor;

// Where it stands, as errors say it.
#define HERE (std::string(__FILE__) + ":" + std::to_string(__LINE__))

T leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

template <class F>
std::string unsupported(F function, const T& x) {
  auto compiled = compile<T(T)>(std::move(function));
  const T before = x.detach().clone();
  const uint32_t version = x._version();
  const T stream = at::detail::getDefaultCPUGenerator().get_state();
  std::string text = error_text<UnsupportedError>([&] { compiled(x); });
  EXPECT_TRUE(before.equal(x.detach()));
  EXPECT_EQ(version, x._version());
  EXPECT_TRUE(stream.equal(at::detail::getDefaultCPUGenerator().get_state()));
  return text;
}

TEST(TraceErrors, ReadingAValue) {
  std::string line;
  const std::string text = unsupported(
      [&](const T& x) {
        const T sum = x.sum();
        return x * (line = HERE, sum.item<float>());
      },
      torch::ones({4}));
  EXPECT_EQ(
      text,
      "trace: item() or a branch on a tensor reads the value of a tensor, which a trace does not "
      "have\n"
      "  at:       " +
          line +
          "\n"
          "  operands: f32[]\n"
          "  remedy:   read it outside the compiled function and pass the number as an argument, "
          "or "
          "keep the "
          "computation on tensors (torch::where instead of if)");
}

T wrapped_number(double number) {
  T tensor = torch::full({}, number, torch::kDouble);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

TEST(TraceErrors, AWrappedNumber) {
  const std::string text =
      "trace: a wrapped number (a tensor that gives way to the dtype of others, as a number does) "
      "enters the compiled function\n"
      "  remedy: pass the number itself (at::Scalar), or a tensor that is none (clone())";
  const T number = wrapped_number(2);
  EXPECT_EQ(unsupported([](const T& x) { return x * 2; }, number), text);
  EXPECT_EQ(unsupported([](const T& x) { return x.mul_(2); }, number), text);
  EXPECT_EQ(unsupported([](const T& x) { return x; }, number), text);
  EXPECT_EQ(unsupported([&](const T&) { return number; }, torch::ones({2})), text);
  EXPECT_EQ(unsupported([](const T& x) { return x * 2; }, wrapped_number(2).requires_grad_()),
            text);
  // A gradient would be lost.
  const T weight = wrapped_number(2).requires_grad_();
  EXPECT_EQ(unsupported([&](const T& x) { return x * weight; }, torch::ones({2})).substr(0, 23),
            text.substr(0, 23));
  // Two on one memory.
  const T same = number.detach();
  same.unsafeGetTensorImpl()->set_wrapped_number(true);
  const auto both = compile([](const T& x, const T& y) { return x + y; });
  EXPECT_EQ(error_text<UnsupportedError>([&] { both(number, same); }), text);
  // In eager mode and as an operand that is a number it is one.
  const auto eagerly = compile([](const T& x) { return x * torch::ones({2}); },
                               {.on_unsupported = OnUnsupported::eager});
  EXPECT_EQ(eagerly(number).scalar_type(), torch::kFloat);
  const auto closed = compile([&](const T& x) { return x * number; });
  EXPECT_EQ(closed(torch::ones({2})).scalar_type(), torch::kFloat);
}

TEST(TraceErrors, AnOldAliasAfterSet) {
  const T other = torch::ones({4});
  using Alias = T (*)(const T& x);
  for (const Alias alias : std::initializer_list<Alias>{
           [](const T& x) { return x.view({2, 2}); }, [](const T& x) { return x.slice(0, 1, 3); },
           [](const T& x) { return x.detach(); }, [](const T& x) { return x.data(); }}) {
    std::string line;
    const std::string text = unsupported(
        [&](const T& x) {
          const T old = alias(x);
          x.set_(other);
          (line = HERE, old.mul_(3));
          return x * 2;
        },
        torch::zeros({4}));
    EXPECT_EQ(text,
              "trace: a view or alias is written whose tensor has got other memory by set_() since "
              "it was taken\n  at:       " +
                  line + "\n  remedy:   write it before set_(), or write a copy (clone())");
  }
}

TEST(TraceErrors, AnAliasOfATensorThatGrows) {
  std::string line;
  const std::string text = unsupported(
      [&](const T& x) {
        const T old = x.view({2, 2});
        (line = HERE, x.resize_({10}));
        return old * 2;
      },
      torch::zeros({4}));
  EXPECT_EQ(text,
            "trace: resize_() makes a tensor grow while a view or alias shows its memory\n"
            "  at:       " +
                line + "\n  remedy:   take the view after resize_(), or of a copy (clone())");
}

TEST(TraceErrors, AGeneratorThatTheFunctionMakes) {
  std::string line;
  const std::string text = unsupported(
      [&](const T& x) {
        const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
        return x + (line = HERE, at::rand({4}, generator));
      },
      torch::ones({4}));
  EXPECT_EQ(text, "trace: the function draws from a generator that it makes\n  at:     " + line +
                      "\n  remedy: make it outside and seed it before each call; pass it as an "
                      "argument or close over it");
  // Where somebody holds it, it goes on from call to call, as in eager.
  const at::Generator one = at::make_generator<at::CPUGeneratorImpl>(5),
                      two = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto draw = compile([one](const T& x) { return x + at::rand({4}, one); });
  const auto take =
      compile([](const T& x, const at::Generator& from) { return x + at::rand({4}, from); });
  const T x = torch::zeros({4});
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(draw(x).equal(take(x, two)));
}

TEST(TraceErrors, BranchingOnAClosedOverTensor) {
  T flag = torch::tensor(true);
  const std::string text =
      unsupported([flag](const T& x) { return flag.item<bool>() ? x : -x; }, torch::ones({4}));
  EXPECT_EQ(text.substr(0, 46), "trace: item() or a branch on a tensor reads th");
}

TEST(TraceErrors, ReadingADataPointer) {
  std::string line;
  const std::string text = unsupported(
      [&](const T& x) {
        const T y = (line = HERE, x * 2);
        return x * y.data_ptr<float>()[0];
      },
      torch::ones({4}));
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "trace: the function reads the data of a tensor (data_ptr, accessor, printing), which "
            "a trace does not "
            "have");
  // No op reads a pointer, so the last one before is what is known.
  EXPECT_NE(text.find("\n  after:    " + line + "\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("Caffe2"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  remedy:   read it outside the compiled function"), std::string::npos);
}

TEST(TraceErrors, PrintingATensor) {
  std::string line;
  const std::string text = unsupported(
      [&](const T& x) {
        std::ostringstream out;
        line = HERE, out << x;
        return x;
      },
      torch::ones({4}));
  EXPECT_EQ(text,
            "trace: the function reads the data of a tensor (data_ptr, accessor, printing), which "
            "a trace does not have\n"
            "  after:    " +
                line +
                "\n  remedy:   read it outside the compiled function, or compute with tensor ops");
}

TEST(TraceErrors, SizeThatDependsOnData) {
  std::string line;
  const std::string text =
      unsupported([&](const T& x) { return (line = HERE, std::get<0>(at::unique_dim(x, 0))); },
                  torch::ones({4}));
  EXPECT_EQ(text,
            "trace: aten.unique_dim has a result whose size depends on data\n"
            "  at:       " +
                line +
                "\n"
                "  operands: f32[4]\n"
                "  remedy:   use a form with a fixed size (torch::where, masked_fill, a mask that "
                "multiplies), or call it "
                "outside the compiled function");
}

TEST(TraceErrors, OneHotWithoutANumberOfClasses) {
  std::string line;
  const std::string text = unsupported([&](const T& x) { return (line = HERE, at::one_hot(x)); },
                                       torch::tensor({1, 0, 2}));
  EXPECT_EQ(text,
            "trace: one_hot without num_classes has a result whose size depends on data\n"
            "  at:      " +
                line +
                "\n"
                "  operand: i64[3]\n"
                "  remedy:  give num_classes");
  // With one it is an op like others.
  auto f = compile([](const T& x) { return at::one_hot(x, 3); });
  EXPECT_TRUE(f(torch::tensor({1, 0, 2})).equal(at::one_hot(torch::tensor({1, 0, 2}), 3)));
}

TEST(TraceErrors, IndexingWithIntegersIsFine) {
  auto f = compile([](const T& x) { return x.index({torch::tensor({2, 0})}); });
  EXPECT_TRUE(f(torch::arange(4)).equal(torch::tensor({2, 0})));
}

TEST(TraceErrors, OtherMemoryAndADifferentiableWrite) {
  const T p = leaf({4}), w = torch::ones({4});
  const T x = p * 1;
  std::string line;
  const std::string text = unsupported(
      [&](const T& argument) {
        {
          torch::NoGradGuard no_grad;
          argument.set_(w.clone());
        }
        return (line = HERE, argument.mul_(p)) + 1;
      },
      x);
  EXPECT_EQ(text,
            "signature: argument 0 gets other memory by set_() and is written in place by a "
            "differentiable operation, too\n"
            "  at:     " +
                line +
                "\n"
                "  remedy: do one of the two outside the compiled function, or write under "
                "torch::NoGradGuard");
  EXPECT_TRUE(x.equal(p));
  EXPECT_EQ(x._version(), 0);
}

TEST(TraceErrors, ViewsOfAHiddenLeaf) {
  std::string line;
  auto f = compile([&](const T& x) {
    T y = (line = HERE, x * 2).requires_grad_();
    return std::pair{y.view(-1), y.t()};
  });
  const std::string text = error_text<UnsupportedError>([&] { f(torch::ones({2, 2})); });
  EXPECT_EQ(text,
            "signature: output 0 is a view of a tensor that the function made a leaf, or parted "
            "from other results by detach(), and does not return\n"
            "  at:     " +
                line +
                "\n"
                "  value:  f32[2, 2]\n"
                "  remedy: return that tensor, or a copy of the view (clone())");
}

TEST(TraceErrors, OneMemoryWrittenInSeveralDtypes) {
  std::string line;
  auto f = compile([&](const T& x, const T& y) {
    line = HERE, x.add_(1);
    return y.clone();
  });
  const T z = torch::zeros({2}, torch::kComplexFloat);
  const std::string text =
      error_text<UnsupportedError>([&] { f(z, torch::view_as_real(z)); });  // sets `line`
  EXPECT_EQ(text,
            "signature: argument 0 is written and shares memory with argument 1\n"
            "  at:     " +
                line +
                "\n"
                "  cause:  they see it as different dtypes\n"
                "  remedy: pass tensors that do not overlap, or clone() one of them");
  EXPECT_EQ(torch::view_as_real(z).sum().item<float>(), 0);
}

// The write would reach the other one without its conjugate or negation.
TEST(TraceErrors, OneMemoryWrittenThatAnotherConjugatesOrNegates) {
  std::string line;
  auto f = compile([&](const T& x, const T& y) {
    line = HERE, x.add_(1);
    return y.clone();
  });
  const T z = torch::ones({2}, torch::kComplexFloat), real = torch::ones({2});
  // Of what they are views of, autograd knows nothing.
  for (const auto& [x, y] :
       {std::pair(z, z.detach().conj()), std::pair(real, torch::_neg_view(real.detach()))}) {
    const std::string text = error_text<UnsupportedError>([&] { f(x, y); });  // sets `line`
    EXPECT_EQ(text,
              "signature: argument 0 is written and shares memory with argument 1\n"
              "  at:     " +
                  line +
                  "\n"
                  "  cause:  one of them is a lazy conjugate or negation of it\n"
                  "  remedy: pass tensors that do not overlap, or clone() one of them");
  }
  EXPECT_EQ(real.sum().item<float>(), 2);
}

TEST(TraceErrors, ViewsAndAStrangerOnOneMemoryThatIsWritten) {
  std::string line;
  auto f = compile([&](const T& x, const T& y, const T& z) {
    torch::NoGradGuard no_grad;
    line = HERE, x.add_(1);
    return y + z;
  });
  const T p = leaf({4});
  const T base = p * 1;
  const std::string text = error_text<UnsupportedError>(
      [&] { f(base, base.slice(0, 1, 3), base.detach().slice(0, 1, 3)); });
  EXPECT_EQ(text,
            "signature: argument 0 is written and shares memory with argument 1\n"
            "  at:     " +
                line +
                "\n"
                "  cause:  other inputs lie there, too: two of them are views of one tensor that "
                "requires grad, and another is not\n"
                "  remedy: pass tensors that do not overlap, or clone() one of them");
  EXPECT_TRUE(base.equal(p));
}

TEST(TraceErrors, TensorThatOutlivesItsTrace) {
  T kept;
  auto f = compile([&kept](const T& x) {
    kept = x * 2;
    return x + 1;
  });
  f(torch::ones({2}));
  EXPECT_EQ(error_text<UserError>([&] { kept + 1; }),
            "trace: aten.add.Scalar was given a tensor that belongs to a trace which is over\n"
            "  operand: f32[2]\n"
            "  remedy:  do not keep tensors that the compiled function made or received in "
            "variables that outlive it; "
            "return them instead");
}

TEST(TraceErrors, PrintingATensorThatOutlivesItsTrace) {
  T kept;
  auto f = compile([&kept](const T& x) {
    kept = x * 2;
    return x + 1;
  });
  f(torch::ones({2}));
  std::ostringstream out;
  const std::string text = error_text<UserError>([&] { out << kept; });
  EXPECT_NE(text.find("was given a tensor that belongs to a trace which is over"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("Caffe2"), std::string::npos) << text;
}

TEST(TraceErrors, SparseArgument) {
  EXPECT_EQ(error_text<UnsupportedError>(
                [] { compile([](const T& x) { return x * 2; })(torch::eye(3).to_sparse()); }),
            "trace: a tensor with layout Sparse enters the compiled function; only dense strided "
            "tensors can be "
            "traced\n  remedy: convert it with to_dense() or dequantize() outside the function");
}

TEST(TraceErrors, TensorThatExistsOnlyWhileTheFunctionRuns) {
  const std::string text =
      "trace: closed-over tensor 0 (f32[2]) exists only while the function runs\n"
      "  cause:  it wraps memory of the program (torch::from_blob), or the function replaced a "
      "tensor that it closes "
      "over\n"
      "  remedy: make it outside and pass it as an argument; return new state instead of assigning "
      "it";
  EXPECT_EQ(unsupported(
                [](const T& x) {
                  float memory[2] = {1, 2};
                  return x * torch::from_blob(memory, {2});
                },
                torch::ones({2})),
            text);
  EXPECT_EQ(unsupported(
                [state = torch::ones({2})](const T& x) mutable { return state = state * 0.5 + x; },
                torch::ones({2})),
            text);
  // Memory that somebody keeps is an ordinary closed-over tensor.
  static float kept[2] = {1, 2};
  const T outside = torch::from_blob(kept, {2});
  EXPECT_EQ(
      compile([outside](const T& x) { return x * outside; })(torch::ones({2})).sum().item<float>(),
      3);
}

TEST(TraceErrors, OpThatReturnsAViewOfItsArgument) {
  static auto* library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "errortest", std::nullopt, __FILE__, __LINE__);
    made->def("half(Tensor(a) x) -> Tensor(a)");
    made->impl("half", c10::DispatchKey::CPU, [](T x) { return x.narrow(0, 0, 1); });
    return made;
  }();
  ASSERT_NE(library, nullptr);
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("errortest::half", "").typed<T(T)>();
  std::string line;
  const std::string text =
      unsupported([&](const T& x) { return (line = HERE, op.call(x)); }, torch::ones({2}));
  EXPECT_EQ(text,
            "trace: errortest.half writes or returns one of its arguments and has no functional "
            "form\n"
            "  at:     " +
                line +
                "\n"
                "  schema: errortest::half(Tensor(a) x) -> Tensor(a)\n"
                "  remedy: register an op that returns a new tensor, or call it outside the "
                "compiled function");
}

// A trace would have the answer for zeros.
TEST(TraceErrors, OpThatAnswersWithANumber) {
  static auto* library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "errortest2", std::nullopt, __FILE__, __LINE__);
    made->def("positive(Tensor x) -> int",
              [](const T& x) { return x.gt(0).sum().item<int64_t>(); });
    return made;
  }();
  ASSERT_NE(library, nullptr);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("errortest2::positive", "")
                      .typed<int64_t(const T&)>();
  EXPECT_EQ(unsupported([&](const T& x) { return x * op.call(x); }, torch::ones({2})).substr(0, 6),
            "trace:");
  // Sizes decide it.
  auto f = compile([](const T& x) { return at::is_same_size(x, x[0]) ? x : x * 2; });
  EXPECT_TRUE(f(torch::ones({2, 2})).equal(torch::full({2, 2}, 2.0)));
}

TEST(TraceErrors, AutocastLeftChanged) {
  const bool before = torch::GradMode::is_enabled();
  EXPECT_EQ(unsupported(
                [](const T& x) {
                  torch::GradMode::set_enabled(false);
                  at::autocast::set_autocast_enabled(at::kCPU, true);
                  return x * 2;
                },
                torch::ones({3})),
            "trace: the function leaves autocast changed behind it\n"
            "  remedy: switch it back before the function ends");
  EXPECT_EQ(torch::GradMode::is_enabled(), before);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(TraceErrors, AutocastLeftWithAnotherDtype) {
  const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const std::string text = unsupported(
      [](const T& x) {
        at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
        return x * 2;
      },
      torch::ones({3}));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "trace: the function leaves autocast changed behind it");
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), dtype);
}

struct ReadsAValue : torch::autograd::Function<ReadsAValue> {
  static inline std::string line;
  static T forward(torch::autograd::AutogradContext*, const T& x) { return x.exp(); }
  static std::vector<T> backward(torch::autograd::AutogradContext*, std::vector<T> grads) {
    const T result = grads[0] * (line = HERE, grads[0].item<float>());
    return {result};
  }
};

TEST(TraceErrors, ReadingAValueInTheBackward) {
  const T x = leaf({});
  const std::string text = unsupported([](const T& x) { return ReadsAValue::apply(x); }, x);
  EXPECT_NE(text.find("\n  at:       " + ReadsAValue::line + "\n"), std::string::npos) << text;
}

// libtorch's own words stay what they are in eager.
TEST(TraceErrors, ErrorsOfLibtorchPassThroughUnchanged) {
  const auto wrong = [](const T& x) { return x.matmul(torch::ones({5})); };
  const auto text_of = [](const auto& body) {
    try {
      body();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("(no error)");
  };
  EXPECT_EQ(text_of([&] { compile<T(T)>(wrong)(torch::ones({4})); }),
            text_of([&] { wrong(torch::ones({4})); }));
}

struct Own : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(TraceErrors, TheFunctionsOwnExceptionsPassThroughAndTheTracerIsCleanAfterwards) {
  bool fail = true;
  auto f = compile([&fail](const T& x) {
    T y = x * 2;
    if (fail) throw Own("mine");
    return y;
  });
  EXPECT_THROW(f(torch::ones({2})), Own);
  EXPECT_TRUE((torch::ones({2}) * 2).equal(torch::full({2}, 2.0)));  // not recorded any more
  fail = false;
  EXPECT_TRUE(f(torch::ones({2})).equal(torch::full({2}, 2.0)));
}

// A compile that failed is not tried again: the function's host code must not run at every call.
TEST(TraceErrors, AFailedCompileIsRemembered) {
  int runs = 0;
  auto f = compile([&runs](const T& x) {
    ++runs;
    return std::get<0>(at::unique_dim(x, 0));
  });
  const std::string first = error_text<UnsupportedError>([&] { f(torch::ones({2})); });
  EXPECT_EQ(error_text<UnsupportedError>([&] { f(torch::ones({2})); }), first);
  EXPECT_EQ(runs, 1);
  f.reset();
  EXPECT_EQ(error_text<UnsupportedError>([&] { f(torch::ones({2})); }), first);
  EXPECT_EQ(runs, 2);
}

TEST(TraceErrors, OnUnsupportedEagerRunsTheCallEagerly) {
  auto f = compile([](const T& x) { return std::get<0>(at::unique_dim(x, 0)); },
                   {.on_unsupported = OnUnsupported::eager});
  EXPECT_EQ(f(torch::tensor({1, 0, 1})).size(0), 2);
  EXPECT_EQ(f.stats().eager_calls, 1);
}

}  // namespace
}  // namespace tandem
