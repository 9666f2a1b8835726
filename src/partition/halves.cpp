#include "partition/halves.h"

#include "base/error.h"
#include "ops/op_table.h"
#include "ops/reads.h"
#include "passes/remove_dead_nodes.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::partition {
namespace {

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

}  // namespace

bool has_backward(const ir::Graph& joint) {
  return std::ranges::any_of(joint.inputs(),
                             [&](ir::ValueId input) { return is_tangent(joint, input); }) ||
         !outputs_of(joint, true).empty();
}

// Ids mean the same in a copy, so each half is the joint with the other half taken away: names,
// locations, constants and generators stay where they are.
ir::Graph forward_half(const ir::Graph& joint, std::span<const SavedValue> saved) {
  ir::Graph forward = joint;
  forward.set_name(base_name(joint.name()) + ".forward");
  std::vector<ir::Output> outputs = outputs_of(joint, false);
  for (size_t i = 0; i < saved.size(); ++i)
    outputs.push_back({saved[i].value, ir::Descriptor::saved(static_cast<int64_t>(i))});
  forward.set_outputs(std::move(outputs));
  forward.for_each_node_reversed([&](ir::Node& node) {
    const bool recorded_here = node.phase() == ir::Phase::Forward;
    const bool goes = passes::removable(node)
                          ? !ops::is_read(forward, node) && !ops::may_raise(forward, node)
                          : !recorded_here;
    if (goes) {
      forward.erase(node);
    } else {
      forward.set_phase(node, ir::Phase::Forward);
    }
  });
  const std::vector<ir::ValueId> inputs(forward.inputs().begin(), forward.inputs().end());
  for (ir::ValueId input : inputs) {
    if (is_tangent(forward, input)) forward.erase_input(input);
  }
  return forward;
}

ir::Graph backward_half(const ir::Graph& joint, std::span<const SavedValue> saved,
                        bool (*may_repeat)(const ir::Node&)) {
  ir::Graph backward = joint;
  backward.set_name(base_name(joint.name()) + ".backward");
  backward.set_outputs(outputs_of(joint, true));

  const std::vector<ir::ValueId> old_inputs(backward.inputs().begin(), backward.inputs().end());
  std::vector<ir::ValueId> order;
  for (size_t i = 0; i < saved.size(); ++i) {
    const ir::Value& value = joint.value(saved[i].value);
    const ir::ValueId input =
        backward
            .add_input(value.type(), ir::Descriptor::saved(static_cast<int64_t>(i)),
                       saved[i].is_copy() ? value.name() + "_copy" : value.name())
            .id();
    backward.replace_all_uses(saved[i].value, input);
    order.push_back(input);
  }
  // Draws and effects of the forward have happened in the forward. Its other nodes are here only to
  // be computed again.
  backward.for_each_node_reversed([&](ir::Node& node) {
    const bool recorded_here = node.phase() == ir::Phase::Backward;
    if (!ops::is_read(backward, node)) {
      if (!recorded_here || passes::removable(node)) backward.erase(node);
      return;
    }
    if (recorded_here) return;
    TANDEM_CHECK(may_repeat(node), "partition",
                 "the backward reads a forward value that was not saved\n  value:  ",
                 ir::print(backward, node));
    backward.set_phase(node, ir::Phase::Backward);
  });
  std::vector<ir::ValueId> unread;
  for (ir::ValueId input : old_inputs) {
    (is_tangent(backward, input) ? order : unread).push_back(input);
  }
  // From the end: a network has thousands of inputs, and each that goes moves those behind it.
  order.insert(order.end(), unread.begin(), unread.end());
  backward.reorder_inputs(std::move(order));
  for (size_t i = unread.size(); i-- > 0;) backward.erase_input(unread[i]);
  return backward;
}

}  // namespace tandem::partition
