#include "conformance/categories.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

#include <tuple>

/// Sizes that change from call to call.
namespace tandem::conformance {
namespace {

void symbolic(Options& options) { options.dynamic = Dynamic::always; }

/// Calls in turn with these sizes of the first dimension; the last one stays.
MakeInputs growing(std::vector<int64_t> sizes, std::vector<int64_t> rest = {}) {
  const auto next = std::make_shared<size_t>(0);
  return [=] {
    std::vector<int64_t> shape = {sizes[std::min((*next)++, sizes.size() - 1)]};
    shape.insert(shape.end(), rest.begin(), rest.end());
    at::Tensor x = leaf(shape);
    return Inputs{{x}, {x}};
  };
}

/// Each set of sizes is recorded once: with write-back in the graph there are four calls, with an
/// epilogue two.
Settings recorded(int64_t traces, int64_t epilogue_traces) {
  Settings settings;
  settings.traces = traces;
  settings.epilogue_traces = epilogue_traces;
  return settings;
}

/// Eager's and the compiled program each go through the sizes by themselves.
MakeProgram with_sizes(std::vector<int64_t> sizes, std::vector<int64_t> rest, Function function) {
  return [=] { return with_options(Program{growing(sizes, rest), function}, symbolic); };
}

/// Sparse gradients are refused, whatever the sizes.
void embedding_bag(Session& session) {
  Settings settings;
  settings.refused = "a tensor of layout Sparse cannot be traced";
  for (const bool dynamic : {false, true}) {
    session.judge(
        [=] {
          const at::Tensor weight = leaf({10, 3});
          const Program program{[=] {
                                  return Inputs{{torch::randint(0, 10, {6}, torch::kLong),
                                                 torch::tensor({0, 3}, torch::kLong)},
                                                {weight}};
                                },
                                [=](Tensors& a) -> Tensors {
                                  return {std::get<0>(at::embedding_bag(weight, a[0], a[1], false,
                                                                        0, /*sparse=*/true))
                                              .view(-1)};
                                }};
          return dynamic ? with_options(program, symbolic) : program;
        },
        settings);
  }
}

/// A number among the results has no tangent.
void size_among_the_results(Session& session) {
  Settings settings = recorded(3, 2);
  settings.entry = [](const Entry& entry) {
    int64_t tangents = 0;
    for (const ir::ValueId input : entry.backward().inputs())
      tangents += entry.backward().input_role(input).role == ir::Role::Tangent;
    EXPECT_EQ(tangents, 1);
  };
  const auto function = [](const at::Tensor& x) {
    return std::tuple<at::Tensor, int64_t>(x + 1, x.size(0));
  };
  const auto call = [](const auto& f, Tensors& a) -> Tensors {
    const auto [sum, size] = f(a[0]);
    EXPECT_EQ(size, a[0].size(0));
    return {sum};
  };
  session.judge(
      [=] {
        return Program{growing({4, 5, 6}), [=](Tensors& a) -> Tensors { return call(function, a); },
                       [=](Options options) {
                         symbolic(options);
                         return handle_of(tandem::compile(function, options), call);
                       }};
      },
      settings);
}

void expanded_to_its_own_sizes(Session& session) {
  session.judge(
      with_sizes({4, 5}, {3},
                 [](Tensors& a) -> Tensors { return {a[0].expand_symint(a[0].sym_sizes())}; }),
      recorded(2, 2));
}

/// Tensors and an argument. Sizes are constants of both halves: nothing crosses for them.
void shapes_among_the_results(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(entry.forward().inputs().size(), 4);
    EXPECT_EQ(entry.backward().outputs().size(), 4);
    int64_t numbers = 0;
    for (const ir::ValueId input : entry.backward().inputs())
      numbers += entry.backward().value(input).tensor_type() == nullptr;
    EXPECT_EQ(numbers, 0);
  };
  session.judge(with_options(
                    [] {
                      at::Tensor a = leaf({3, 4}), b = leaf({4, 4}), c = leaf({1, 4}),
                                 d = leaf({4, 4});
                      return Inputs{{a, b, c, d}, {a, b, c, d}};
                    },
                    [](Tensors& a) -> Tensors {
                      const at::Tensor wide = a[2].expand({a[0].size(0), 4});
                      const at::Tensor all = torch::cat({a[0], wide});
                      return {all.mm(a[1]), a[1], all.mm(a[1]).mm(a[3])};
                    },
                    symbolic),
                settings);
}

void backward_of_several_sizes(Session& session) {
  session.judge(with_sizes({4, 8, 16}, {}, [](Tensors& a) -> Tensors { return {a[0] * a[0]}; }),
                recorded(3, 2));
}

/// Each batch is a set of sizes of one entry.
void linear_with_a_free_batch(Session& session) {
  Settings settings = recorded(4, 2);
  session.judge(
      [] {
        torch::nn::Linear net(20, 30);
        const auto batch = std::make_shared<int64_t>(15);
        return with_options(
            Program{[=] {
                      ++*batch;
                      at::Tensor x = leaf({*batch, 20}), y = leaf({*batch, 30});
                      return Inputs{{x, y}, {x, y, net->weight, net->bias}};
                    },
                    [net](Tensors& a) mutable -> Tensors { return {net->forward(a[0]) + a[1]}; }},
            symbolic);
      },
      settings);
}

/// One number in the data: its place, without dimensions.
void place_of_one_number(Session& session) {
  session.judge(
      [] {
        at::Tensor x = torch::zeros({5});
        x[3] = 1;
        return Inputs{{x}};
      },
      [](Tensors& a) -> Tensors { return {a[0].nonzero().squeeze() + 1}; });
}

/// With nothing found, and with something.
void nothing_found(Session&) {
  const auto program = [](const at::Tensor& x, const at::Tensor& w) { return x.nonzero() * w; };
  const auto compiled = tandem::compile(program);
  for (const at::Tensor& x : {torch::zeros({5}), torch::ones({5}), torch::arange(5)}) {
    const at::Tensor a = leaf({1}), b = a.detach().clone().requires_grad_();
    const at::Tensor eager = program(x.to(at::kFloat), a), result = compiled(x.to(at::kFloat), b);
    EXPECT_TRUE(eager.equal(result));
    EXPECT_EQ(eager.strides(), result.strides());
    eager.sum().backward();
    result.sum().backward();
    EXPECT_TRUE(a.grad().equal(b.grad()));
    const at::Tensor again = compiled(x.to(at::kFloat), b).sum();
    EXPECT_THROW(torch::autograd::grad({again}, {b}, {}, true, true), UnsupportedError);
  }
  EXPECT_EQ(compiled.stats().compiles, 1);
}

void layer_norm_twice(Session& session) {
  for (const int64_t batch : {2, 3, 5, 8}) {
    const auto compiled =
        tandem::compile([](const at::Tensor& x) { return torch::layer_norm(x, {4}).pow(2).sum(); },
                        {.dynamic = Dynamic::always});
    const at::Tensor x = leaf({batch, 4});
    const at::Tensor first = torch::autograd::grad({compiled(x)}, {x}, {}, true, true)[0];
    const at::Tensor second = torch::autograd::grad({first.pow(2).sum()}, {x})[0];
    EXPECT_EQ(second.sizes(), x.sizes());
    EXPECT_EQ(compiled.stats().compiles, 1);
  }
  session.judge(with_sizes({2, 3, 5, 8}, {4},
                           [](Tensors& a) -> Tensors { return {torch::layer_norm(a[0], {4})}; }),
                recorded(4, 2));
}

}  // namespace

Category dynamic_shapes() {
  return {"Dynamic shapes",
          {
              {"test_embedding_bag_view_dynamic", embedding_bag},
              {"test_dynamic_shape_output_not_in_bw_graph", size_among_the_results},
              {"test_output_op_depending_on_symint", expanded_to_its_own_sizes},
              {"test_default_partitioner_output_tensor_shape_tensor", shapes_among_the_results},
              {"test_compiled_backward_dynamic_shapes", backward_of_several_sizes},
              {"test_aot_module_simplified_dynamic", linear_with_a_free_batch},
              {"test_aot_autograd_stride_reconstruction_on_zero_dim_dynamic_shaped_tensor",
               place_of_one_number, later(Feature::SymbolicShapes, "aten.squeeze")},
              {"test_unbacked_activation_specialized_in_inductor", nothing_found,
               differs("gradients of gradients are refused where sizes depend on data")},
              {"test_layer_norm_double_backward_dynamic_shapes", layer_norm_twice},
          }};
}

}  // namespace tandem::conformance
