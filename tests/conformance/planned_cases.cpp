#include "conformance/categories.h"
#include "conformance/variants.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

/// Small categories: most of them wait for a feature of their own.
namespace tandem::conformance {
namespace {

/// A node that orders others without computing: needed where streams run side by side. On the CPU
/// the order of the nodes is the order of the work.
Case ordering(std::string name, std::string what) {
  return {std::move(name),
          [=](Session& session) { session.missing("nodes that order others: " + what); },
          later(Feature::Cuda, "nodes that order others")};
}

/// The gradient of a gradient, outside.
void create_graph(Session&) {
  const auto compiled = tandem::compile([](const at::Tensor& x) { return x * x; });
  const at::Tensor x = leaf({3});
  const at::Tensor first =
      torch::autograd::grad({compiled(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  EXPECT_TRUE(at::equal(first, x.detach() * 2));
  const at::Tensor second = torch::autograd::grad({first.sum()}, {x})[0];
  EXPECT_TRUE(at::equal(second, torch::full({3}, 2.0)));
}

at::Tensor slope(const at::Tensor& y, const at::Tensor& x, bool create) {
  return torch::autograd::grad({y.sum()}, {x}, {}, true, create)[0];
}

/// Where the two derivatives are taken: the peer allows one inside, eager all of them.
void double_backward_inside_and_outside(Session& session) {
  const Function first_inside = [](Tensors& a) -> Tensors {
    return {slope(a[0].sin().exp(), a[0], false)};
  };
  session.judge(leaves({{4}}), first_inside);
  const Function both_inside = [](Tensors& a) -> Tensors {
    return {slope(slope(a[0].sin().exp(), a[0], true), a[0], false)};
  };
  session.judge(leaves({{4}}), both_inside);
  session.judge(leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0].sin().exp()}; });
  const auto compiled = tandem::compile([](const at::Tensor& x) { return x.sin().exp(); });
  const at::Tensor x = leaf({4});
  const at::Tensor found = slope(slope(compiled(x), x, true), x, false);
  EXPECT_TRUE(at::allclose(found, slope(slope(x.sin().exp(), x, true), x, false)));
}

/// Without grad: a view of a result that is returned, too, needs no base of its own.
void view_of_a_result(Session& session) {
  Settings settings;
  settings.around = in_no_grad_mode;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.kind(), EntryKind::inference);
    const ir::Signature& signature = entry.signature();
    EXPECT_EQ(outputs_of(entry.forward(), ir::Role::Base), 0) << ir::print(entry.forward());
    EXPECT_EQ(signature.outputs[0].kind, ir::OutputKind::AliasOfBase) << signature;
    EXPECT_EQ(signature.outputs[1].kind, ir::OutputKind::Fresh) << signature;
    ASSERT_EQ(signature.bases.size(), 1) << signature;
    EXPECT_EQ(signature.bases[0].output, 1) << signature;
  };
  const Function program = [](Tensors& a) -> Tensors {
    const at::Tensor base = a[0] + 1;
    return {base.view(-1), base};
  };
  session.judge(plain({{2, 3}}), program, settings);
  session.judge(leaves({{2, 3}}), program, settings);
}

void cached_twice(Session&) {
  const test::TemporaryFolder folder("conformance");
  for (int64_t run = 0; run < 2; ++run) {
    const auto compiled =
        tandem::compile([](const at::Tensor& a, const at::Tensor& b) { return a.sin() + b; },
                        {.cache_dir = folder.path()});
    const at::Tensor a = leaf({25}), b = leaf({25});
    compiled(a, b).sum().backward();
    EXPECT_TRUE(at::equal(a.grad(), a.detach().cos()));
    EXPECT_TRUE(at::equal(b.grad(), torch::ones({25})));
    EXPECT_EQ(compiled.stats().compiles, 1 - run) << "run " << run;
  }
}

