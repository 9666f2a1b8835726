#include "conformance/categories.h"
#include "conformance/inputs.h"

#include <gtest/gtest.h>

#include <memory>

/// What the peer does not test: entries under changing alias patterns, views of several kinds
/// together, closed-over tensors in every role, and refusals that leave no trace.
namespace tandem::conformance {
namespace {

/// Calls in turn with these arguments; the last pattern stays.
using Pattern = std::function<Inputs()>;
Program in_turn(std::vector<Pattern> patterns, Function function) {
  auto next = std::make_shared<size_t>(0);
  return {[=] {
            const size_t index = std::min(*next, patterns.size() - 1);
            ++*next;
            return patterns[index]();
          },
          std::move(function)};
}

Inputs apart() { return {{torch::randn({4}), torch::randn({4})}}; }
Inputs same() {
  at::Tensor x = torch::randn({4});
  return {{x, x}};
}
Inputs overlapping() {
  at::Tensor b = torch::randn({8});
  return {{b.slice(0, 0, 4), b.slice(0, 2, 6)}, {}, {b}};
}
Inputs overlapping_otherwise() {
  at::Tensor b = torch::randn({8});
  return {{b.slice(0, 2, 6), b.slice(0, 0, 4)}, {}, {b}};
}
Inputs neighbours() {
  at::Tensor b = torch::randn({8});
  return {{b.slice(0, 0, 4), b.slice(0, 4, 8)}, {}, {b}};
}

Tensors first_doubled(Tensors& a) {
  a[0].mul_(2);
  return {a[0] + a[1]};
}

/// An entry for tensors apart must not serve the same tensor twice, nor an overlap; and back.
void pattern_changes(Session& session, std::vector<Pattern> patterns, int64_t traces,
                     int64_t epilogue_traces) {
  Settings settings;
  settings.traces = traces;
  settings.epilogue_traces = epilogue_traces;
  session.judge([&] { return in_turn(patterns, first_doubled); }, settings);
}

/// Two dtypes on one memory: refused, with the names of both, and nothing has happened.
void two_dtypes_on_one_memory(Session&) {
  const auto compiled = tandem::compile([](const at::Tensor& z, const at::Tensor& parts) {
    parts.mul_(2);
    return z * 2;
  });
  const at::Tensor z = torch::randn({4}, torch::kComplexFloat), parts = torch::view_as_real(z);
  const at::Tensor before = parts.clone();
  const auto version = z._version();
  try {
    compiled(z, parts);
    ADD_FAILURE() << "not refused";
  } catch (const UnsupportedError& error) {
    EXPECT_NE(std::string(error.what()).find("argument 0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("argument 1"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("remedy"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(at::equal(parts, before));
  EXPECT_EQ(z._version(), version);
}

/// The same without a write: nothing to refuse.
void two_dtypes_read_only(Session& session) {
  session.judge(
      [] {
        at::Tensor z = torch::randn({4}, torch::kComplexFloat);
        return Inputs{{z, torch::view_as_real(z)}};
      },
      [](Tensors& a) -> Tensors { return {a[0] * 2, a[1] * 3}; });
}

/// Argument and closed-over tensor are one.
void argument_is_closed_over(Session& session, bool written) {
  session.judge([=] {
    auto w = std::make_shared<at::Tensor>(torch::randn({4}));
    return Program{[=] { return Inputs{{*w}, {}, {*w}}; },
                   [=](Tensors& a) -> Tensors {
                     if (written) a[0].mul_(2);
                     return {a[0] + *w, *w};
                   }};
  });
}

void closed_over_results(Session& session) {
  session.judge([] {
    auto w = std::make_shared<at::Tensor>(leaf({2, 3}));
    auto b = std::make_shared<at::Tensor>(torch::randn({2, 3}));
    return Program{[=] {
                     at::Tensor x = leaf({2, 3});
                     return Inputs{{x}, {*w, x}, {*b}};
                   },
                   [=](Tensors& a) -> Tensors {
                     b->add_(1);
                     return {w->t(), *w, b->view(-1), *b, a[0] * *w};
                   }};
  });
}

/// A closed-over buffer gets a history, as an argument does.
void closed_over_gets_history(Session& session) {
  session.judge(
      [] {
        auto w = std::make_shared<at::Tensor>(leaf({4}));
        auto state = std::make_shared<at::Tensor>();
        return Program{[=] {
                         *state = *w * 1.5;
                         return Inputs{{torch::randn({4})}, {*w}, {*state}};
                       },
                       [=](Tensors& a) -> Tensors {
                         state->mul_(2);
                         return {*state + a[0]};
                       }};
      },
      [] {
        Settings settings;
        settings.traces = 4;  // another tensor each time
        settings.epilogue_traces = 2;
        return settings;
      }());
}

/// Writes first, then does what is refused: argument, buffer, flag and generator are as before.
void refusal_leaves_nothing(Session&) {
  at::Tensor buffer = torch::zeros({4});
  const auto compiled = tandem::compile([&](const at::Tensor& x) {
    x.mul_(2);
    x.t_();
    buffer.add_(torch::rand({4}));
    if (x.sum().item<double>() > 0) return x * 2;
    return x * 3;
  });
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({4}), before = x.clone();
  const auto version = x._version(), buffer_version = buffer._version();
  const at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_THROW(compiled(x), UnsupportedError);
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_TRUE(at::equal(buffer, torch::zeros({4})));
  EXPECT_EQ(x._version(), version);
  EXPECT_EQ(buffer._version(), buffer_version);
  EXPECT_TRUE(at::equal(random, at::detail::getDefaultCPUGenerator().get_state()));
}

std::vector<Case> views() {
  const Sizes square = {{4, 4}};
  return {
      judged_both("chunks of an intermediate", square,
                  [](Tensors& a) -> Tensors { return (a[0] * 2).chunk(2); }),
      judged_both("unbind of an intermediate, two of four", square,
                  [](Tensors& a) -> Tensors {
                    Tensors rows = (a[0] * 2).unbind();
                    return {rows[1], rows[3]};
                  }),
      judged_both("unbind of the input and a view of one part", square,
                  [](Tensors& a) -> Tensors {
                    Tensors rows = a[0].unbind();
                    return {rows[1], rows[2].view({2, 2})};
                  }),
      judged_both("split beside its base", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2;
                    Tensors parts = t.split(2);
                    return {t, parts[0], parts[1]};
                  }),
      judged_both("views with different requires_grad", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2;
                    return {t.view(-1), t.detach().view(-1), t.detach()};
                  }),
      judged_both("detached view of the input beside a view", square,
                  [](Tensors& a) -> Tensors {
                    return {a[0].detach().view(-1), a[0].view(-1).detach(), a[0].t()};
                  }),
      judged_both("view of a view of an intermediate", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2, v = t.view({2, 8});
                    return {v.select(0, 1), v.t(), t.view(-1).slice(0, 2, 9)};
                  }),
      judged_both("view made without grad mode", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2, v;
                    {
                      const torch::NoGradGuard no_grad;
                      v = t.view(-1);
                    }
                    return {v, t};
                  }),
      judged_both("view of the input made without grad mode", square,
                  [](Tensors& a) -> Tensors {
                    const torch::NoGradGuard no_grad;
                    return {a[0].view(-1)};
                  }),
      judged_both("expanded result beside its base", {{4, 1}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2;
                    return {t.expand({4, 3}), t};
                  }),
      judged_both("one result is a view of another that is written inside", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0] * 2, v = t.select(0, 1);
                    t.add_(a[0]);
                    v.mul_(3);
                    return {v, t};
                  }),
      judged_both("integer result aliasing an integer intermediate", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor i = a[0].argsort();
                    return {i, i.view(-1), a[0] * 2};
                  }),
      judged_both("empty and zero-dimensional results", square,
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0].sum();
                    return {t, t.view(1), a[0].slice(0, 0, 0)};
                  }),
  };
}

