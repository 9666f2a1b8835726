#include "tracing/trace.h"

#include "support/graph_text.h"
#include "tandem/ir/text.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::tracing {
namespace {

using T = at::Tensor;

const std::vector<std::string> kNames(9, "argument");

detail::Flat flat(std::initializer_list<T> tensors) {
  detail::Flat result;
  result.tensors.assign(tensors.begin(), tensors.end());
  return result;
}

/// The recorded graph of a function of one argument, with its result as output.
ir::Graph record_one(const T& x, const std::function<T(const T&)>& fn,
                     const KnownTensors& known = {}) {
  Trace trace(flat({x}), {.known = known, .names = kNames});
  trace.run([&](const detail::Flat& in) { return flat({fn(in.tensors[0])}); });
  ir::Graph graph = trace.recording().graph();
  graph.set_name("g");
  graph.add_output(current_value(trace.results().tensors[0]), ir::Descriptor::output(0));
  return graph;
}

TEST(Trace, RecordsFunctionalOpsWithTheirTypes) {
  EXPECT_GRAPH_EQ(
      record_one(torch::ones({2, 3}), [](const T& x) { return x.t().matmul(x).relu(); }), R"(
    graph g(%arg0: f32[2, 3] user_input 0) {
      %0: f32[3, 2] (1, 3) = aten.t(%arg0)
      %1: f32[3, 3] = aten.mm(%0, %arg0)
      %2: f32[3, 3] = aten.relu(%1)
      return %2: output 0
    })");
}

TEST(Trace, NumbersStayNumbers) {
  EXPECT_GRAPH_EQ(
      record_one(torch::ones({2}),
                 [](const T& x) { return at::mul(x, at::native::wrapped_scalar_tensor(2.5)) + 1; }),
      R"(
    graph g(%arg0: f32[2] user_input 0) {
      %0: f32[2] = aten.mul.Tensor(%arg0, 2.5)
      %1: f32[2] = aten.add.Scalar(%0, 1, 1)
      return %1: output 0
    })");
}

// In-place writes become new values: functionalization is on.
TEST(Trace, WritesBecomeValues) {
  EXPECT_GRAPH_EQ(record_one(torch::ones({2}),
                             [](const T& x) {
                               T y = x.clone();
                               y.add_(x);
                               return y;
                             }),
                  R"(
    graph g(%arg0: f32[2] user_input 0) {
      %0: f32[2] = aten.clone(%arg0, memory_format=none)
      %1: f32[2] = aten.add.Tensor(%0, %arg0, alpha=1)
      return %1: output 0
    })");
}

TEST(Trace, ClosedOverTensorsBecomeInputsInOrderOfFirstSight) {
  const T weight = torch::ones({2}).set_requires_grad(true), other = torch::ones({2});
  const KnownTensors known{{weight.unsafeGetTensorImpl(), ir::Descriptor::param("fc.weight")}};
  EXPECT_GRAPH_EQ(
      record_one(
          torch::ones({2}), [&](const T& x) { return x * other * weight * other; }, known),
      R"(
    graph g(%arg0: f32[2] user_input 0, %lifted0: f32[2] lifted 0, %fc_weight: f32[2] param "fc.weight") {
      %0: f32[2] = aten.mul.Tensor(%arg0, %lifted0)
      %1: f32[2] = aten.mul.Tensor(%0, %fc_weight)
      %2: f32[2] = aten.mul.Tensor(%1, %lifted0)
      return %2: output 0
    })");
}

TEST(Trace, MemoryWrittenByHandIsAConstantAndUntouchedMemoryIsNot) {
  EXPECT_GRAPH_EQ(
      record_one(torch::ones({2}),
                 [](const T& x) { return x + torch::tensor(std::vector<float>{3, 4}); }),
      R"(
    graph g(%arg0: f32[2] user_input 0) {
      %0: f32[2] = constant {3.0, 4.0}
      %1: f32[2] = aten.add.Tensor(%arg0, %0, alpha=1)
      return %1: output 0
    })");
  EXPECT_GRAPH_EQ(record_one(torch::ones({100}),
                             [](const T& x) {
                               T y = torch::empty({100});
                               return y.copy_(x);
                             }),
                  R"(
    graph g(%arg0: f32[100] user_input 0) {
      %0: f32[100] = aten.empty.memory_format([100], dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
      %1: f32[100] = aten.copy(%0, %arg0, false)
      return %1: output 0
    })");
}

// Memory made inside must be new in every call, not one tensor that the entry keeps.
TEST(Trace, MemoryMadeInsideIsNeverAnInput) {
  const ir::Graph graph = record_one(torch::ones({100}), [](const T& x) {
    T y = torch::empty({100}), z = torch::empty_like(x), w = torch::zeros({100});
    return y.fill_(1) + z.fill_(2) + w;
  });
  EXPECT_EQ(graph.inputs().size(), 1u);
}

TEST(Trace, MirrorsRequiresGradAndLeafness) {
  const T leaf = torch::ones({2}).set_requires_grad(true);
  const T inner = leaf * 2;
  Trace trace(flat({leaf, inner, torch::ones({2})}), {.names = kNames});
  trace.run([](const detail::Flat& in) {
    EXPECT_TRUE(in.tensors[0].requires_grad() && in.tensors[0].is_leaf());
    EXPECT_TRUE(in.tensors[1].requires_grad() && !in.tensors[1].is_leaf());
    EXPECT_FALSE(in.tensors[2].requires_grad());
    return detail::Flat{};
  });
}

TEST(Trace, TheFunctionSeesOneTensorForTheSameArgumentTwice) {
  const T x = torch::ones({2});
  Trace trace(flat({x, x}), {.names = kNames});
  trace.run([](const detail::Flat& in) {
    EXPECT_TRUE(in.tensors[0].is_same(in.tensors[1]));
    return detail::Flat{};
  });
  EXPECT_EQ(trace.stand_ins()[1].duplicate_of, 0);
}

TEST(Trace, TouchesNeitherTheRandomStreamNorTheArguments) {
  const T x = torch::ones({4});
  const T stream = at::detail::getDefaultCPUGenerator().get_state();
  record_one(x,
             [](const T& t) { return torch::dropout(t.mul_(3), 0.5, true) + torch::randn({4}); });
  EXPECT_TRUE(stream.equal(at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_TRUE(x.equal(torch::ones({4})));
  EXPECT_EQ(x._version(), 0);
}

TEST(Trace, LeavesTheThreadAsItWas) {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  {
    Trace trace(flat({torch::ones({2})}), {.names = kNames});
    EXPECT_TRUE(is_tracing());
    EXPECT_ANY_THROW(
        trace.run([](const detail::Flat&) -> detail::Flat { throw std::runtime_error("mine"); }));
  }
  EXPECT_FALSE(is_tracing());
  EXPECT_EQ(c10::impl::tls_local_dispatch_key_set().included_.raw_repr(),
            keys.included_.raw_repr());
  EXPECT_EQ(c10::impl::tls_local_dispatch_key_set().excluded_.raw_repr(),
            keys.excluded_.raw_repr());
  EXPECT_FALSE(is_traced(torch::ones({2}) * 2));
}

TEST(Trace, MetadataOfRepeatedCallsComesFromTheMemo) {
  Trace trace(flat({torch::ones({8, 8})}), {.names = kNames});
  trace.run([](const detail::Flat& in) {
    T x = in.tensors[0];
    for (int i = 0; i < 10; ++i) x = x.mm(in.tensors[0]);
    return flat({x});
  });
  EXPECT_EQ(trace.recording().metadata().counts().memo, 9);
}

TEST(Trace, OpsOfTheUserTrace) {
  static auto* library = [] {
    auto* made =
        new torch::Library(torch::Library::DEF, "tracetest", std::nullopt, __FILE__, __LINE__);
    made->def("shift(Tensor x, float by) -> Tensor", [](const T& x, double by) { return x + by; });
    return made;
  }();
  ASSERT_NE(library, nullptr);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tracetest::shift", "");
  const ir::Graph graph = record_one(
      torch::ones({2}), [&](const T& x) { return op.typed<T(const T&, double)>().call(x, 1.5); });
  EXPECT_GE(graph.node_count(), 1u);
}

}  // namespace
}  // namespace tandem::tracing
