// What a check says, in whole: the op as the program calls it, what it is told now, the line, why,
// and what to do.
#include "support/error_text.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

namespace tandem {
namespace {

using test::error_text;
using T = at::Tensor;

#define HERE (std::string(__FILE__) + ":" + std::to_string(__LINE__))

const char* const kStart = "call: the function is not what was compiled: ";

/// Of the second call, after the change.
template <class F>
std::string text_after(const std::function<void()>& change, F function) {
  auto compiled = compile<T(T)>(std::move(function));
  const T x = torch::ones({3, 2});
  compiled(x);
  change();
  return error_text<UserError>([&] { compiled(x); });
}

const char* const kPassOrGuard =
    "\n  remedy:   pass it as an argument, or guard it (Options::guard_on); reset() compiles anew";
const char* const kDecideOutside =
    "\n  remedy:   pass what it depends on as an argument, or guard it (Options::guard_on); "
    "reset() "
    "compiles anew";

TEST(CheckErrors, TheModeOfAModule) {
  torch::nn::Dropout drop;
  std::string line;
  const auto body = [&](const T& x) {
    line = HERE;
    return drop(x);
  };
  const std::string text = text_after([&] { drop->eval(); }, body);
  const std::string next = line.substr(0, line.rfind(':') + 1) +
                           std::to_string(std::stoi(line.substr(line.rfind(':') + 1)) + 1);
  EXPECT_EQ(text, kStart + ("dropout train=true, now false\n  at:       " + next) +
                      "\n  cause:    a module was switched by eval()"
                      "\n  remedy:   name it: compile(net, fn), which guards its mode; reset() "
                      "compiles anew");
}

TEST(CheckErrors, ACapturedNumber) {
  double factor = 2;
  std::string line;
  const auto body = [&](const T& x) { return line = HERE, x * factor; };
  EXPECT_EQ(
      text_after([&] { factor = 3; }, body),
      kStart + ("mul other=2, now 3\n  at:       " + line) +
          "\n  cause:    what host code gives it has changed: a captured number, an option of "
          "a module" +
          kPassOrGuard);
}

TEST(CheckErrors, ATensorVariable) {
  T mask = torch::ones({2});
  const T before = mask;
  std::string line;
  const auto body = [&](const T& x) { return line = HERE, x * mask; };
  EXPECT_EQ(text_after([&] { mask = torch::zeros({2}); }, body),
            kStart + ("mul reads another tensor as other (f32[2])\n  at:       " + line) +
                "\n  cause:    a tensor variable or a member of a module was assigned again, or a "
                "batch is captured"
                "\n  remedy:   pass the tensor as an argument, write it in place (copy_), or name "
                "its variable (Options::closes_over); reset() compiles anew");
}

TEST(CheckErrors, AListThatGrows) {
  std::vector<T> history{torch::ones({2})};
  std::string line;
  const auto body = [&](const T& x) { return line = HERE, x + torch::cat(history).sum(); };
  EXPECT_EQ(text_after([&] { history.push_back(torch::ones({2})); }, body),
            kStart + ("cat tensors.size()=1, now 2\n  at:       " + line) +
                "\n  cause:    a list that host code keeps has another length" + kPassOrGuard);
}

TEST(CheckErrors, ADecision) {
  bool sine = true;
  std::string line;
  const auto body = [&](const T& x) { return line = HERE, sine ? x.sin() : x.cos(); };
  EXPECT_EQ(text_after([&] { sine = false; }, body),
            kStart + ("it called sin, now cos\n  at:       " + line) +
                "\n  cause:    host code decides something else: by a flag, a counter, a random "
                "number, a state that was not there before" +
                kDecideOutside);
}

TEST(CheckErrors, WhatAnOpReads) {
  bool once = true;
  std::string line;
  const auto body = [&](const T& x) {
    T y = x.sin();
    return line = HERE, y * (once ? x : y);
  };
  EXPECT_EQ(text_after([&] { once = false; }, body),
            kStart + ("an op reads something else\n  at:       " + line) +
                "\n  compiled: %1: f32[3, 2] = aten.mul.Tensor(%0, %arg0)"
                "\n  now:      %1: f32[3, 2] = aten.mul.Tensor(%0, %0)"
                "\n  cause:    host code decides something else than when it was compiled" +
                kDecideOutside);
}

TEST(CheckErrors, StateOfTheTrace) {
  T state;
  const auto body = [&](const T& x) {
    state = state.defined() ? state + x : x + 0;
    return state * 2;
  };
  EXPECT_EQ(text_after([] {}, body).substr(0, 75),
            "trace: aten.add.Tensor was given a tensor that belongs to a trace which is ");
}

}  // namespace
}  // namespace tandem