std::vector<Case> writes() {
  const Sizes square = {{4, 4}};
  return {
      judged_both("squeeze_ and unsqueeze_", {{4, 1}},
                  [](Tensors& a) -> Tensors {
                    a[0].squeeze_(1);
                    at::Tensor y = a[0] * 2;
                    a[0].unsqueeze_(0);
                    return {y, a[0]};
                  }),
      judged_both("written, transposed, written again, view returned", {{2, 3}},
                  [](Tensors& a) -> Tensors {
                    a[0].mul_(2).t_().add_(1);
                    return {a[0].select(0, 0)};
                  }),
      judged_both("first argument written from the second, which is written after", {{4}, {4}},
                  [](Tensors& a) -> Tensors {
                    a[0].add_(a[1]);
                    a[1].mul_(a[0].detach());
                    return {a[1] * a[0].detach()};
                  }),
      judged_both("copy_ from another argument", {{4}, {4}},
                  [](Tensors& a) -> Tensors {
                    a[0].copy_(a[1]);
                    return {a[0] * 2};
                  }),
      judged_both("zero_ cuts the history", {{4}},
                  [](Tensors& a) -> Tensors {
                    a[0].zero_();
                    return {a[0] + 1};
                  }),
      judged_both("write that nobody reads", {{4}},
                  [](Tensors& a) -> Tensors {
                    a[0].mul_(3);
                    return {};
                  }),
      judged_both("requires_grad_ on a result", {{4}},
                  [](Tensors& a) -> Tensors {
                    at::Tensor t = a[0].detach() * 2;
                    t.requires_grad_(true);
                    return {t, t * 3};
                  }),
      judged("requires_grad_(false) on a leaf", leaves({{4}}),
             [](Tensors& a) -> Tensors {
               at::Tensor y = a[0] * 2;
               a[0].requires_grad_(false);
               return {y, a[0] * 3};
             }),
      judged(
          "integer and bool arguments written",
          [] { return Inputs{{torch::arange(4), torch::zeros({4}, torch::kBool)}}; },
          [](Tensors& a) -> Tensors {
            a[0].add_(3);
            a[1].logical_not_();
            return {a[0] * 2, a[1].view(-1)};
          }),
      judged(
          "half written under another dtype",
          [] {
            at::Tensor p = torch::randn({4}, torch::kDouble).set_requires_grad(true);
            return Inputs{{p.to(torch::kFloat), torch::randn({4}, torch::kDouble)}, {p}};
          },
          [](Tensors& a) -> Tensors {
            a[0].mul_(a[1]);
            return {a[0] + a[1]};
          }),
      judged(
          "write to an expanded argument",
          [] {
            at::Tensor b = torch::randn({4, 1});
            return Inputs{{b.expand({4, 3})}, {}, {b}};
          },
          [](Tensors& a) -> Tensors {
            a[0].add_(1);
            return {a[0] * 2};
          },
          [] {
            Settings settings;
            settings.raises = "more than one element of the written-to tensor refers to a single";
            return settings;
          }()),
  };
}

}  // namespace

