#include "base/error.h"
#include "partition/saved_values.h"
#include "passes/merge_duplicates.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/text.h"
#include "tandem/stages.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using partition::SavedValue;

// `net.joint` -> `net`: the halves are named after what they are halves of.
std::string base_name(std::string_view joint_name) {
  constexpr std::string_view kSuffix = ".joint";
  if (joint_name.ends_with(kSuffix)) joint_name.remove_suffix(kSuffix.size());
  return std::string(joint_name);
}

std::vector<ir::Output> outputs_of(const ir::Graph& joint, bool grads) {
  std::vector<ir::Output> chosen;
  for (const ir::Output& output : joint.outputs()) {
    if ((output.role.role == ir::Role::Grad) == grads) chosen.push_back(output);
  }
  return chosen;
}

bool is_tangent(const ir::Graph& graph, ir::ValueId input) {
  return graph.input_role(input).role == ir::Role::Tangent;
}

void clean(ir::Graph& graph) {
  passes::remove_dead_nodes(graph);
  passes::merge_duplicates(graph);
  ir::verify(graph, "partition");
}

// Ids mean the same in a copy, so each half is the joint with the other half taken away: names,
// locations, constants and generators stay where they are.
ir::Graph forward_half(const ir::Graph& joint, std::span<const SavedValue> saved) {
  ir::Graph forward = joint;
  forward.set_name(base_name(joint.name()) + ".forward");
  std::vector<ir::Output> outputs = outputs_of(joint, false);
  for (size_t i = 0; i < saved.size(); ++i) {
    outputs.push_back({saved[i].value, ir::Descriptor::saved(static_cast<int64_t>(i))});
  }
  forward.set_outputs(std::move(outputs));
  forward.for_each_node_reversed([&](ir::Node& node) {
    if (node.phase() == ir::Phase::Backward) forward.erase(node);
  });
  const std::vector<ir::ValueId> inputs(forward.inputs().begin(), forward.inputs().end());
  for (ir::ValueId input : inputs) {
    if (is_tangent(forward, input)) forward.erase_input(input);
  }
  clean(forward);
  return forward;
}

ir::Graph backward_half(const ir::Graph& joint, std::span<const SavedValue> saved) {
  ir::Graph backward = joint;
  backward.set_name(base_name(joint.name()) + ".backward");
  backward.set_outputs(outputs_of(joint, true));

  const std::vector<ir::ValueId> old_inputs(backward.inputs().begin(), backward.inputs().end());
  std::vector<ir::ValueId> order;
  for (size_t i = 0; i < saved.size(); ++i) {
    const ir::Value& value = joint.value(saved[i].value);
    const ir::ValueId input =
        backward
            .add_input(value.type(), ir::Descriptor::saved(static_cast<int64_t>(i)), value.name())
            .id();
    backward.replace_all_uses(saved[i].value, input);
    order.push_back(input);
  }
  // Draws and effects of the forward have happened there: gone, though the clean-up would keep
  // them. What is left of the forward is what is made again: views of saved values, and constants.
  backward.for_each_node_reversed([&](ir::Node& node) {
    if (node.phase() == ir::Phase::Backward) return;
    const bool read = std::ranges::any_of(node.results(), [&](ir::ValueId id) {
      return id != ir::kNoValue && backward.value(id).has_users();
    });
    if (!read) {
      backward.erase(node);
      return;
    }
    TANDEM_CHECK(partition::is_repeatable(node), "partition",
                 "the backward reads a forward value that was not saved\n  value:  ",
                 ir::print(backward, node));
    backward.set_phase(node, ir::Phase::Backward);
  });
  for (ir::ValueId input : old_inputs) {
    if (is_tangent(backward, input)) {
      order.push_back(input);
    } else {
      backward.erase_input(input);
    }
  }
  backward.reorder_inputs(std::move(order));
  clean(backward);
  return backward;
}

bool has_backward(const ir::Graph& joint) {
  return std::ranges::any_of(joint.inputs(),
                             [&](ir::ValueId input) { return is_tangent(joint, input); }) ||
         !outputs_of(joint, true).empty();
}

}  // namespace

Split default_partition(const Joint& joint, const Options&) {
  Split split;
  split.signature = joint.signature;
  ir::Graph whole = joint.graph;
  // Before anything is saved: what only a dead node reads need not be.
  passes::remove_dead_nodes(whole);
  if (!has_backward(whole)) {
    split.forward = forward_half(whole, {});
    return split;
  }
  const std::vector<SavedValue> saved = partition::saved_values(whole);
  partition::name_saved_values(whole, saved);
  for (const SavedValue& value : saved) split.saved.push_back(partition::describe(whole, value));
  split.forward = forward_half(whole, saved);
  split.backward = backward_half(whole, saved);
  return split;
}

Split min_cut(const Joint&, const Options&) {
  TANDEM_UNSUPPORTED(
      "partition", "the min-cut partitioner is not built yet",
      "\n  remedy: use default_partition, which saves what the recorded backward reads");
}

}  // namespace tandem
