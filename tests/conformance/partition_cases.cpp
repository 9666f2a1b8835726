#include "conformance/categories.h"
#include "conformance/variants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

/// Where the joint graph is cut.
namespace tandem::conformance {
namespace {

void every_node_is_backward(const Entry& entry) {
  EXPECT_GT(entry.backward().node_count(), 0);
  entry.backward().for_each_node([&](const ir::Node& node) {
    EXPECT_EQ(node.phase(), ir::Phase::Backward) << ir::print(entry.backward(), node);
  });
  entry.forward().for_each_node([&](const ir::Node& node) {
    EXPECT_EQ(node.phase(), ir::Phase::Forward) << ir::print(entry.forward(), node);
  });
}

/// Also of nodes that were recorded in the forward and are made again in the backward.
void backward_nodes_are_marked(Session& session) {
  Settings settings;
  settings.entry = every_node_is_backward;
  session.judge(
      leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0].sin().cos().sum()}; }, settings);
  settings.entry = [](const Entry& entry) {
    every_node_is_backward(entry);
    EXPECT_EQ(count_of(entry.forward(), "aten::t"), 1);
    EXPECT_GE(count_of(entry.backward(), "aten::t"), 1) << "nothing is made again";
  };
  session.judge(
      leaves({{4, 3}, {2, 3}}), [](Tensors& a) -> Tensors { return {a[0].mm(a[1].t()).sum()}; },
      settings);
}

/// Results of one op are saved one by one, those that are read.
void results_of_one_op(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    const int64_t saved = static_cast<int64_t>(entry.saved().size());
    EXPECT_EQ(saved, 5) << "input, weight, bias, mean, inverse deviation";
    EXPECT_EQ(entry.forward().inputs().size(), 3);
    EXPECT_EQ(entry.forward().outputs().size(), 1 + saved);
    EXPECT_EQ(entry.backward().inputs().size(), saved + 1);
    EXPECT_EQ(entry.backward().outputs().size(), 3);
  };
  session.judge(
      leaves({{4, 6}, {6}, {6}}),
      [](Tensors& a) -> Tensors { return {torch::layer_norm(a[0], {6}, a[1], a[2])}; }, settings);
}

/// A backward is a graph like any other: cut into the gradients of the input and of the weight.
void backward_cut_again(Session&) {
  const at::Tensor x = leaf({3, 4}), w = leaf({4, 2});
  const Split parts = tandem::split(tandem::export_joint(
      [](const at::Tensor& a, const at::Tensor& b) { return a.mm(b).sum(); }, std::tuple{x, w}));
  const auto part = [&](size_t index) {
    ir::Graph graph = parts.backward;
    graph.set_outputs({parts.backward.outputs()[index]});
    tandem::apply_pass("remove-dead-nodes", graph);
    return graph;
  };
  Tensors inputs = run_graph(parts.forward, {x.detach(), w.detach()});
  inputs.erase(inputs.begin());  // the loss; what is left is saved
  inputs.push_back(torch::ones({}));
  const Tensors whole = run_graph(parts.backward, inputs);
  ASSERT_EQ(whole.size(), 2);
  const ir::Graph of_input = part(0), of_weight = part(1);
  EXPECT_LT(of_input.node_count(), parts.backward.node_count());
  EXPECT_LT(of_weight.node_count(), parts.backward.node_count());
  EXPECT_TRUE(at::equal(run_graph(of_input, inputs)[0], whole[0]));
  EXPECT_TRUE(at::equal(run_graph(of_weight, inputs)[0], whole[1]));
  x.mm(w).sum().backward();
  EXPECT_TRUE(at::equal(whole[0], x.grad()));
  EXPECT_TRUE(at::equal(whole[1], w.grad()));
}

/// An op without results weighs nothing, and stays.
void op_without_results(Session& session) {
  Settings settings;
  settings.entry = [](const Entry& entry) {
    EXPECT_EQ(count_of(entry.forward(), "aten::_assert_async"), 1) << ir::print(entry.forward());
    int64_t bytes = 0;
    for (const Saved& saved : entry.saved()) bytes += saved.bytes;
    EXPECT_EQ(bytes, 4 * 4) << "the sine's operand";
  };
  session.judge(
      leaves({{4}}),
      [](Tensors& a) -> Tensors {
        const at::Tensor doubled = a[0] * 2;
        at::_assert_async((doubled == doubled).all());
        return {doubled.sin()};
      },
      settings);
}

