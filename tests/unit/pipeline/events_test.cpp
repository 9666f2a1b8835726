/// Progress, cancellation, log lines and the sink for warnings.
#include "support/environment.h"
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::test {
namespace {

using T = at::Tensor;
using test::EnvironmentVariable;
using test::error_text;

const std::vector<std::string> kStages = {"trace",     "signature", "joint", "passes",
                                          "partition", "lower",     "lower"};

TEST(Events, EveryStageInOrderUpToOne) {
  std::vector<std::string> stages;
  std::vector<double> done;
  auto f = compile([](const T& x) { return x.exp().sum(); }, {.on_event = [&](const Event& event) {
                     stages.push_back(event.stage);
                     done.push_back(event.done);
                     return true;
                   }});
  T x = torch::ones({2}).set_requires_grad(true);
  f.explain(x);
  EXPECT_TRUE(stages.empty());  // a forecast is no compile
  f(x);
  EXPECT_EQ(stages, kStages);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.front(), 0.0);
  EXPECT_EQ(done.back(), 1.0);
  f(x);
  EXPECT_EQ(stages.size(), kStages.size());
  f.prepare(torch::ones({3}));
  EXPECT_EQ(stages.size(), 2 * kStages.size());
}

// At each of its stages in turn: an error, nothing changed, nothing remembered.
TEST(Events, FalseCancelsAndTheNextCallCompilesAgain) {
  T counter = torch::zeros({1});
  int64_t cancel_at = 0, seen = 0;
  auto f = compile(
      [&](const T& x) {
        counter.add_(1);
        return torch::dropout(x, 0.5, true).sum();
      },
      {.on_event = [&](const Event&) { return seen++ != cancel_at; }});
  T x = torch::ones({2}).set_requires_grad(true);
  const T state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  for (size_t i = 0; i < kStages.size(); ++i) {
    cancel_at = static_cast<int64_t>(i);
    seen = 0;
    EXPECT_EQ(error_text<UserError>([&] { f(x); }),
              kStages[i] + ": cancelled by on_event at stage " + kStages[i] +
                  "\n  remedy: none needed; nothing has changed, and the next call compiles again");
    EXPECT_EQ(f.stats().entries, 0);
    EXPECT_EQ(counter.item<float>(), 0);
    EXPECT_EQ((torch::ones({2}) + 1).sum().item<float>(), 4);  // no longer tracing
  }
  EXPECT_TRUE(state.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
  cancel_at = -1;
  f(x).backward();
  EXPECT_EQ(counter.item<float>(), 1);
  EXPECT_EQ(f.stats().compiles, 1);
}

TEST(Events, WhatItThrowsPassesThroughAndIsNotRemembered) {
  bool broken = true, ours = false;
  auto f = compile([](const T& x) { return x * 2; }, {.on_event = [&](const Event& event) {
                     if (broken && ours) throw UserError("mine", "stop");
                     if (broken && event.stage == "joint") throw std::logic_error("no more");
                     return true;
                   }});
  T x = torch::ones({2});
  EXPECT_EQ(error_text<std::logic_error>([&] { f(x); }), "no more");
  ours = true;
  EXPECT_EQ(error_text<UserError>([&] { f(x); }), "mine: stop");
  broken = false;
  EXPECT_EQ(f(x).sum().item<float>(), 4);
}

// The trace is open during some events: what the callback computes must not end up in it.
TEST(Events, TheCallbackMayCompute) {
  T sum = torch::zeros({1});
  auto f = compile([](const T& x) { return x * 2; }, {.on_event = [&](const Event&) {
                     sum = sum + 1;
                     return sum.item<float>() > 0;
                   }});
  f(torch::ones({2}));
  EXPECT_EQ(sum.item<float>(), static_cast<float>(kStages.size()));
  EXPECT_EQ(f.entries()[0].forward().node_count(), 1);
}

TEST(Events, ACallFromTheCallbackIsAnErrorNotADeadlock) {
  Compiled<T(T)> f;
  std::string text;
  f = compile([](const T& x) { return x * 2; }, {.on_event = [&](const Event& event) {
                if (event.stage == "lower" && text.empty()) {
                  text = error_text<UserError>([&] { f(torch::ones({2})); });
                }
                return true;
              }});
  f(torch::ones({2}));
  EXPECT_EQ(text,
            "call: the function is called while this thread compiles it for such a call\n"
            "  cause:  on_event calls the compiled function\n"
            "  remedy: call the function itself there");
}

/// Collects what would go to stderr.
class Lines {
 public:
  Lines() : before_(set_warning_sink([this](const std::string& line) { all.push_back(line); })) {}
  ~Lines() { set_warning_sink(before_); }
  std::vector<std::string> all;

 private:
  WarningSink before_;
};

TEST(Log, InfoHasALinePerMissAndPerCompile) {
  Lines lines;
  EnvironmentVariable level("TANDEM_LOG", "info");
  auto f = compile([](const T& x) { return x * 2; },
                   {.dynamic = Dynamic::never, .max_entries = 1, .name = "twice"});
  f(torch::ones({2}));
  ASSERT_EQ(lines.all.size(), 2);
  EXPECT_EQ(lines.all[0], "tandem: info: twice: miss: first call: no entry yet");
  EXPECT_EQ(lines.all[1].find("tandem: info: twice: compiled an inference entry in "), 0)
      << lines.all[1];
  EXPECT_NE(lines.all[1].find(" ms: 1 forward and 0 backward nodes"), std::string::npos);
  f(torch::ones({2}));
  EXPECT_EQ(lines.all.size(), 2);
  f(torch::ones({3}));
  f(torch::ones({3}));
  ASSERT_EQ(lines.all.size(), 5);  // two misses, one warning
  EXPECT_EQ(lines.all[2],
            "tandem: info: twice: miss: entry 0: argument 0: size is [3], compiled for [2]");
  EXPECT_EQ(lines.all[3],
            "tandem: warning: calls run eagerly: twice has 1 entry, max_entries allows 1; another "
            "would be needed because entry 0: argument 0: size is [3], compiled for [2]\n"
            "  remedy: raise Options::max_entries, or leave Options::dynamic at automatic, so that "
            "an entry serves other sizes");
}

TEST(Log, InfoHasALinePerSetOfSizes) {
  Lines lines;
  EnvironmentVariable level("TANDEM_LOG", "info");
  auto f = compile([](const T& x, const T& y, int64_t n) { return x.size(1) > 8 ? x * y : x + n; },
                   {.name = "sizes"});
  const auto call = [&](int64_t rows, int64_t columns, int64_t n) {
    f(torch::ones({rows, columns}), torch::ones({columns}), n);
  };
  call(2, 8, 1);
  call(7, 8, 1);
  call(7, 5, 3);
  call(7, 8, 1);
  ASSERT_EQ(lines.all.size(), 4);
  EXPECT_EQ(lines.all[2].find("tandem: info: sizes: sizes 1 of entry 0: argument 0 f32[7, 8], in "),
            0)
      << lines.all[2];
  EXPECT_EQ(lines.all[3].find("tandem: info: sizes: sizes 2 of entry 0: argument 0 f32[7, 5], "
                              "argument 1 f32[5], constant 0 is 3, in "),
            0)
      << lines.all[3];
  call(7, 9, 1);
  ASSERT_EQ(lines.all.size(), 6);
  const std::string miss = lines.all[4].substr(0, lines.all[4].find(" ("));
  EXPECT_EQ(miss,
            "tandem: info: sizes: miss: entry 0: argument 0: size is [7, 9], compiled for [7, 8]; "
            "argument 1: size is [9], compiled for [8]; it calls mul where entry 0 calls add");
  EXPECT_NE(lines.all[4].find("events_test.cpp:"), std::string::npos);
  EXPECT_EQ(f.stats().misses.back().reason + "",
            lines.all[4].substr(std::string("tandem: info: sizes: miss: ").size()));
}

/// What a function is called in its report.
template <class Handle>
std::string name_of(const Handle& handle) {
  const std::string report = handle.report();
  return report.substr(0, report.find('\n'));
}

struct DoublerImpl : torch::nn::Module {
  T forward(const T& x) { return x * 2; }
};
TORCH_MODULE(Doubler);

TEST(Names, AFunctionIsCalledByItsNameItsModulesOrItsLine) {
  const auto twice = [](const T& x) { return x * 2; };
  const std::string here = "events_test.cpp:" + std::to_string(__LINE__ + 1);
  EXPECT_EQ(name_of(compile(twice)), here);
  const std::string options_here = "events_test.cpp:" + std::to_string(__LINE__ + 1);
  EXPECT_EQ(name_of(compile(twice, {.max_entries = 2})), options_here);
  const Options elsewhere;
  const std::string call = "events_test.cpp:" + std::to_string(__LINE__ + 1);
  EXPECT_EQ(name_of(compile<T(T)>(twice, elsewhere)), call);
  const std::string boxed = "events_test.cpp:" + std::to_string(__LINE__ + 1);
  EXPECT_EQ(name_of(compile_boxed([](std::vector<T> list) { return list; })), boxed);
  EXPECT_EQ(name_of(compile(twice, {.name = "twice"})), "twice");
  Doubler doubler;
  torch::nn::Linear linear(2, 2);
  EXPECT_EQ(name_of(compile(doubler)), "Doubler");
  EXPECT_EQ(name_of(compile(linear, twice)), "Linear");
  EXPECT_EQ(name_of(compile(std::tuple{doubler, linear}, twice)), "Doubler+Linear");
  EXPECT_EQ(name_of(compile(twice, {.modules = {linear.ptr()}})), "Linear");
  EXPECT_EQ(name_of(compile(linear, twice, {.name = "step"})), "step");
}

TEST(Names, ExplainSaysIt) {
  auto f = compile([](const T& x) { return x * 2; }, {.name = "twice"});
  EXPECT_EQ(f.explain(torch::ones({2})).find("A call of twice with these arguments\n"), 0);
}

TEST(Log, DebugHasALinePerStageAndPass) {
  Lines lines;
  EnvironmentVariable level("TANDEM_LOG", "debug");
  const Options options{.backend = "llvm"};  // which asks for decompositions, a pass of its own
  compile([](const T& x) { return x * 2; }, options)(torch::ones({2}));
  int stages = 0, passes = 0;
  for (const std::string& line : lines.all) {
    if (line.find("tandem: debug: ") != 0 || line.find(" took ") == std::string::npos) continue;
    ++(line.find(": passes/") != std::string::npos ? passes : stages);
  }
  EXPECT_EQ(stages, 6);
  EXPECT_EQ(passes, 7);
}

TEST(Log, UnsupportedRunsEagerlyWithOneWarningPerFunction) {
  Lines lines;
  for (int i = 0; i < 2; ++i) {
    auto f = compile([](const T& x) { return std::get<0>(at::unique_dim(x, 0)); },
                     {.on_unsupported = OnUnsupported::eager});
    f(torch::ones({2}));
    f(torch::ones({2}));
    EXPECT_EQ(f.stats().traces, 1);
    EXPECT_EQ(f.stats().eager_calls, 2);
  }
  ASSERT_EQ(lines.all.size(), 2);
  EXPECT_EQ(lines.all[0].find("tandem: warning: events_test.cpp:"), 0);
  EXPECT_NE(lines.all[0].find(" runs eagerly: trace: "), std::string::npos) << lines.all[0];
}

TEST(Log, ASinkMayCallTandemReplaceItselfAndThrow) {
  int lines = 0;
  WarningSink before = set_warning_sink([&](const std::string&) {
    ++lines;
    if (lines > 1) return;
    set_warning_sink(set_warning_sink({}));  // takes the lock twice
    EnvironmentVariable unknown("TANDEM_NO_SUCH_NAME_A", "1");
    compile([](const T& x) { return x * 2; });  // warns, from inside a warning
  });
  {
    EnvironmentVariable unknown("TANDEM_NO_SUCH_NAME_B", "1");
    compile([](const T& x) { return x * 2; });
  }
  EXPECT_EQ(lines, 2);
  set_warning_sink([](const std::string&) { throw std::runtime_error("broken sink"); });
  ::testing::internal::CaptureStderr();
  {
    EnvironmentVariable unknown("TANDEM_NO_SUCH_NAME_C", "1");
    EXPECT_EQ(compile([](const T& x) { return x * 2; })(torch::ones({1})).item<float>(), 2);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("TANDEM_NO_SUCH_NAME_C"),
            std::string::npos);
  set_warning_sink(before);
}

}  // namespace
}  // namespace tandem::test
