/// When a call is served by an entry that exists, when it makes a new one, and what it says about
/// it.
#include "support/models.h"
#include "support/same_bits.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::test {
namespace {

using T = at::Tensor;

/// For the words about sizes and numbers: with them alone the default makes no other entry.
const Options kFixed{.dynamic = Dynamic::never};

template <class F>
std::string last_miss(const F& function) {
  return function.stats().misses.back().reason;
}

TEST(Guards, SecondCallHits) {
  auto f = compile([](const T& x) { return x * 2; });
  f(torch::ones({2}));
  f(torch::zeros({2}));
  EXPECT_EQ(f.stats().traces, 1);
  EXPECT_EQ(f.stats().hits, 1);
  EXPECT_EQ(last_miss(f), "first call: no entry yet");
}

TEST(Guards, EveryPropertyOfAnArgument) {
  auto f = compile([](const T& x) { return x * 2; }, kFixed);
  f(torch::ones({2, 3}));
  f(torch::ones({2, 4}));
  EXPECT_EQ(last_miss(f), "entry 0: argument 0: size is [2, 4], compiled for [2, 3]");
  f(torch::ones({3, 2}).t());
  EXPECT_EQ(last_miss(f), "entry 0 is nearest: argument 0: stride is [1, 2], compiled for [3, 1]");
  f.reset();
  f(torch::ones({2}));
  f(torch::ones({2}, torch::kDouble));
  EXPECT_EQ(last_miss(f), "entry 0: argument 0: dtype is f64, compiled for f32");
  f.reset();
  f(torch::ones({2}));
  f(torch::ones({2}).set_requires_grad(true));
  EXPECT_EQ(last_miss(f), "entry 0: argument 0: requires_grad is true, compiled for false");
  f(T(torch::ones({2})));
  EXPECT_EQ(f.stats().entries, 2);
}

TEST(Guards, GradModeAndDefaultDtype) {
  auto f = compile([](const T& x) { return x + torch::ones({2}); });
  T x = torch::ones({2}).set_requires_grad(true);
  EXPECT_TRUE(f(x).requires_grad());
  {
    torch::NoGradGuard guard;
    EXPECT_FALSE(f(x).requires_grad());
    EXPECT_EQ(last_miss(f), "entry 0: grad mode is off, compiled with on");
  }
  torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
  EXPECT_EQ(f(x).scalar_type(), torch::kDouble);
  torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
  EXPECT_EQ(f(x).scalar_type(), torch::kFloat);
  EXPECT_EQ(f.stats().entries, 3);
  EXPECT_EQ(f.entries()[1].kind(), EntryKind::inference);
}

TEST(Guards, Constants) {
  auto f = compile(
      [](const T& x, int64_t n, const std::string& mode) { return mode == "mul" ? x * n : x + n; });
  EXPECT_EQ(f(torch::ones({1}), 3, "mul").item<float>(), 3);
  EXPECT_EQ(f(torch::ones({1}), 4, "mul").item<float>(), 4);
  EXPECT_EQ(last_miss(f), "first call: no entry yet");
  EXPECT_EQ(f.stats().variants, 2);
  EXPECT_EQ(f(torch::ones({1}), 4, "add").item<float>(), 5);
  EXPECT_EQ(last_miss(f), "entry 0: constant 1 of the arguments is \"add\", compiled for \"mul\"");
  EXPECT_EQ(f.stats().entries, 2);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// 0.0 == -0.0, but 1 / 0.0 is not 1 / -0.0.
TEST(Guards, ZeroAndMinusZeroAreTwoNumbers) {
  const T x = torch::ones({1});
  const auto by_number = compile([](const T& t, double n) { return t / (t * n); });
  const auto in_words = compile([](const T& t, double n) { return t / (t * n); }, kFixed);
  const auto by_scalar = compile([](const T& t, const at::Scalar& n) { return t / (t * n); });
  const auto by_list =
      compile([](const T& t, const std::vector<double>& n) { return t / (t * n[1]); });
  const auto by_complex =
      compile([](const T& t, const at::Scalar& n) { return t / (t * n.toComplexDouble().imag()); });
  double named = 0;
  const auto by_name =
      compile([&](const T& t) { return t / (t * named); }, {.guard_on = [&] { return named; }});
  const double infinity = std::numeric_limits<double>::infinity();
  for (double zero : {0.0, -0.0, 0.0, -0.0}) {
    named = zero;
    const double expected = std::signbit(zero) ? -infinity : infinity;
    EXPECT_EQ(by_number(x, zero).item<double>(), expected);
    EXPECT_EQ(in_words(x, zero).item<double>(), expected);
    EXPECT_EQ(by_scalar(x, zero).item<double>(), expected);
    EXPECT_EQ(by_list(x, {1.0, zero}).item<double>(), expected);
    EXPECT_EQ(by_complex(x, c10::complex<double>(1, zero)).item<double>(), expected);
    EXPECT_EQ(by_name(x).item<double>(), expected);
  }
  EXPECT_EQ(last_miss(in_words), "entry 0: constant 0 of the arguments is -0.0, compiled for 0.0");
  EXPECT_EQ(last_miss(by_complex),
            "entry 0: constant 0 of the arguments is (1.0, -0.0), compiled for (1.0, 0.0)");
  EXPECT_EQ(last_miss(by_name), "entry 0: guard_on returns -0.0, compiled for 0.0");
  for (const Stats& stats : {by_number.stats(), by_scalar.stats(), by_list.stats(),
                             by_complex.stats(), by_name.stats()}) {
    EXPECT_EQ(stats.variants, 2);
    EXPECT_EQ(stats.hits, 2);
  }
  // A number may change within an entry; complex ones, and what guard_on says, may not.
  for (const auto& [function, entries] : {std::pair(by_number.stats(), 1),
                                          {by_scalar.stats(), 1},
                                          {by_list.stats(), 1},
                                          {by_complex.stats(), 2},
                                          {by_name.stats(), 2}})
    EXPECT_EQ(function.entries, entries);
}

// A NaN differs from itself, but not from what the entry was compiled for.
TEST(Guards, ANanIsTheNumberItWasCompiledFor) {
  const T x = torch::ones({1});
  const auto by_number = compile([](const T& t, double n) { return t * n; });
  const auto by_complex = compile([](const T& t, const at::Scalar& n) { return t * n; });
  const auto by_list = compile([](const T& t, const std::vector<double>& n) { return t * n[0]; });
  const auto by_name =
      compile([](const T& t) { return t * kNan; }, {.guard_on = [] { return kNan; }});
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(by_number(x, kNan).isnan().all().item<bool>());
    EXPECT_TRUE(by_complex(x, c10::complex<double>(1, kNan)).isnan().all().item<bool>());
    EXPECT_TRUE(by_list(x, {kNan}).isnan().all().item<bool>());
    EXPECT_TRUE(by_name(x).isnan().all().item<bool>());
  }
  for (const Stats& stats :
       {by_number.stats(), by_complex.stats(), by_list.stats(), by_name.stats()}) {
    EXPECT_EQ(stats.compiles, 1);
    EXPECT_EQ(stats.hits, 2);
  }
}

TEST(Guards, NumbersThatDifferInTheLastDigitAreToldApartInWords) {
  const auto f = compile([](const T& t, double n) { return t * n; }, kFixed);
  f(torch::ones({1}), 0.1);
  f(torch::ones({1}), 0.1 + 1e-16);
  EXPECT_EQ(last_miss(f),
            "entry 0: constant 0 of the arguments is 0.1000000000000001, compiled for 0.1");
}

TEST(Guards, StructureOfTheArguments) {
  auto f = compile([](const std::vector<T>& xs) {
    T sum = torch::zeros({2});
    for (const T& x : xs) sum = sum + x;
    return sum;
  });
  EXPECT_EQ(f({torch::ones({2}), torch::ones({2})}).sum().item<float>(), 4);
  EXPECT_EQ(f({torch::ones({2})}).sum().item<float>(), 2);
  EXPECT_EQ(f.stats().entries, 2);
}

TEST(Guards, NestedArgumentsAreCalledByTheirPath) {
  auto f = compile([](int64_t n, const std::vector<T>& xs) { return xs[0] * n + xs[1]; }, kFixed);
  f(2, {torch::ones({2}), torch::ones({2})});
  f(2, {torch::ones({2}), torch::ones({1})});
  EXPECT_EQ(last_miss(f), "entry 0: argument 1[1]: size is [1], compiled for [2]");
}

TEST(Guards, TrainingFlagOfANamedModule) {
  Mlp net(4, 8, 2, 0.5);
  auto f = compile(net);
  T x = torch::ones({3, 4});
  f(x);
  net->eval();
  T first = f(x);
  EXPECT_EQ(last_miss(f), "entry 0: the module is in eval mode, compiled in training mode");
  EXPECT_TRUE(first.equal(net->forward(x)));
  net->train();
  f(x);
  EXPECT_EQ(f.stats().entries, 2);  // the first entry serves again
}

TEST(Guards, ReplacedParameterOfANamedModule) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net);
  T x = torch::ones({1, 2});
  f(x);
  net->weight = net->register_parameter("weight2", torch::zeros({2, 2}));
  EXPECT_TRUE(f(x).equal(net(x)));
  EXPECT_EQ(last_miss(f), "entry 0: the module has 3 parameters, compiled with 2");
}

