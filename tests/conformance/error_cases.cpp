#include "conformance/categories.h"
#include "conformance/variants.h"
#include "partition/min_cut/flow_network.h"

#include <gtest/gtest.h>

#include <tuple>

/// Refusals, and what the peer refuses but we need not.
namespace tandem::conformance {
namespace {

/// The class of the error and the words that its text must have.
template <class Error, class Body>
void expect_error(const Body& body, const std::vector<std::string>& words) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

/// Re-pointed by `set_`, then written in a way that autograd sees: refused, and nothing has
/// happened.
void set_then_written(Session&) {
  const at::Tensor x = leaf({3, 3}) * 2, source = torch::ones({3, 3});
  const at::Tensor before = x.detach().clone();
  const auto version = x._version();
  const auto* storage = x.storage().unsafeGetStorageImpl();
  const auto compiled = tandem::compile([](const at::Tensor& a, const at::Tensor& b) {
    {
      const torch::NoGradGuard no_grad;
      a.set_(b);
    }
    a.mul_(2);
    return a * 3;
  });
  expect_error<UnsupportedError>([&] { compiled(x, source); }, {"argument 0", "set_()", "remedy"});
  EXPECT_TRUE(at::equal(x.detach(), before));
  EXPECT_TRUE(at::equal(source, torch::ones({3, 3})));
  EXPECT_EQ(x._version(), version);
  EXPECT_EQ(x.storage().unsafeGetStorageImpl(), storage);
}

/// Two arguments on one memory, the second a view, the first related to nothing.
void views_without_relation(Session& session) {
  session.judge(
      [] {
        at::Tensor x = leaf({4}), base = x * 2;
        at::Tensor other = torch::empty({0});
        {
          const torch::NoGradGuard no_grad;
          other.set_(base.storage(), 0, {4}, {1});
        }
        return Inputs{{other, base.view({2, 2})}, {x}, {base}};
      },
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        return {a[0].sum() + a[1].sum()};
      });
}

void mixed_bases(Session& session) {
  session.judge(
      [] {
        at::Tensor base = torch::randn({4});
        at::Tensor other = torch::empty({0});
        other.set_(base.storage(), 0, {4}, {1});
        return Inputs{{base.view({2, 2}), other}, {}, {base}};
      },
      [](Tensors& a) -> Tensors {
        a[0].mul_(2);
        return {a[0].sum() + a[1].sum()};
      });
}

/// An entry for one pattern of duplicates is not used for another: a new entry instead of an error.
void duplicates_change(bool prepared) {
  const auto program = [](const at::Tensor& x, const at::Tensor& y) {
    x.unsqueeze_(0);
    y.unsqueeze_(0);
    return x + y;
  };
  for (const bool duplicate_first : {false, true}) {
    const auto compiled = tandem::compile(program);
    for (const bool duplicate : {duplicate_first, !duplicate_first}) {
      const auto arguments = [&] {
        torch::manual_seed(1);
        const at::Tensor x = torch::randn({3}), y = duplicate ? x : torch::randn({3});
        return std::pair{x, y};
      };
      if (prepared) {
        // Prepared with other tensors than it is called with: only their kind counts.
        const auto [x, y] = arguments();
        compiled.prepare(x, y);
        EXPECT_EQ(x.dim(), 1) << "prepare has run the function";
      }
      const auto [x, y] = arguments();
      const auto [a, b] = arguments();
      EXPECT_TRUE(at::equal(compiled(x, y), program(a, b)));
      EXPECT_EQ(x.sizes(), a.sizes());
      EXPECT_EQ(y.sizes(), b.sizes());
      EXPECT_EQ(x.strides(), a.strides());
    }
    EXPECT_EQ(compiled.stats().entries, 2);
    ASSERT_FALSE(compiled.stats().misses.empty());
    const std::string reason = compiled.stats().misses.back().reason;
    EXPECT_NE(reason.find("argument 0"), std::string::npos) << reason;
    EXPECT_NE(reason.find("argument 1"), std::string::npos) << reason;
  }
}

/// The same of `requires_grad`.
void requires_grad_changes(bool prepared) {
  const auto program = [](const at::Tensor& x, const at::Tensor& y) { return x + y; };
  for (const bool both_first : {true, false}) {
    const auto compiled = tandem::compile(program);
    for (const bool both : {both_first, !both_first}) {
      if (prepared) compiled.prepare(leaf({3}), leaf({3}, both));
      const at::Tensor x = leaf({3}), y = leaf({3}, both);
      const at::Tensor sum = compiled(x, y);
      EXPECT_TRUE(at::equal(sum, x + y));
      sum.sum().backward();
      EXPECT_TRUE(at::equal(x.grad(), torch::ones({3})));
      EXPECT_EQ(y.grad().defined(), both);
    }
    EXPECT_EQ(compiled.stats().entries, 2);
    ASSERT_FALSE(compiled.stats().misses.empty());
    const std::string reason = compiled.stats().misses.back().reason;
    EXPECT_NE(reason.find("argument 1"), std::string::npos) << reason;
    EXPECT_NE(reason.find("grad"), std::string::npos) << reason;
  }
}

/// A parameter of 3 and a forward that the case writes.
struct Net : torch::nn::Module {
  using Body = std::function<Tensors(Net&, const at::Tensor&, const at::Tensor&)>;
  explicit Net(Body body) : body(std::move(body)) {
    weight = register_parameter("weight", torch::ones({3}));
  }
  Tensors forward(const at::Tensor& x, const at::Tensor& y) { return body(*this, x, y); }
  Body body;
  at::Tensor weight;
};
Exported export_net(Net::Body body, const ExportOptions& options, const at::Tensor& x,
                    const at::Tensor& y = torch::ones({3})) {
  return tandem::export_module(std::make_shared<Net>(std::move(body)), std::tuple{x, y}, options);
}

const std::vector<ExportOptions> kBothExports = {{}, {.joint = true}};

void exported_metadata_mutation(Session&) {
  for (const ExportOptions& options : kBothExports) {
    const at::Tensor x = torch::ones({2, 3});
    const auto transposed = [](Net& net, const at::Tensor& x, const at::Tensor&) -> Tensors {
      x.t_();
      return {(x.t() * net.weight).sum()};
    };
    expect_error<UnsupportedError>([&] { export_net(transposed, options, x); },
                                   {"argument 0", "other sizes, strides or storage", "remedy"});
    EXPECT_EQ(x.sizes(), (std::vector<int64_t>{2, 3})) << "something has happened";
  }
}

void exported_parameter_mutation(Session&) {
  const auto doubled = [](Net& net, const at::Tensor& x, const at::Tensor&) -> Tensors {
    {
      const torch::NoGradGuard no_grad;
      net.weight.mul_(2);
    }
    return {(x * net.weight).sum()};
  };
  const at::Tensor x = torch::randn({3});
  expect_error<UnsupportedError>([&] { export_net(doubled, {.joint = true}, x); },
                                 {"parameter \"weight\"", "requires grad", "remedy"});
  const Exported exported = export_net(doubled, {}, x);
  ASSERT_EQ(exported.signature.mutated_parameters.count("weight"), 1);
  Tensors inputs(exported.graph.inputs().size());
  inputs.at(exported.signature.parameters.at("weight")) = torch::ones({3});
  inputs.at(exported.signature.user_inputs.at(0)) = x;
  inputs.at(exported.signature.user_inputs.at(1)) = x;
  const Tensors results = run_graph(exported.graph, inputs);
  EXPECT_TRUE(at::equal(results.at(exported.signature.mutated_parameters.at("weight")),
                        torch::full({3}, 2.0)));
  EXPECT_TRUE(at::equal(results.at(exported.signature.user_outputs.at(0)), (x * 2).sum()));
}

Tensors first_written(Net& net, const at::Tensor& x, const at::Tensor& y) {
  x.add_(1);
  return {(x * y * net.weight).sum()};
}

void exported_overlap(Session&, bool duplicate) {
  for (const ExportOptions& options : kBothExports) {
    const at::Tensor base = torch::ones({4});
    const at::Tensor x = base.slice(0, 0, 3), y = duplicate ? x : base.slice(0, 1, 4);
    expect_error<UnsupportedError>([&] { export_net(first_written, options, x, y); },
                                   {"argument 0", "argument 1", "remedy"});
    EXPECT_TRUE(at::equal(base, torch::ones({4}))) << "something has happened";
  }
}

void exported_two_results(Session&) {
  const auto two = [](Net& net, const at::Tensor& x, const at::Tensor& y) -> Tensors {
    return {(x * net.weight).sum(), y * net.weight};
  };
  expect_error<UserError>([&] { export_net(two, {.joint = true}, torch::ones({3})); },
                          {"output 1 requires grad beside the loss", "remedy: detach()"});
  EXPECT_NO_THROW(export_net(two, {}, torch::ones({3})));
}

/// An exported graph draws what eager draws: nothing to refuse.
void exported_draws(Session&) {
  const auto noisy = [](Net& net, const at::Tensor& x, const at::Tensor&) -> Tensors {
    return {(torch::rand_like(x) * net.weight * x).sum()};
  };
  const at::Tensor x = torch::randn({3});
  for (const ExportOptions& options : kBothExports) {
    const Exported exported = export_net(noisy, options, x);
    Tensors inputs(exported.graph.inputs().size(), x);
    inputs.at(exported.signature.parameters.at("weight")) = torch::ones({3});
    torch::manual_seed(4);
    const at::Tensor expected = (torch::rand_like(x) * torch::ones({3}) * x).sum();
    torch::manual_seed(4);
    const Tensors results = run_graph(exported.graph, inputs);
    EXPECT_TRUE(at::equal(results.at(exported.signature.user_outputs.at(0)), expected));
  }
}

/// Min and max into tensors of another dtype.
void wrong_out_dtype(Session& session) {
  Settings settings;
  settings.raises = "Expected out tensor to have dtype";
  session.judge(
      [] { return Inputs{{torch::randn({5}), torch::empty({}, torch::kLong), torch::empty({})}}; },
      [](Tensors& a) -> Tensors {
        at::aminmax_out(a[1], a[2], a[0], 0, false);
        return {a[1], a[2]};
      },
      settings);
}

/// The CPU draws like any device.
void draws_on_the_cpu(Session& session) {
  session.judge(leaves({{4}}),
                [](Tensors& a) -> Tensors { return {torch::rand_like(a[0]) * a[0]}; });
}

void leaf_set(Session& session) {
  Settings settings;
  settings.raises = "a leaf Variable that requires grad is being used in an in-place operation";
  session.judge(
      [] {
        at::Tensor x = leaf({3});
        return Inputs{{x, torch::ones({3})}, {x}};
      },
      [](Tensors& a) -> Tensors {
        a[0].set_(a[1]);
        return {a[0] * 2};
      },
      settings);
}

void expanded_write(Session& session) {
  Settings settings;
  settings.raises = "unsupported operation: more than one element of the written-to tensor";
  const Function program = [](Tensors& a) -> Tensors {
    at::Tensor y = a[0].expand({3, 4});
    y.add_(1);
    return {y * 2};
  };
  session.judge(plain({{4}}), program, settings);
}

/// Neither computed again nor saved, and the backward needs it: the edges of the path say so one by
/// one. With one finite edge there is no such path.
void path_that_cannot_be_cut() {
  using partition::FlowNetwork;
  const auto reasons = [](int64_t weight) {
    FlowNetwork network;
    const auto source = network.add_vertex(), sink = network.add_vertex();
    const auto draw_in = network.add_vertex(), draw_out = network.add_vertex();
    const auto reader = network.add_vertex();
    network.add_edge({source, draw_in, FlowNetwork::kInfinite, "cannot be computed again"});
    network.add_edge({draw_in, draw_out, weight, "cannot be saved"});
    network.add_edge({draw_out, reader, FlowNetwork::kInfinite, "reads it"});
    network.add_edge({reader, sink, FlowNetwork::kInfinite, "runs in the backward"});
    std::vector<std::string> found;
    for (const auto edge : partition::infinite_path(network, source, sink))
      found.emplace_back(network.edges()[static_cast<size_t>(edge)].reason);
    return found;
  };
  EXPECT_EQ(reasons(FlowNetwork::kInfinite),
            (std::vector<std::string>{"cannot be computed again", "cannot be saved", "reads it",
                                      "runs in the backward"}));
  EXPECT_EQ(reasons(16), std::vector<std::string>{});
}

}  // namespace