Category beyond_peer() {
  Category category{
      "Beyond the peer",
      {
          {"entry for tensors apart, then one tensor twice",
           [](Session& session) { pattern_changes(session, {apart, same, apart, same}, 2, 2); }},
          {"entry for one tensor twice, then tensors apart",
           [](Session& session) { pattern_changes(session, {same, apart, same, apart}, 2, 2); }},
          {"entry for tensors apart, then overlapping",
           [](Session& session) {
             pattern_changes(session, {apart, overlapping, apart, overlapping}, 2, 2);
           }},
          {"entry for an overlap, then the other way round",
           [](Session& session) {
             pattern_changes(session, {overlapping, overlapping_otherwise, apart, overlapping}, 3,
                             2);
           }},
          // Neighbours in one storage do not overlap; that they have one version counter is nothing
          // to a call without gradients.
          {"entry for tensors apart, then neighbours in one storage",
           [](Session& session) { pattern_changes(session, {apart, neighbours}, 1, 1); }},
          {"two dtypes on one memory, written", two_dtypes_on_one_memory},
          {"two dtypes on one memory, read", two_dtypes_read_only},
          {"argument is a closed-over tensor",
           [](Session& session) { argument_is_closed_over(session, false); }},
          {"argument is a closed-over tensor and written",
           [](Session& session) { argument_is_closed_over(session, true); }},
          {"closed-over tensors and their views returned", closed_over_results},
          {"closed-over tensor gets a history", closed_over_gets_history},
          {"refusal leaves nothing behind", refusal_leaves_nothing},
          {"an op that takes other sizes than its formula",
           [](Session& session) {
             Settings settings;
             settings.backward_raises = "doesn't match the broadcast shape";
             session.judge(
                 leaves({{2, 3}}),
                 [](Tensors& a) -> Tensors {
                   return {at::binary_cross_entropy_with_logits(a[0].slice(0, 0, 1), a[0])};
                 },
                 settings);
           }},
      }};
  for (const auto& list : {views(), writes()}) {
    category.cases.insert(category.cases.end(), list.begin(), list.end());
  }
  return category;
}

}  // namespace tandem::conformance