TEST(Guards, ParameterWhoseDataMovesIsTheSameInput) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net);
  T x = torch::ones({1, 2});
  f(x);
  net->weight.set_data(torch::zeros({2, 2}));
  EXPECT_TRUE(f(x).equal(net->forward(x)));
  EXPECT_EQ(f.stats().entries, 1);
  net->to(torch::kDouble);
  T d = x.to(torch::kDouble);
  EXPECT_TRUE(f(d).equal(net->forward(d)));
  EXPECT_EQ(f.stats().entries, 2);
}

TEST(Guards, FrozenParameter) {
  torch::nn::Linear net(2, 2);
  auto f = compile(net);
  T x = torch::ones({1, 2});
  f(x).sum().backward();
  net->weight.requires_grad_(false);
  f(x).sum().backward();
  EXPECT_EQ(last_miss(f), "entry 0: param \"weight\": requires_grad is false, compiled for true");
}

TEST(Guards, SameTensorTwice) {
  auto f = compile([](const T& x, const T& y) { return x * y; });
  T a = torch::ones({2}), b = torch::ones({2});
  f(a, b);
  f(a, a);
  EXPECT_EQ(last_miss(f), "entry 0: argument 1 is the same tensor as argument 0");
  f(b, a);
  EXPECT_EQ(f.stats().entries, 2);
}