/// Calls of a partition function for the program itself, not for its gradients, and what the last
/// one was told.
struct Calls {
  int64_t count = 0, training = 0;
  ir::Signature signature{};
  std::vector<ir::Role> roles{};
};
Partitioner watched(const std::shared_ptr<Calls>& calls) {
  return [calls](const Joint& joint, const Options& options) {
    if (std::ranges::any_of(joint.signature.inputs, &ir::InputFacts::history_only))
      return default_partition(joint, options);
    ++calls->count;
    calls->training += joint.signature.training;
    calls->signature = joint.signature;
    calls->roles.clear();
    for (const ir::ValueId input : joint.graph.inputs())
      calls->roles.push_back(joint.graph.input_role(input).role);
    return default_partition(joint, options);
  };
}

void partition_is_told(Session& session) {
  const auto calls = std::make_shared<Calls>();
  session.judge(with_options(
      leaves({{4}, {4}}), [](Tensors& a) -> Tensors { return {a[0] * a[1]}; },
      [=](Options& options) { options.partitioner = watched(calls); }));
  EXPECT_GT(calls->count, 0);
  ASSERT_EQ(calls->signature.inputs.size(), 2);
  EXPECT_TRUE(calls->signature.training);
  EXPECT_FALSE(calls->signature.writes_any_input());
  EXPECT_EQ(calls->signature.outputs.size(), 1);
  EXPECT_EQ(calls->signature.tangents.size(), 1);
}

void partition_is_told_of_writes(Session& session) {
  const auto calls = std::make_shared<Calls>();
  session.judge(with_options(
      [] {
        at::Tensor w = leaf({4});
        return Inputs{{torch::randn({4}), w}, {w}};
      },
      [](Tensors& a) -> Tensors {
        a[0].add_(1);
        return {a[0] * a[1]};
      },
      [=](Options& options) { options.partitioner = watched(calls); }));
  ASSERT_EQ(calls->signature.inputs.size(), 2);
  EXPECT_TRUE(calls->signature.inputs[0].data_written);
  EXPECT_FALSE(calls->signature.inputs[1].data_written);
}

void default_partition_by_name(Session& session) {
  session.judge(with_options(
      leaves({{4}, {4}}), [](Tensors& a) -> Tensors { return {a[0] * a[1]}; },
      [](Options& options) { options.partitioner = default_partition; }));
}

/// A pass of the user on the joint graph: called with forward and backward in one graph, and in
/// inference with a graph that has no tangents.
void joint_pass(Session&) {
  const auto calls = std::make_shared<Calls>();
  const auto compiled = tandem::compile([](const at::Tensor& x) { return x.sin() * 2; },
                                        {.partitioner = watched(calls)});
  const at::Tensor x = leaf({3});
  compiled(x).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().cos() * 2));
  EXPECT_EQ(calls->training, 1);
  EXPECT_EQ(calls->roles, (std::vector<ir::Role>{ir::Role::UserInput, ir::Role::Tangent}));
  compiled(x);
  EXPECT_EQ(calls->count, 1) << "once per entry";
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(compiled(x), x.sin() * 2));
  EXPECT_EQ(calls->training, 1);
  EXPECT_EQ(calls->roles, (std::vector<ir::Role>{ir::Role::UserInput}));
}

// ---- min-cut ----

void by_min_cut(Options& options) { options.partitioner = min_cut_recompute; }

/// Inputs and outputs of the two halves.
Settings halves(size_t forward_in, size_t forward_out, size_t backward_in, size_t backward_out) {
  Settings settings;
  settings.entry = [=](const Entry& entry) {
    EXPECT_EQ(entry.forward().inputs().size(), forward_in);
    EXPECT_EQ(entry.forward().outputs().size(), forward_out);
    EXPECT_EQ(entry.backward().inputs().size(), backward_in);
    EXPECT_EQ(entry.backward().outputs().size(), backward_out);
  };
  return settings;
}

