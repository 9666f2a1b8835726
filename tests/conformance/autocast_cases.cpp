#include "conformance/categories.h"
#include "conformance/variants.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <tuple>

/// Autocast around the call, inside it, and around its backward.
namespace tandem::conformance {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Autocast on the CPU, on or off, for a scope.
class Autocast {
 public:
  explicit Autocast(bool enabled) : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool before_;
};

void in_autocast(const std::function<void()>& body) {
  const Autocast autocast(true);
  body();
}

/// An op that adds one where autocast sees it, and nothing elsewhere.
at::Tensor seen_by_autocast(const at::Tensor& x) {
  static auto* library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "autocasting", std::nullopt, __FILE__, __LINE__);
    made->def("seen(Tensor x) -> Tensor");
    made->impl("seen", c10::DispatchKey::CPU, [](const at::Tensor& x) { return x.clone(); });
    made->impl("seen", c10::DispatchKey::Meta,
               [](const at::Tensor& x) { return at::empty_like(x); });
    made->impl("seen", c10::DispatchKey::AutocastCPU, [](const at::Tensor& x) {
      const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
      return seen_by_autocast(x) + 1;
    });
    return made;
  }();
  EXPECT_NE(library, nullptr);
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("autocasting::seen", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

/// Called in the forward without autocast, and in the backward under whatever is in force there.
struct SeenInBoth : torch::autograd::Function<SeenInBoth> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) {
    const Autocast off(false);
    return seen_by_autocast(x);
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {seen_by_autocast(grads[0])};
  }
};

/// Forward and backward each in a state of its own; gradients of zeros, so that only the op shows.
void forward_and_backward_in(bool forward, bool backward) {
  const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& call) {
    const at::Tensor x = torch::zeros({3}).set_requires_grad(true);
    at::Tensor y;
    {
      const Autocast state(forward);
      y = call(x);
    }
    const Autocast state(backward);
    y.backward(torch::zeros({3}));
    return Tensors{y.detach(), x.grad()};
  };
  const auto function = [](const at::Tensor& x) { return SeenInBoth::apply(x); };
  const Tensors expected = run(function);
  EXPECT_TRUE(at::equal(expected[0], torch::zeros({3})));
  EXPECT_TRUE(at::equal(expected[1], torch::full({3}, backward ? 1.0 : 0.0)));
  const auto compiled = tandem::compile(function);
  for (int i = 0; i < 2; ++i) {
    const Tensors found = run(compiled);
    EXPECT_TRUE(at::equal(found[0], expected[0]));
    EXPECT_TRUE(at::equal(found[1], expected[1])) << found[1];
  }
}

/// Switched off inside: the product stays in float32.
void disabled_inside(Session& session) {
  Settings settings;
  settings.around = in_autocast;
  session.judge(
      leaves({{4, 4}, {4, 4}}),
      [](Tensors& a) -> Tensors {
        const at::Tensor low = a[0].mm(a[1]);
        const Autocast off(false);
        const at::Tensor high = a[0].mm(a[1]);
        EXPECT_EQ(low.scalar_type(), torch::kBFloat16);
        EXPECT_EQ(high.scalar_type(), torch::kFloat);
        return {low, high};
      },
      settings);
}

void batch_norm(Session& session) {
  session.judge(
      [] {
        return Inputs{{torch::randn({4, 8, 14, 14}).to(torch::kBFloat16), torch::randn({8}),
                       torch::randn({8}), torch::randn({8}), torch::rand({8}) + 0.5}};
      },
      [](Tensors& a) -> Tensors {
        return {torch::batch_norm(a[0], a[1], a[2], a[3], a[4], false, 0.1, 1e-5, false)};
      });
}

struct State {
  bool enabled = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType dtype = at::autocast::get_autocast_dtype(at::kCPU);
  bool cache = at::autocast::is_autocast_cache_enabled();
  friend bool operator==(const State&, const State&) = default;
};

void state_is_kept(Session&) {
  const auto function = [](const at::Tensor& x) {
    const Autocast off(false);
    return x.mm(x);
  };
  const at::Tensor x = torch::randn({4, 4});
  for (const bool enabled : {false, true}) {
    const Autocast around(enabled);
    const State before;
    tandem::export_joint(function, std::tuple{x});
    EXPECT_EQ(State(), before);
    const auto compiled = tandem::compile(function);
    compiled.prepare(x);
    EXPECT_EQ(State(), before);
    EXPECT_EQ(compiled(x).scalar_type(), torch::kFloat);
    EXPECT_EQ(State(), before);
  }
}

void state_left_changed(Session&) {
  const State before;
  const at::Tensor x = torch::randn({4, 4});
  const auto compiled = tandem::compile([](const at::Tensor& a) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    return a.mm(a);
  });
  try {
    compiled(x);
    ADD_FAILURE() << "not refused";
  } catch (const UnsupportedError& error) {
    EXPECT_NE(std::string(error.what()).find("autocast"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("remedy"), std::string::npos) << error.what();
  }
  EXPECT_EQ(State(), before) << "something has happened";
}

}  // namespace

Category autocast() {
  return {
      "Autocast",
      {
          {"test_backward_pass_autocast_on", [](Session&) { forward_and_backward_in(true, true); }},
          {"test_backward_pass_autocast_off",
           [](Session&) { forward_and_backward_in(true, false); }},
          {"test_backward_pass_autocast_custom",
           [](Session&) { forward_and_backward_in(false, true); }},
          {"test_autocast_disable_guard", disabled_inside},
          {"test_batch_norm_amp", batch_norm},
          {"test_collect_metadata_preserves_stable_autocast_state", state_is_kept},
          {"test_collect_metadata_detects_autocast_state_mutation", state_left_changed},
      }};
}

}  // namespace tandem::conformance