// An entry in which argument and closure are one tensor must not serve a call in which they are
// two.
TEST(Guards, ArgumentThatIsAlsoClosedOver) {
  T w = torch::full({2}, 3.0), other = torch::full({2}, 5.0);
  auto f = compile([w](const T& x) { return x * w; });
  EXPECT_EQ(f(w).sum().item<float>(), 18);
  EXPECT_EQ(f(other).sum().item<float>(), 30);
  EXPECT_EQ(last_miss(f), "entry 0: argument 0 is not the tensor that the function closes over");
  EXPECT_EQ(f(w).sum().item<float>(), 18);
  EXPECT_EQ(f(other).sum().item<float>(), 30);
  EXPECT_EQ(f.stats().entries, 2);
}

TEST(Guards, ReboundHandleAndNamedValue) {
  T mask = torch::ones({2}), first = mask;
  int mode = 1;
  auto f = compile([&](const T& x) { return x * mask * mode; },
                   {.closes_over = {&mask}, .guard_on = [&] { return mode; }});
  T x = torch::ones({2});
  EXPECT_EQ(f(x).sum().item<float>(), 2);
  mask = torch::zeros({2});
  EXPECT_EQ(f(x).sum().item<float>(), 0);
  EXPECT_EQ(last_miss(f),
            "entry 0: closes_over[0] refers to another tensor (f32[2]) than at the trace (f32[2])");
  mode = 2;
  f(x);
  EXPECT_EQ(f.stats().entries, 3);
}

TEST(Guards, OverflowRunsEagerlyOrIsAnError) {
  auto f = compile([](const T& x) { return x * 2; }, {.dynamic = Dynamic::never, .max_entries = 2});
  for (int64_t n = 1; n <= 4; ++n) EXPECT_EQ(f(torch::ones({n})).sum().item<float>(), 2.0f * n);
  EXPECT_EQ(f.stats().entries, 2);
  EXPECT_EQ(f.stats().eager_calls, 2);
  auto g = compile([](const T& x) { return x * 2; },
                   {.dynamic = Dynamic::never, .max_entries = 1, .on_overflow = OnOverflow::error});
  g(torch::ones({1}));
  const std::string name = "guards_test.cpp:" + std::to_string(__LINE__ - 3);
  try {
    g(torch::ones({2}));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 ("call: " + name +
                  " has 1 entry, max_entries allows 1; another would be needed because entry 0: "
                  "argument 0: size is [2], compiled for [1]\n"
                  "  remedy: raise Options::max_entries, or leave Options::dynamic at automatic, "
                  "so that an entry serves other sizes")
                     .c_str());
  }
}

