// Every form of compile: the handle has the expected type, and a call does what the function does.
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>

namespace forms {

struct Batch {
  at::Tensor x;
  std::optional<at::Tensor> mask;
};
TANDEM_STRUCT(Batch, x, mask)

}  // namespace forms

namespace tandem {
namespace {

using T = at::Tensor;

template <class Signature, class Handle>
constexpr bool kIs = std::is_same_v<std::remove_cvref_t<Handle>, Compiled<Signature>>;

struct NetImpl : torch::nn::Module {
  /// Of whole numbers, so that no backend rounds.
  NetImpl() : fc(register_module("fc", torch::nn::Linear(3, 2))) {
    const torch::NoGradGuard no_grad;
    fc->weight.copy_(torch::arange(6).reshape({2, 3}));
    fc->bias.fill_(1);
  }
  T forward(const T& x) { return fc->forward(x); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

/// `forward` with a default argument, and an overload.
struct OverloadedImpl : torch::nn::Module {
  T forward(const T& x, double factor = 2) { return x * factor; }
  T forward(const T& x, const T& y) { return x + y; }
};
TORCH_MODULE(Overloaded);

T plain(T x, int64_t n) { return x * n; }
T plain_noexcept(const T& x) noexcept { return x + 1; }
T overloaded(const T& x) { return x.neg(); }
T overloaded(const T& x, int64_t n) { return x * n; }

T sample() { return torch::arange(6, torch::kFloat).reshape({2, 3}); }

TEST(CompileForms, ALambda) {
  T w = torch::full({3}, 2.0);
  auto fn = compile([=](const T& x) { return x.neg() * w; });
  static_assert(kIs<T(T), decltype(fn)>);

  EXPECT_TRUE(at::equal(fn(sample()), sample().neg() * w));
}

TEST(CompileForms, ALambdaWithoutArguments) {
  T w = torch::full({3}, 2.0);
  auto fn = compile([&] { return w.neg(); });
  static_assert(kIs<T(), decltype(fn)>);

  EXPECT_TRUE(at::equal(fn(), w.neg()));
  EXPECT_FALSE(fn.explain().empty());
}

TEST(CompileForms, ALambdaThatReturnsNothing) {
  auto fn = compile([](T x) { x.add_(1); });
  static_assert(kIs<void(T), decltype(fn)>);
  T x = sample();

  fn(x);

  EXPECT_TRUE(at::equal(x, sample() + 1));
}

TEST(CompileForms, AMutableLambda) {
  auto fn = compile([runs = 0](T x) mutable { return x + ++runs; });
  static_assert(kIs<T(T), decltype(fn)>);

  EXPECT_TRUE(at::equal(fn(sample()), sample() + 1));
}

TEST(CompileForms, ALambdaThatCannotBeCopied) {
  auto factor = std::make_unique<double>(3);
  auto fn = compile([factor = std::move(factor)](const T& x) { return x * *factor; });

  EXPECT_TRUE(at::equal(fn(sample()), sample() * 3));
}

TEST(CompileForms, ALambdaThatReturnsAReference) {
  T w = torch::ones({2});
  auto fn = compile([&w](const T&) -> const T& { return w; });
  static_assert(kIs<T(T), decltype(fn)>);

  EXPECT_TRUE(fn(sample()).is_same(w));
}

TEST(CompileForms, AParameterByRvalueReference) {
  auto fn = compile([](T&& x, std::vector<T>&& more) { return x + more.at(0); });
  static_assert(kIs<T(T, std::vector<T>), decltype(fn)>);

  EXPECT_TRUE(at::equal(fn(sample(), {sample()}), sample() * 2));
}

TEST(CompileForms, Functions) {
  auto by_name = compile(plain);
  auto by_pointer = compile(&plain);
  auto not_throwing = compile(plain_noexcept);
  auto named = compile<T(T, int64_t)>(plain);
  static_assert(kIs<T(T, int64_t), decltype(by_name)> && kIs<T(T, int64_t), decltype(by_pointer)>);
  static_assert(kIs<T(T), decltype(not_throwing)> && kIs<T(T, int64_t), decltype(named)>);

  EXPECT_TRUE(at::equal(by_name(sample(), 2), sample() * 2));
  EXPECT_TRUE(at::equal(by_pointer(sample(), 3), sample() * 3));
  EXPECT_TRUE(at::equal(not_throwing(sample()), sample() + 1));
  EXPECT_TRUE(at::equal(named(sample(), 4), sample() * 4));
}

TEST(CompileForms, OneOfSeveralOverloads) {
  auto one = compile<T(const T&)>(overloaded);
  auto other = compile<T(const T&, int64_t)>(overloaded, {.backend = "eager"});
  auto torch_function = compile<T(const T&)>(torch::neg);
  static_assert(kIs<T(T), decltype(one)> && kIs<T(T, int64_t), decltype(other)>);

  EXPECT_TRUE(at::equal(one(sample()), sample().neg()));
  EXPECT_TRUE(at::equal(other(sample(), 2), sample() * 2));
  EXPECT_TRUE(at::equal(torch_function(sample()), sample().neg()));
}

TEST(CompileForms, AGenericLambdaWithItsSignature) {
  T w = torch::ones({3});
  auto fn = compile<T(T, int64_t)>([](auto x, auto n) { return x * n; });
  auto closing_over =
      compile<T(T, int64_t)>([w](auto x, auto n) { return x * n * w; }, {.backend = "eager"});
  static_assert(kIs<T(T, int64_t), decltype(fn)>);

  EXPECT_TRUE(at::equal(fn(sample(), 2), sample() * 2));
  EXPECT_TRUE(at::equal(closing_over(sample(), 2), sample() * 2));
}

TEST(CompileForms, AStdFunctionAndACompiled) {
  auto from_function = compile(std::function<T(T)>([](T x) { return x.abs(); }));
  auto twice = compile(from_function, {.max_entries = 2});
  static_assert(kIs<T(T), decltype(from_function)> && kIs<T(T), decltype(twice)>);

  EXPECT_TRUE(at::equal(from_function(sample()), sample().abs()));
  EXPECT_TRUE(at::equal(twice(sample()), sample().abs()));
}

TEST(CompileForms, Boxed) {
  auto fn =
      compile_boxed([](std::vector<T> v) { return std::vector<T>{v.at(0) + v.at(1), v.at(1)}; });
  static_assert(kIs<std::vector<T>(std::vector<T>), decltype(fn)>);

  std::vector<T> results = fn({sample(), sample()});

  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(at::equal(results[0], sample() * 2));
}

TEST(CompileForms, ATensorList) {
  auto fn =
      compile([](at::TensorList list, at::IntArrayRef dims) { return torch::cat(list).sum(dims); });
  static_assert(kIs<T(at::TensorList, at::IntArrayRef), decltype(fn)>);
  std::vector<T> tensors{sample(), sample()};
  std::vector<int64_t> dims{0};

  EXPECT_TRUE(at::equal(fn(tensors, dims), torch::cat(tensors).sum(0)));
}

TEST(CompileForms, StructsAndNesting) {
  using Out = std::map<std::string, std::vector<T>>;
  auto fn = compile([](const forms::Batch& batch, const std::array<double, 2>& factors) {
    T y = batch.mask ? batch.x * *batch.mask : batch.x;
    return std::pair(forms::Batch{y * factors[0], std::nullopt}, Out{{"y", {y, y * factors[1]}}});
  });
  static_assert(
      kIs<std::pair<forms::Batch, Out>(forms::Batch, std::array<double, 2>), decltype(fn)>);

  auto [batch, out] = fn({sample(), torch::zeros({3})}, {2.0, 3.0});
  auto [bare, bare_out] = fn({sample(), std::nullopt}, {2.0, 3.0});

  EXPECT_TRUE(at::equal(batch.x, torch::zeros({2, 3})));
  EXPECT_TRUE(at::equal(bare.x, sample() * 2));
  EXPECT_TRUE(at::equal(bare_out.at("y").at(1), sample() * 3));
}

TEST(CompileForms, AModule) {
  Net net;
  std::shared_ptr<NetImpl> pointer = net.ptr();
  const Net constant = net;
  auto holder = compile(net);
  auto shared = compile(pointer, {.backend = "eager"});
  auto from_constant = compile(constant, Options{});
  static_assert(kIs<T(T), decltype(holder)> && kIs<T(T), decltype(shared)>);

  EXPECT_TRUE(at::equal(holder(sample()), net->forward(sample())));
  EXPECT_TRUE(at::equal(shared(sample()), net->forward(sample())));
  EXPECT_TRUE(at::equal(from_constant(sample()), net->forward(sample())));
}

TEST(CompileForms, AModuleWithItsSignature) {
  Overloaded net;
  // The first leaves the default to C++.
  auto defaulted = compile<T(const T&)>(net);
  auto both = compile<T(const T&, const T&)>(net);
  static_assert(kIs<T(T), decltype(defaulted)> && kIs<T(T, T), decltype(both)>);

  EXPECT_TRUE(at::equal(defaulted(sample()), sample() * 2));
  EXPECT_TRUE(at::equal(both(sample(), sample()), sample() * 2));
}

TEST(CompileForms, ASequential) {
  const auto linear = [](int64_t from, int64_t to) {
    return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
  };
  torch::nn::Sequential net(linear(3, 4), torch::nn::ReLU(), linear(4, 2));
  auto fn = compile(net);
  auto named = compile<T(T)>(net, {.backend = "eager"});
  static_assert(kIs<T(T), decltype(fn)> && kIs<T(T), decltype(named)>);

  EXPECT_TRUE(at::equal(fn(sample()), net->forward(sample())));
  EXPECT_TRUE(at::equal(named(sample()), net->forward(sample())));
}

TEST(CompileForms, LibtorchModulesWithManyArguments) {
  torch::nn::ConvTranspose2d up(torch::nn::ConvTranspose2dOptions(1, 1, 2));
  torch::nn::LSTM lstm(3, 2);
  torch::nn::MultiheadAttention attention(4, 2);
  using Attended = std::tuple<T, T>;
  using Recurrent = std::tuple<T, std::tuple<T, T>>;
  auto full = compile(up);
  auto short_form = compile<T(T)>(up);
  auto recurrent = compile(lstm);
  auto attend = compile(attention);
  auto attend_short = compile<Attended(T, T, T)>(attention);
  static_assert(kIs<T(T, std::optional<at::IntArrayRef>), decltype(full)>);
  static_assert(kIs<Recurrent(T, std::optional<std::tuple<T, T>>), decltype(recurrent)>);
  static_assert(kIs<Attended(T, T, T, T, bool, T, bool), decltype(attend)>);
  static_assert(kIs<Attended(T, T, T), decltype(attend_short)>);

  T image = torch::ones({1, 1, 3, 3});
  EXPECT_TRUE(at::equal(short_form(image), up->forward(image)));
  EXPECT_TRUE(at::equal(full(image, std::nullopt), up->forward(image)));
}

TEST(CompileForms, AFunctionThatUsesModules) {
  Net gen, disc;
  std::shared_ptr<NetImpl> pointer = disc.ptr();
  auto one = compile(gen, [&](const T& x, const T& y) { return gen->forward(x) * y; });
  auto tuple = compile(std::tuple{gen, disc},
                       [&](const T& x) { return gen->forward(x) + disc->forward(x); });
  auto mixed =
      compile(std::tuple{gen, pointer}, [&](const T& x) { return disc->forward(x); }, Options{});
  auto single =
      compile(std::tuple{gen}, [&](const T& x) { return gen->forward(x); }, {.backend = "eager"});
  auto named = compile<T(T)>(gen, [&](auto x) { return gen->forward(x); }, {.backend = "eager"});
  auto compiled = compile(gen, one, {.max_entries = 3});
  static_assert(kIs<T(T, T), decltype(one)> && kIs<T(T), decltype(tuple)> &&
                kIs<T(T), decltype(mixed)>);
  static_assert(kIs<T(T), decltype(single)> && kIs<T(T), decltype(named)> &&
                kIs<T(T, T), decltype(compiled)>);

  T y = torch::ones({2, 2});
  EXPECT_TRUE(at::equal(one(sample(), y), gen->forward(sample())));
  EXPECT_TRUE(at::equal(tuple(sample()), gen->forward(sample()) + disc->forward(sample())));
  EXPECT_TRUE(at::equal(mixed(sample()), disc->forward(sample())));
  EXPECT_TRUE(at::equal(named(sample()), gen->forward(sample())));
}

template <class... Args>
concept Compilable = requires(Args... args) { compile(args...); };

// Programs that ask "can this be compiled?" must get an answer, not an error.
TEST(CompileForms, TheSignatureTraitsAreFriendlyToOverloadResolution) {
  auto generic = [](auto x) { return x; };
  auto typed = [](T x) { return x; };
  static_assert(Compilable<decltype(typed)> && Compilable<decltype(typed), Options>);
  static_assert(!Compilable<decltype(generic)>);
  static_assert(!Compilable<int> && !Compilable<std::string> && !Compilable<Overloaded>);
  static_assert(!Compilable<std::shared_ptr<torch::nn::Module>>);
  auto bound = std::bind(typed, T());
  static_assert(!Compilable<decltype(bound)> && !Compilable<decltype(&NetImpl::forward)>);
  static_assert(!Compilable<decltype(typed), int> && !Compilable<Net, decltype(typed), int>);
  static_assert(!Compilable<> && !Compilable<decltype(typed), decltype(typed)>);
  static_assert(!Compilable<Options> && !Compilable<Net, decltype(generic)>);
}

TEST(CompileForms, ExportJoint) {
  Net net;
  T x = sample(), y = torch::ones({2, 2});
  auto user = [&](const T& a, const T& b) { return (net->forward(a) * b).sum(); };

  Joint typed = export_joint(user, std::tuple{x, y});
  Joint generic = export_joint([](auto a, auto n) { return a * n; }, std::tuple{x, int64_t{2}});
  Joint module = export_joint(net, std::tuple{x});
  Joint list = export_joint([](at::TensorList l) { return torch::cat(l); },
                            std::tuple{std::vector<T>{x, x}});

  EXPECT_EQ(typed.lifted.size(), 2u);
  EXPECT_EQ(typed.signature.inputs.size(), 4u);
  EXPECT_EQ(generic.signature.inputs.size(), 1u);
  EXPECT_EQ(module.lifted.size(), 2u);
  EXPECT_EQ(list.signature.inputs.size(), 2u);
}

TEST(CompileForms, SplitAndLowerGiveACallable) {
  T x = sample().requires_grad_();
  Joint joint = export_joint([](const T& a) { return a.neg(); }, std::tuple{x});

  Boxed call = lower(split(joint, {.partitioner = default_partition}), backend("eager"));

  EXPECT_TRUE(at::equal(call({x}).at(0), x.neg()));
}

TEST(Compiled, IsAHandleThatCopiesShare) {
  Compiled<T(T)> handle;
  EXPECT_FALSE(handle);
  auto fn = compile([](const T& x) { return x + 1; });
  handle = fn;
  EXPECT_TRUE(handle && handle == fn);

  handle(sample());

  EXPECT_EQ(fn.stats().calls, 1);
  EXPECT_EQ(fn.entries().size(), 1u);
  handle.reset();
  EXPECT_TRUE(fn.entries().empty());
}

TEST(Compiled, PrintsAsOneLine) {
  auto text = [](const auto& handle) {
    std::ostringstream out;
    out << handle;
    return out.str();
  };
  auto fn = compile([](const T& x) { return x + 1; });
  EXPECT_EQ(text(Compiled<T(T)>()), "Compiled(empty)");
  EXPECT_EQ(text(fn), "Compiled(0 entries, 0 calls)");

  fn(sample());

  EXPECT_EQ(text(fn), "Compiled(1 entry, 1 call)");
}

TEST(Compiled, PrepareCompilesAndRunsNothing) {
  auto fn = compile([](const T& x) { x.add_(1); });
  T x = sample();

  fn.prepare(x);

  EXPECT_EQ(fn.stats().compiles, 1);
  EXPECT_EQ(fn.stats().calls, 0);
  EXPECT_TRUE(at::equal(x, sample()));
}

TEST(Compiled, ExplainWithoutArgumentsIsTheReport) {
  auto fn = compile([](const T& x) { return x + 1; });
  fn(sample());
  EXPECT_EQ(fn.explain(), fn.report());
  EXPECT_FALSE(fn.explain(sample()).empty());
}

TEST(Checkpoint, OutsideATraceIsAPlainCall) {
  auto fn = [](const T& x, int64_t n) { return x * n; };
  auto policy = [](const ir::Node&) { return Recompute::must_save; };

  EXPECT_TRUE(at::equal(checkpoint(fn, sample(), 2), sample() * 2));
  EXPECT_TRUE(at::equal(checkpoint({.policy = policy}, fn, sample(), 2), sample() * 2));
}

TEST(Version, IsThatOfTheLibrary) { EXPECT_EQ(version(), "0.1.0"); }

}  // namespace
}  // namespace tandem
