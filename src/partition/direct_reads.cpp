#include "partition/direct_reads.h"

#include "ops/memory/memory_roots.h"
#include "ops/reads.h"

#include <algorithm>
#include <set>

namespace tandem::partition {
namespace {

/// The tensor has other sizes or memory after the call, or a history that nobody can tell from what
/// it was written with.
bool is_unclear(const ir::InputFacts& facts) {
  return facts.metadata_changed || facts.history_changed || facts.group >= 0 ||
         facts.storage != ir::StorageChange::None;
}

/// What each input holds when the call ends.
std::vector<ir::ValueId> last_values(const Joint& joint) {
  const auto inputs = joint.graph.inputs();
  std::vector<ir::ValueId> last(inputs.begin(),
                                inputs.begin() + std::ssize(joint.signature.inputs));
  for (const ir::Output& output : joint.graph.outputs()) {
    if (output.role.role == ir::Role::Mutated)
      last[static_cast<size_t>(output.role.index)] = output.value;
  }
  return last;
}

bool reads(const ir::Node& node, ir::ValueId value) {
  bool any = false;
  for (const ir::Operand& operand : node.operands())
    operand.for_each_value([&](ir::ValueId id) { any = any || id == value; });
  return any;
}

/// Whether every one of the nodes is still there and reads the value.
bool are_kept(const ir::Graph& cleaned, ir::ValueId value, const std::vector<ir::NodeId>& nodes) {
  return std::ranges::all_of(nodes, [&](ir::NodeId id) {
    const ir::Node& node = cleaned.node(id);
    return !node.erased() && node.phase() == ir::Phase::Backward && reads(node, value);
  });
}

/// Whether the backward has the input by reference, and reads it in these nodes and no others:
/// none was put into the forward half, and nothing of the forward is computed again from it.
bool is_only_read_directly(const Split& split, size_t input, std::set<ir::NodeId> nodes) {
  const auto of = static_cast<int64_t>(input);
  const ir::Graph& backward = split.backward;
  for (const ir::ValueId id : backward.inputs()) {
    const ir::Descriptor& role = backward.input_role(id);
    if (role.role != ir::Role::Saved) continue;
    const Saved::How& how = split.saved[static_cast<size_t>(role.index)].how;
    if (how != Saved::How{Saved::As::Input, of} && how != Saved::How{Saved::As::WrittenInput, of})
      continue;
    const std::set<ir::NodeId> users(backward.value(id).users().begin(),
                                     backward.value(id).users().end());
    return users.size() == nodes.size() && std::ranges::all_of(users, [&](ir::NodeId user) {
             return backward.node(user).phase() == ir::Phase::Backward;
           });
  }
  return false;
}

}  // namespace

std::vector<DirectReads> direct_reads(const Joint& recorded) {
  const ir::Graph& graph = recorded.graph;
  const auto& inputs = recorded.signature.inputs;
  const std::vector<ir::ValueId> roots = ops::memory_roots(graph), last = last_values(recorded);
  const auto root = [&](ir::ValueId id) { return roots[static_cast<size_t>(id)]; };
  // By value that owns memory, which inputs it belongs to: in the call, and afterwards.
  std::vector<std::vector<size_t>> owners(graph.value_limit());
  for (size_t i = 0; i < inputs.size(); ++i) {
    owners[static_cast<size_t>(graph.inputs()[i])].push_back(i);
    if (last[i] != ir::kNoValue && last[i] != graph.inputs()[i])
      owners[static_cast<size_t>(root(last[i]))].push_back(i);
  }
  for (const ir::ValueId id : graph.inputs()) {
    const ir::Descriptor& role = graph.input_role(id);
    if (role.role != ir::Role::Base) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].group == role.index) owners[static_cast<size_t>(id)].push_back(i);
    }
  }
  std::vector<DirectReads> found(inputs.size());
  const auto note = [&](ir::ValueId id, ir::NodeId reader) {
    for (size_t i : owners[static_cast<size_t>(root(id))]) {
      if (is_unclear(inputs[i]) || (id == last[i] && reader == ir::kNoNode)) {
        found[i].unclear = true;
      } else if (id == last[i]) {
        found[i].nodes.push_back(reader);
      } else {
        const ir::NodeId producer = graph.value(id).producer();
        found[i].viewed = found[i].viewed || producer == ir::kNoNode ||
                          graph.node(producer).phase() == ir::Phase::Forward;
      }
    }
  };
  graph.for_each_node([&](const ir::Node& node) {
    if (node.phase() != ir::Phase::Backward) return;
    for (const ir::Operand& operand : node.operands())
      operand.for_each_value([&](ir::ValueId id) { note(id, node.id()); });
  });
  for (const ir::Output& output : graph.outputs()) {
    if (output.role.role == ir::Role::Grad && output.value != ir::kNoValue)
      note(output.value, ir::kNoNode);
  }
  return found;
}

std::vector<ReadAs> reads_after_exchange(const std::vector<DirectReads>& reads,
                                         const Joint& cleaned, const Split& split) {
  const std::vector<ir::ValueId> last = last_values(cleaned);
  std::vector<ReadAs> ways;
  for (size_t i = 0; i < reads.size(); ++i) {
    const DirectReads& one = reads[i];
    if (!one.unclear && one.nodes.empty()) {
      ways.push_back(ReadAs::Found);
    } else if (!one.unclear && !one.viewed && are_kept(cleaned.graph, last[i], one.nodes) &&
               is_only_read_directly(split, i, {one.nodes.begin(), one.nodes.end()})) {
      ways.push_back(ReadAs::Now);
    } else {
      ways.push_back(ReadAs::Several);
    }
  }
  return ways;
}

}  // namespace tandem::partition
