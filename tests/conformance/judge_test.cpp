#include "conformance/judge.h"

#include "conformance/inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <stdexcept>

/// The judge itself: it must see each kind of difference. A liar is a program whose compiled form
/// is another function.
namespace tandem::conformance {
namespace {

/// Everything that the first mode reports, in one text.
std::string verdict(const MakeInputs& inputs, const Function& eager, const Function& liar,
                    const Settings& settings = {}) {
  const auto make = [&] {
    Program program{inputs, eager};
    program.compile = [&liar](const Options&) {
      return Handle{liar, [] { return Stats{.traces = 1}; }, [] { return std::vector<Entry>{}; }};
    };
    return program;
  };
  std::string text;
  for (const ModeResult& result : judge(make, settings)) {
    for (const std::string& line : result.differences) text += result.mode + ": " + line + "\n";
  }
  return text;
}

#define EXPECT_SEEN(text, words) \
  EXPECT_NE((text).find(words), std::string::npos) << "the judge said: " << (text)

TEST(Judge, IsContentWithEagerItself) {
  const Function program = [](Tensors& a) -> Tensors {
    a[0].mul_(2);
    return {a[0] * 3, a[0].view(-1), a[0], a[1].detach()};
  };
  EXPECT_EQ(verdict(non_leaves({{3, 3}, {2}}), program, program), "");
}

TEST(Judge, SeesACopyInPlaceOfAView) {
  const std::string text = verdict(
      plain({{2, 2}}), [](Tensors& a) -> Tensors { return {a[0].view(-1)}; },
      [](Tensors& a) -> Tensors { return {a[0].view(-1).clone()}; });
  EXPECT_SEEN(text, "memory: eager result 0 shares with argument 0 at 0; , compiled ");
  EXPECT_SEEN(text, "is_view of result 0: eager 1, compiled 0");
}

TEST(Judge, SeesAnotherObject) {
  const std::string text = verdict(
      leaves({{2}}), [](Tensors& a) -> Tensors { return {a[0]}; },
      [](Tensors& a) -> Tensors { return {a[0].alias()}; });
  EXPECT_SEEN(text, "is_leaf of result 0: eager 1, compiled 0");
}

TEST(Judge, SeesAVersionThatIsNotCounted) {
  const std::string text = verdict(
      plain({{2}}),
      [](Tensors& a) -> Tensors {
        a[0].add_(1);
        return {};
      },
      [](Tensors& a) -> Tensors {
        a[0].data().add_(1);
        return {};
      });
  EXPECT_SEEN(text, "version of argument 0: eager +1, compiled +0");
}

TEST(Judge, SeesTheLastBitOfAResult) {
  const std::string text = verdict(
      plain({{64}}), [](Tensors& a) -> Tensors { return {a[0] * 3}; },
      [](Tensors& a) -> Tensors { return {a[0] + a[0] * 2.0000002}; });
  EXPECT_SEEN(text, "data of result 0: data differs by up to");
}

TEST(Judge, SeesAWrongGradientOfOneResult) {
  const std::string text = verdict(
      leaves({{2}}), [](Tensors& a) -> Tensors { return {a[0] * 2, a[0] * 3}; },
      [](Tensors& a) -> Tensors { return {a[0].detach() * 2 + 0 * a[0], a[0] * 3}; });
  EXPECT_SEEN(text, "gradient of result 0 in leaf 0: data differs");
}

TEST(Judge, SeesZerosInPlaceOfAnUndefinedGradient) {
  const std::string text = verdict(
      leaves({{2}, {2}}), [](Tensors& a) -> Tensors { return {a[0] * 2}; },
      [](Tensors& a) -> Tensors { return {a[0] * 2 + 0 * a[1]}; });
  EXPECT_SEEN(text, "gradient of result 0 in leaf 1: eager undefined, compiled defined");
}

TEST(Judge, SeesALostHistoryOfAnArgument) {
  const std::string text = verdict(
      non_leaves({{2}}),
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        return {a[0] * 3};
      },
      [](Tensors& a) -> Tensors {
        {
          const torch::NoGradGuard no_grad;
          a[0].mul_(2);
        }
        return {a[0] * 3};
      });
  EXPECT_SEEN(text, "history of argument 0 changed: eager 1, compiled 0");
}

TEST(Judge, SeesTwoStoragesWhereResultsShareOne) {
  const std::string text = verdict(
      leaves({{2, 2}}),
      [](Tensors& a) -> Tensors {
        at::Tensor t = a[0] * 2;
        return {t.view(-1), t.t()};
      },
      [](Tensors& a) -> Tensors { return {(a[0] * 2).view(-1), (a[0] * 2).t()}; });
  EXPECT_SEEN(text, "memory: eager result 1 shares with result 0 at 0; , compiled ");
  EXPECT_SEEN(text, "base of result 1: eager hidden base 0, compiled hidden base 1");
}

TEST(Judge, SeesAWriteThatDoesNotShow) {
  const std::string text = verdict(
      plain({{2, 2}}),
      [](Tensors& a) -> Tensors {
        at::Tensor t = a[0] * 2;
        return {t.detach(), t};
      },
      [](Tensors& a) -> Tensors { return {(a[0] * 2), a[0] * 2}; });
  EXPECT_SEEN(text, "result 1 after result 0 was written: data differs");
}

TEST(Judge, SeesDrawsThatAreNotMade) {
  const std::string text = verdict(
      plain({{2}}),
      [](Tensors& a) -> Tensors {
        torch::rand({3});
        return {a[0] * 2};
      },
      [](Tensors& a) -> Tensors { return {a[0] * 2}; });
  EXPECT_SEEN(text, "random stream");
}

TEST(Judge, SeesAnErrorThatComesTooLate) {
  Settings settings;
  settings.raises = "a leaf Variable that requires grad";
  const std::string text = verdict(
      leaves({{2}, {2}}),
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        return {};
      },
      [](Tensors& a) -> Tensors {
        a[1].data().add_(1);
        a[0].mul_(2);
        return {};
      },
      settings);
  EXPECT_SEEN(text, "the call raised, but it has changed the data of argument 1");
}