void cached_with_sizes(Session&) {
  const test::TemporaryFolder folder("conformance");
  for (int run = 0; run < 2; ++run) {
    const auto compiled = tandem::compile(
        [](const at::Tensor& x, const at::Tensor& y) { return Tensors{torch::cat({x, x}), x * y}; },
        {.dynamic = Dynamic::always, .cache_dir = folder.path()});
    for (const int64_t n : {3, 5, 7}) {
      const at::Tensor x = leaf({n}), y = leaf({n});
      const Tensors results = compiled(x, y);
      (results[0].sum() + results[1].sum()).backward();
      EXPECT_TRUE(at::allclose(x.grad(), y.detach() + 2));
    }
  }
}

/// One step of a preconditioned optimizer without grad mode: parameters are transposed halves of
/// one buffer and are written through lists of tensors.
void shampoo(Session& session) {
  session.judge(
      [] {
        at::Tensor buffer = torch::randn({4, 6});
        Inputs inputs;
        for (const int64_t start : {0, 2})
          inputs.arguments.push_back(buffer.narrow(0, start, 2).t());
        for (int i = 0; i < 2; ++i) inputs.arguments.push_back(torch::randn({6, 2}));
        for (int i = 0; i < 2; ++i) inputs.arguments.push_back(torch::eye(6));
        inputs.watched = {buffer};
        return inputs;
      },
      [](Tensors& a) -> Tensors {
        const torch::NoGradGuard no_grad;
        Tensors parameters = {a[0], a[1]}, gradients = {a[2], a[3]}, factors = {a[4], a[5]};
        at::_foreach_mul_(factors, 0.9);
        at::_foreach_add_(factors,
                          {gradients[0].mm(gradients[0].t()), gradients[1].mm(gradients[1].t())});
        at::_foreach_mul_(gradients, 0.5);
        const Tensors steps = {torch::linalg_solve(factors[0], gradients[0]),
                               torch::linalg_solve(factors[1], gradients[1])};
        at::_foreach_add_(parameters, steps, -0.1);
        return {parameters[0], parameters[1], factors[0], factors[1], gradients[0], gradients[1]};
      });
}

}  // namespace

Category ordering_nodes() {
  return {"Streams and ordering nodes",
          {
              ordering("test_extract_graph_control_deps_mixed_validity",
                       "what the forward does not have is dropped from one"),
              ordering("test_extract_graph_control_deps_all_invalid",
                       "one that has nothing left to order is gone"),
              ordering("test_extract_graph_control_deps_getitem_index_remap",
                       "its results are counted anew"),
              ordering("test_extract_graph_control_deps_additional_deps_filtered",
                       "what only has to come before is filtered, too"),
              ordering("test_extract_graph_control_deps_preserves_subgraph_operation",
                       "the op inside stays"),
              ordering("test_backward_extract_eliminates_fwd_sync_fully_valid",
                       "one of the forward is gone from the backward, its values stand for it"),
              ordering("test_backward_extract_eliminates_fwd_sync_mixed_validity",
                       "the same where the backward has some of its values"),
              ordering("test_backward_extract_preserves_bwd_sync_control_deps",
                       "one of the backward stays with its op"),
          }};
}

Category double_backward() {
  return {"Double backward",
          {
              {"test_backward_epilogue_create_graph", create_graph},
              {"test_double_backward_with_compile", double_backward_inside_and_outside},
          }};
}

Category metadata_records() {
  return {"Metadata analysis records",
          {{"test_collect_metadata_no_grad_no_op_view_of_user_output", view_of_a_result}}};
}

Category cache() {
  const Standing standing = later(Feature::Cache, "cache_dir is not built");
  return {"Cache",
          {
              {"test_autograd_function", cached_twice, standing},
              {"test_dynamic_shapes_different_sizes", cached_with_sizes, standing},
          }};
}

Category compiled_optimizers() {
  return {"Compiled optimisers", {{"test_basic_shampoo", shampoo}}};
}

}  // namespace tandem::conformance