/// The last line of what `fn(arguments...)` raises.
template <class Fn, class... Args>
std::string remedy_of(const Fn& fn, const Args&... arguments) {
  try {
    fn(arguments...);
  } catch (const UserError& error) {
    const std::string text = error.what();
    return text.substr(text.rfind("  remedy: "));
  }
  return "(no error)";
}

TEST(Guards, TheRemedyOfAnOverflowIsForWhatChanges) {
  Options one{.dynamic = Dynamic::never, .max_entries = 1, .on_overflow = OnOverflow::error};
  auto scale = compile([](const T& x, double s) { return x * s; }, one);
  const T x = torch::ones({2});
  scale(x, 0.5);
  EXPECT_EQ(remedy_of(scale, x, 0.25),
            "  remedy: raise Options::max_entries, or pass the number that changes as a tensor");
  // Both change: the number would still ask for another entry if the sizes were equal.
  EXPECT_EQ(remedy_of(scale, torch::ones({3}), 0.25),
            "  remedy: raise Options::max_entries, or pass the number that changes as a tensor");
  EXPECT_EQ(remedy_of(scale, torch::ones({3}), 0.5),
            "  remedy: raise Options::max_entries, or leave Options::dynamic at automatic, so that "
            "an entry serves other sizes");
  one.dynamic = Dynamic::automatic;
  auto branch = compile([](const T& x) { return x.size(0) > 3 ? x.sin() : x.cos(); }, one);
  branch(x);
  branch(torch::ones({3}));
  EXPECT_EQ(remedy_of(branch, torch::ones({4})),
            "  remedy: raise Options::max_entries, or let the function call the same ops at every "
            "size");
  EXPECT_EQ(remedy_of(branch, torch::ones({3}, torch::kDouble)),
            "  remedy: raise Options::max_entries, or make the calls alike");
  c10::InferenceMode mode;
  EXPECT_EQ(remedy_of(scale, x, 0.5),
            "  remedy: raise Options::max_entries, or make the calls in one mode of the thread");
}

TEST(Guards, AMissShowsTheNearestEntryAndAllThatDiffersFromIt) {
  auto f =
      compile([](const T& x, const T& y, int64_t n, double s) { return (x + y) * n * s; }, kFixed);
  const T a = torch::ones({2, 3});
  f(a, a.clone(), 1, 0.5);
  f(torch::ones({4, 4}), torch::ones({4, 4}), 2, 0.25);
  f(torch::ones({5, 4}), torch::ones({5, 4}), 2, 0.25);
  EXPECT_EQ(last_miss(f),
            "entry 1 is nearest: argument 0: size is [5, 4], compiled for [4, 4]; argument 1: size "
            "is [5, 4], compiled for [4, 4]");
  f(a, a.clone(), 1, 0.75);
  EXPECT_EQ(last_miss(f),
            "entry 0 is nearest: constant 1 of the arguments is 0.75, compiled for 0.5");
  f(torch::ones({2}), torch::ones({2}), 7, 7.0);
  EXPECT_NE(last_miss(f).find("; and 1 more"), std::string::npos) << last_miss(f);
  EXPECT_EQ(last_miss(f).find('\n'), std::string::npos);
}

TEST(Guards, WithoutAPlaceLeftAnEntryThatCannotServeAnyMoreIsStillReplaced) {
  T w = torch::ones({2});
  auto f =
      compile([&w](const T& x) { return x * w; }, {.dynamic = Dynamic::never, .max_entries = 1});
  f(torch::ones({2}));
  f(torch::ones({1}));
  f(torch::ones({1}));
  EXPECT_EQ(f.stats().eager_calls, 2);
  w = torch::full({2}, 3.0);
  EXPECT_EQ(f(torch::ones({2})).sum().item<float>(), 6);
  EXPECT_EQ(f(torch::ones({2})).sum().item<float>(), 6);
  EXPECT_EQ(f.stats().eager_calls, 2);
  EXPECT_EQ(f.stats().evictions, 1);
  EXPECT_EQ(f.stats().hits, 1);
}

TEST(Guards, PrepareCompilesAndRunsNothing) {
  T counter = torch::zeros({1});
  auto f = compile([&](const T& x) {
    counter.add_(1);
    return x * 2;
  });
  f.prepare(torch::ones({2}));
  EXPECT_EQ(counter.item<float>(), 0);
  EXPECT_EQ(f.stats().compiles, 1);
  f(torch::ones({2}));
  EXPECT_EQ(counter.item<float>(), 1);
  EXPECT_EQ(f.stats().hits, 1);
}