TEST(Judge, SeesAnErrorThatIsMissingOrAnother) {
  Settings settings;
  settings.raises = "a leaf Variable that requires grad";
  const Function eager = [](Tensors& a) -> Tensors {
    a[0].mul_(2);
    return {};
  };
  EXPECT_SEEN(verdict(
                  leaves({{2}}), eager, [](Tensors&) -> Tensors { return {}; }, settings),
              "error of the call: eager a leaf Variable");
  EXPECT_SEEN(verdict(
                  leaves({{2}}), eager,
                  [](Tensors&) -> Tensors { throw std::runtime_error("another"); }, settings),
              "compiled another");
}

TEST(Judge, WantsAnErrorOfEagerToBeMeant) {
  const Function program = [](Tensors& a) -> Tensors {
    a[0].mul_(2);
    return {};
  };
  EXPECT_SEEN(verdict(leaves({{2}}), program, program), "fault of the case: eager raises");
}

TEST(Judge, SeesAnErrorOfABackwardThatIsMissing) {
  Settings settings;
  settings.backward_raises = "modified by an inplace operation";
  const std::string text = verdict(
      leaves({{2}}), [](Tensors& a) -> Tensors { return {a[0].exp().mul_(2)}; },
      [](Tensors& a) -> Tensors { return {a[0].exp() * 2}; }, settings);
  EXPECT_SEEN(text, "only eager shows gradient of result 0: one of the variables needed");
  EXPECT_SEEN(text, "only eager shows backward of all results: one of the variables needed");
}

TEST(Judge, SeesANaNWhereBitsAreNotCompared) {
  Settings settings;
  settings.values_may_round = true;
  const std::string text = verdict(
      plain({{2}}), [](Tensors& a) -> Tensors { return {a[0] * 2}; },
      [](Tensors& a) -> Tensors { return {a[0] * std::nan("")}; }, settings);
  EXPECT_SEEN(text, "data of result 0: data differs");
}

/// Its gradient is right, and depends on nothing.
struct Flat : torch::autograd::Function<Flat> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * (context->get_saved_variables()[0].detach() * 2)};
  }
};

TEST(Judge, SeesASecondGradientThatIsUndefinedAndNotZero) {
  Settings settings;
  settings.second_order = settings.second_zeros_may_be_undefined = true;
  const auto said = [&](double curvature) {
    return verdict(
        leaves({{2}}),
        [=](Tensors& a) -> Tensors { return {Flat::apply(a[0]) + curvature * (a[0] * a[0])}; },
        [=](Tensors& a) -> Tensors { return {Flat::apply(a[0]) + curvature * Flat::apply(a[0])}; },
        settings);
  };
  EXPECT_SEEN(said(1), "second gradient of result 0 in leaf 0: eager defined, compiled undefined");
  EXPECT_EQ(said(0).find("second gradient"), std::string::npos);
}

/// Two arguments, the second of which was computed from something that is written before its
/// backward.
Inputs with_broken_history() {
  const at::Tensor x = leaf({2}), w = leaf({2}), saved = w.exp(), y = saved * 2;
  saved.detach().mul_(2);
  return Inputs{{x, y}, {x, w}, {}};
}

// The engine runs what lies behind an input of a call, whichever result it comes from.
TEST(Judge, LetsABackwardRaiseBehindAnInput) {
  const Function eager = [](Tensors& a) -> Tensors { return {a[0] * 2, a[1] * 3}; };
  const Function raises = [](Tensors& a) -> Tensors { return {a[0] * 2 + a[1] * 0, a[1] * 3}; };
  EXPECT_EQ(verdict(with_broken_history, eager, raises).find("gradient of result 0: one of"),
            std::string::npos);
}

TEST(Judge, SeesABackwardThatRaisesByItself) {
  const Function eager = [](Tensors& a) -> Tensors { return {a[0] * 2, a[1] * 3}; };
  const Function raises = [](Tensors& a) -> Tensors {
    const at::Tensor y = a[0].exp(), z = y * 2;
    y.detach().mul_(2);
    return {z, a[1] * 3};
  };
  EXPECT_SEEN(verdict(leaves({{2}, {2}}), eager, raises),
              "only compiled shows gradient of result 0");
}

TEST(Judge, SeesAnInputThatIsKept) {
  auto kept = std::make_shared<Tensors>();
  const std::string text = verdict(
      plain({{2}}), [](Tensors& a) -> Tensors { return {a[0] * 2}; },
      [kept](Tensors& a) -> Tensors {
        *kept = a;
        return {a[0] * 2};
      });
  EXPECT_SEEN(text, "memory: when all is dropped: eager \"\", compiled \"argument 0 is alive;");
}

TEST(Judge, SeesAnEntryThatIsNotFoundAgain) {
  const Function function = [](Tensors& a) -> Tensors { return {a[0] * 2}; };
  const auto make = [&] {
    Program program{plain({{2}}), function};
    program.compile = [&](const Options&) {
      return Handle{function, [] { return Stats{.traces = 2}; },
                    [] { return std::vector<Entry>{}; }};
    };
    return program;
  };
  std::string text;
  for (const ModeResult& result : judge(make)) {
    for (const std::string& line : result.differences) text += line + "\n";
  }
  EXPECT_SEEN(text, "the function was recorded 2 times, not 1");
}

}  // namespace
}  // namespace tandem::conformance
