#include "conformance/categories.h"
#include "conformance/inputs.h"
#include "libtorch/version.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>

#include <optional>

/// Tangents: their layout, and how long they live.
namespace tandem::conformance {
namespace {

/// Differentiates with a tangent that is not contiguous.
void noncontiguous_tangent(Session& session) {
  const Function program = [](Tensors& a) -> Tensors { return {a[0].view({2, 3}).t()}; };
  session.judge(leaves({{6}}), program);
  const Function computed = [](Tensors& a) -> Tensors { return {(a[0] * 2).view({2, 3}).t()}; };
  for (const Function& function : {program, computed}) {
    const auto compiled =
        tandem::compile_boxed([&](Tensors arguments) { return function(arguments); });
    const auto gradient = [](const Function& call, const at::Tensor& tangent) {
      torch::manual_seed(1);
      at::Tensor x = leaf({6});
      Tensors arguments = {x};
      return torch::autograd::grad({call(arguments)[0]}, {x}, {tangent})[0];
    };
    for (const at::Tensor& tangent :
         {torch::randn({3, 2}), torch::randn({2, 3}).t(), torch::randn({1, 1}).expand({3, 2})}) {
      EXPECT_TRUE(at::equal(gradient(function, tangent),
                            gradient([&](Tensors& a) { return compiled(a); }, tangent)));
    }
  }
}

/// Results in channels-last memory have tangents in channels-last memory.
void channels_last_tangents(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    ASSERT_FALSE(entry.signature().tangents.empty());
    const ir::TypePtr& type = entry.signature().tangents[0].type;
    EXPECT_EQ(type->static_strides(), (std::vector<int64_t>{96, 1, 24, 6}));
  };
  session.judge(
      [] {
        at::Tensor x = torch::randn({2, 3, 6, 6}).contiguous(torch::MemoryFormat::ChannelsLast);
        at::Tensor w = torch::randn({6, 3, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
        x.set_requires_grad(true);
        w.set_requires_grad(true);
        at::Tensor y = leaf({2, 6});
        return Inputs{{x, w, y * 1.5}, {x, w, y}};
      },
      [](Tensors& a) -> Tensors {
        at::Tensor conv = torch::conv2d(a[0], a[1]);
        a[2].mul_(2);
        return {conv.sin(), a[2].view(-1), conv.mean({2, 3}) + a[2]};
      },
      settings);
}

void non_differentiable_output(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) { EXPECT_EQ(entry.signature().tangents.size(), 1u); };
  session.judge(
      leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0] * 2, (a[0] * 3).detach()}; },
      settings);
}

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// What a probe has seen.
struct Seen {
  bool freed = false;                 // the gradient died when the probe dropped it
  std::optional<Weak> handed_down{};  // what it gave to the node before it
};

/// Stands between two parts of a program. Its backward takes the gradient out of the engine's list
/// and drops it: nobody else may hold it.
struct Probe : torch::autograd::Node {
  explicit Probe(Seen& seen) : seen_(seen) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    torch::autograd::variable_list own = std::move(grads);
    const Weak weak(own[0].getIntrusivePtr());
    at::Tensor copy = own[0].clone();
    own.clear();
    seen_.freed = weak.expired();
    seen_.handed_down.emplace(copy.getIntrusivePtr());
    return {copy};
  }
  Seen& seen_;
};

at::Tensor probed(const at::Tensor& y, Seen& seen) {
  const auto node = libtorch::make_node<Probe>(seen);
  node->set_next_edges({torch::autograd::impl::gradient_edge(y)});
  at::Tensor z = y.detach();
  node->add_input_metadata(z);
  torch::autograd::impl::set_gradient_edge(z, torch::autograd::Edge(node, 0));
  return z;
}

enum class Loss { Compiled, Eager, ReleasedBeforeBackward };

/// Compiled model, probe, loss: neither the model nor the loss holds a tangent longer than the
/// engine does.
void tangent_freed(Loss kind) {
  const auto loss_function = [](const at::Tensor& y) { return (y * y).sum(); };
  const at::Tensor w = leaf({4});
  const auto model = tandem::compile([&](const at::Tensor& x) { return (x * w).sin(); });
  const auto compiled_loss = tandem::compile(loss_function);
  for (int call = 0; call < 2; ++call) {  // the call that compiles, and one that does not
    Seen seen;
    const at::Tensor x = leaf({4}), y = model(x), z = probed(y, seen);
    at::Tensor loss = kind == Loss::Compiled ? compiled_loss(z) : loss_function(z);
    const at::Tensor expected = 2 * z.detach() * (x * w).detach().cos() * w.detach();
    if (kind == Loss::ReleasedBeforeBackward) {
      const torch::autograd::edge_list roots = {torch::autograd::impl::gradient_edge(loss)};
      loss.reset();
      torch::autograd::Engine::get_default_engine().execute(roots, {torch::ones({})}, false, false,
                                                            true, {});
    } else {
      loss.backward();
    }
    EXPECT_TRUE(seen.freed) << "somebody holds the gradient of the loss";
    ASSERT_TRUE(seen.handed_down.has_value());
    EXPECT_TRUE(seen.handed_down->expired()) << "somebody holds the tangent of the model";
    EXPECT_TRUE(at::allclose(x.grad(), expected));
  }
}

}  // namespace

Category tangents() {
  return {"Tangents: layout and type",
          {
              {"test_contiguous", noncontiguous_tangent},
              {"test_grads_no_force_contiguous_dense", channels_last_tangents},
              judged("test_backward_correctness_single_input", leaves({{4}}),
                     [](Tensors& a) -> Tensors { return {a[0] * a[0]}; }),
              judged("test_backward_correctness_multiple_inputs", leaves({{4}, {4}}),
                     [](Tensors& a) -> Tensors { return {a[0] * a[1]}; }),
              judged("test_backward_correctness_multiple_outputs", leaves({{4}}),
                     [](Tensors& a) -> Tensors { return {a[0] * 2, a[0] * 3}; }),
              {"test_backward_with_non_differentiable_output", non_differentiable_output},
          }};
}

Category lifetime() {
  return {"Lifetime and memory",
          {
              {"test_tangent_freed_compiled_model_and_loss",
               [](Session&) { tangent_freed(Loss::Compiled); }},
              {"test_tangent_freed_compiled_model_eager_loss",
               [](Session&) { tangent_freed(Loss::Eager); }},
              {"test_tangent_user_provided_via_pop",
               [](Session&) { tangent_freed(Loss::ReleasedBeforeBackward); }},
          }};
}

}  // namespace tandem::conformance