Category error_messages() {
  return {"Error messages and run-time assertions",
          {
              {"test_set__not_allowed", set_then_written},
              {"test_merge_view_inputs_error_non_differentiable_views", views_without_relation},
              {"test_merge_view_inputs_error_mixed_base_states", mixed_bases},
              {"test_invalid_dupe", [](Session&) { duplicates_change(false); }},
              {"test_invalid_dupe_fake", [](Session&) { duplicates_change(true); }},
              {"test_invalid_requires_grad", [](Session&) { requires_grad_changes(false); }},
              {"test_invalid_requires_grad_fake", [](Session&) { requires_grad_changes(true); }},
              {"test_aot_export_metadata_mutation_banned", exported_metadata_mutation},
              {"test_aot_export_input_mutation_on_parameter_banned", exported_parameter_mutation},
              {"test_aot_export_synthetic_bases_banned",
               [](Session& session) { exported_overlap(session, false); }},
              {"test_aot_export_input_dupes_banned",
               [](Session& session) { exported_overlap(session, true); }},
              {"test_aot_export_multiple_outputs_require_grad_banned", exported_two_results},
              {"test_aot_export_functionalized_rng_banned", exported_draws,
               differs("draws are eager's own")},
              {"test_min_cut_partitioner_unbounded_error_message",
               [](Session&) { path_that_cannot_be_cut(); }},
              {"test_aminmax_out_dtype_mismatch_errors", wrong_out_dtype},
              {"test_on_cpu", draws_on_the_cpu, differs("draws are eager's own")},
              {"test_aot_autograd_raises_invalid_leaf_set", leaf_set},
              {"test_aot_autograd_expand_mutation_error", expanded_write},
          }};
}

}  // namespace tandem::conformance