TEST(Guards, ExplainForecastsWithoutAnEntryAndReportDescribesThem) {
  torch::nn::Linear net(4, 2);
  auto f = compile(net, [&](const T& x) { return net(x).exp().sum(); });
  const std::string forecast = f.explain(torch::ones({3, 4}));
  EXPECT_NE(forecast.find("compiles a new entry (0 exist, 16 allowed)\n  because: first call"),
            std::string::npos)
      << forecast;
  EXPECT_NE(forecast.find("parameter \"weight\""), std::string::npos) << forecast;
  EXPECT_EQ(f.stats().entries, 0);
  f(torch::ones({3, 4}));
  EXPECT_NE(f.explain(torch::ones({3, 4})).find("runs entry 0, which exists"), std::string::npos);
  const std::string backend = backend_rounds() ? "llvm" : "eager";
  EXPECT_NE(f.report().find("entry 0: training entry on backend " + backend), std::string::npos)
      << f.report();
}

// docs/reference/differences.md: an argument is a stand-in, and no guard watches where it lies. A
// check would find what host code makes of it, so there are none here.
TEST(Guards, WhereAnArgumentLiesIsNotWatched) {
  const Options unchecked{.verify_every = 0};
  const T memory = torch::ones({8}), whole = torch::ones({4});
  const auto view = compile([](const T& x) { return x.is_view() ? x * 2 : x * 3; }, unchecked);
  EXPECT_EQ(view(memory.slice(0, 0, 4)).sum().item<float>(), 12) << "eager: 8";
  EXPECT_EQ(view(whole).sum().item<float>(), 12);
  const auto offset = compile([](const T& x) { return x + x.storage_offset(); }, unchecked);
  EXPECT_EQ(offset(memory.slice(0, 2, 6)).sum().item<float>(), 12);
  EXPECT_EQ(offset(memory.slice(0, 3, 7)).sum().item<float>(), 12) << "eager: 16";
  const auto alias =
      compile([](const T& x, const T& y) { return x.is_alias_of(y) ? x : x + y; }, unchecked);
  EXPECT_EQ(alias(memory.slice(0, 0, 4), memory.slice(0, 4, 8)).sum().item<float>(), 8)
      << "eager: 4";
  EXPECT_EQ(view.stats().entries + offset.stats().entries + alias.stats().entries, 3);
  const auto checked = compile([](const T& x) { return x + x.storage_offset(); });
  checked(memory.slice(0, 2, 6));
  EXPECT_THROW(checked(memory.slice(0, 3, 7)), UserError);
}

TEST(Guards, AnArgumentThatTheFunctionReshapesStaysWhereItLies) {
  const auto turned = compile([](const T& x) {
    x.t_();
    return x * 2;
  });
  const T memory = torch::arange(20.);
  const auto part = [&](int64_t from) { return memory.narrow(0, from, 6).view({2, 3}); };
  for (const int64_t from : {0, 4, 4, 10}) {
    const T x = part(from), expected = part(from).t();
    EXPECT_TRUE(turned(x).equal(expected * 2));
    EXPECT_TRUE(x.equal(expected)) << x;
    EXPECT_EQ(x.storage_offset(), from);
  }
  EXPECT_EQ(turned.stats().variants, 3);
  // What stays as it is may lie anywhere.
  const auto still = compile([](const T& x) { return x.t() * 2; });
  for (const int64_t from : {0, 4}) still(part(from));
  EXPECT_EQ(still.stats().variants, 1);
}

TEST(Guards, AnArgumentThatGetsTheMemoryOfAnother) {
  const auto given = compile([](const T& x, const T& y) {
    x.set_(y);
    return x + 1;
  });
  const T memory = torch::arange(20.);
  for (const int64_t from : {0, 7}) {
    const T x = torch::ones({4}), y = memory.narrow(0, from, 4);
    EXPECT_TRUE(given(x, y).equal(y + 1));
    EXPECT_TRUE(x.equal(y)) << x;
    EXPECT_EQ(x.storage_offset(), from);
  }
}

TEST(Guards, CompiledFunctionInsideACompiledFunctionIsInlined) {
  auto inner = compile([](const T& x) { return x.exp(); });
  auto outer = compile([&](const T& x) { return inner(x) * 2; });
  T x = torch::ones({2}).set_requires_grad(true);
  EXPECT_TRUE(outer(x).equal(x.exp() * 2));
  EXPECT_EQ(inner.stats().traces, 0);
}

}  // namespace
}  // namespace tandem::test