void min_cut_split_is_made_again(Session& session) {
  Settings settings = halves(1, 2, 2, 1);
  const auto counts = settings.entry;
  settings.entry = [=](const Entry& entry) {
    counts(entry);
    const std::vector<std::string> ops = op_names(entry.backward());
    EXPECT_EQ(ops.empty() ? "" : ops.front(), "aten::split");
  };
  session.judge(with_options(
                    leaves({{4, 4}}),
                    [](Tensors& a) -> Tensors {
                      const Tensors parts = a[0].split(2);
                      return {parts[0].sin() + parts[1].cos()};
                    },
                    by_min_cut),
                settings);
}

void min_cut_called_by_hand(Session& session) {
  const auto called = std::make_shared<int64_t>(0);
  Settings settings = halves(1, 2, 2, 1);
  settings.entry = [](const Entry& entry) {
    ASSERT_EQ(entry.saved().size(), 1);
    EXPECT_EQ(entry.saved()[0].bytes, 0) << "the argument";
    EXPECT_EQ(count_of(entry.backward(), "aten::cos"), 1);
  };
  session.judge(with_options(
                    leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0].cos().cos()}; },
                    [=](Options& options) {
                      options.partitioner = [=](const Joint& joint, const Options& given) {
                        ++*called;
                        return min_cut_recompute(joint, given);
                      };
                    }),
                settings);
  EXPECT_GT(*called, 0);
}

void min_cut_with_sizes(Session& session) {
  session.judge(with_options(
      [] {
        at::Tensor a = leaf({3, 4}), b = leaf({4, 4}), c = leaf({1, 4});
        return Inputs{{a, b, c}, {a, b, c}};
      },
      [](Tensors& a) -> Tensors {
        const at::Tensor wide = a[2].expand({a[0].size(0), 4});
        const at::Tensor all = torch::cat({a[0], wide});
        return {all.mm(a[1]), a[1], all.mm(a[1]).mm(a[1])};
      },
      [](Options& options) {
        options.partitioner = min_cut_recompute;
        options.dynamic = Dynamic::always;
      }));
}

void min_cut_counts(Session& session) {
  session.judge(with_options(
                    leaves({{4}}), [](Tensors& a) -> Tensors { return {a[0].cos().cos().cos()}; },
                    by_min_cut),
                halves(1, 2, 2, 1));
  session.judge(with_options(
                    leaves({{4}, {4}, {4}, {4}}),
                    [](Tensors& a) -> Tensors { return {(a[0] + a[1] + a[2] + a[3]).cos().cos()}; },
                    by_min_cut),
                halves(4, 2, 2, 4));
}

}  // namespace

Category partition_default() {
  return {"Partitioner: default, extraction, tagging",
          {
              {"test_partitioned_backward_nodes_are_backward_tagged", backward_nodes_are_marked},
              {"test_default_partitioner_getitem", results_of_one_op},
              {"test_extract_fwd_bwd_modules_omit_aot_autograd_runtime", backward_cut_again},
              {"test_size_of_void_returning_nodes", op_without_results},
              {"test_partition_receives_fw_metadata", partition_is_told},
              {"test_partition_with_mutation", partition_is_told_of_writes},
              {"test_backward_compatibility_with_default_partition", default_partition_by_name},
              {"test_joint_custom_pass", joint_pass},
          }};
}

Category partition_min_cut() {
  return {"Partitioner: min-cut",
          {
              {"test_recompute_partitioning",
               [](Session& session) {
                 session.judge(with_options(
                     leaves({{4}, {4}}),
                     [](Tensors& a) -> Tensors { return {a[0].sin().sin() + a[1]}; }, by_min_cut));
               }},
              {"test_min_cut_partitioner_raise_getitems", min_cut_split_is_made_again},
              {"test_custom_partitioner_fn", min_cut_called_by_hand},
              {"test_min_cut_partitioner_output_tensor_shape_tensor", min_cut_with_sizes},
              {"test_min_cut_partitioner", min_cut_counts},
          }};
}

}  // namespace tandem::conformance
