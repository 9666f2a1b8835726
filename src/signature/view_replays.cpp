#include "signature/view_replays.h"

#include "base/error.h"
#include "ops/op_table.h"
#include "tandem/ir/text.h"
#include "tracing/traced_tensor.h"

#include <algorithm>
#include <map>

namespace tandem::signature {
namespace {

/// From an output back along argument 0 of view ops to `root`; producer first. Empty optional: no
/// such path.
std::optional<std::vector<ir::NodeId>> view_chain(const ir::Graph& graph, ir::ValueId root,
                                                  ir::ValueId value) {
  std::vector<ir::NodeId> chain;
  while (value != root) {
    const ir::NodeId producer = graph.value(value).producer();
    if (producer == ir::kNoNode) return std::nullopt;
    const ir::Node& node = graph.node(producer);
    if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view) return std::nullopt;
    const auto* source = node.operands()[0].get_if<ir::ValueId>();
    if (!source) return std::nullopt;
    chain.push_back(producer);
    value = *source;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

/// Builds one replay graph. Functionalization regenerates views, so the same view may be recorded
/// several times: equal ones become one node, and the results of one `split` keep their common
/// origin.
class Builder {
 public:
  Builder(const ir::Graph& recorded, int64_t input, const ir::InputFacts& facts, ir::ValueId root)
      : recorded_(recorded) {
    replay_.input = input;
    replay_.graph.set_name("views");
    replacement_[root] =
        replay_.graph.add_input(facts.type, ir::Descriptor::user_input(0), "source").id();
  }

  void add_output(const std::vector<ir::NodeId>& chain, ir::ValueId value, int64_t index) {
    for (ir::NodeId id : chain) add_node(recorded_.node(id));
    replay_.graph.add_output(replacement_.at(value), ir::Descriptor::output(index));
  }

  ir::ViewReplay take() { return std::move(replay_); }

 private:
  void add_node(const ir::Node& node) {
    if (replacement_.contains(node.results()[0])) return;
    ir::OpSpec spec{.op = node.op(), .shape = node.result_shape(), .location = node.location()};
    spec.operands.assign(node.operands().begin(), node.operands().end());
    spec.operands[0] = replacement_.at(*node.operands()[0].get_if<ir::ValueId>());
    for (ir::ValueId result : node.results())
      spec.results.emplace_back(recorded_.value(result).type());
    const ir::Node* equal = find_equal(spec);
    const ir::Node& copy = equal ? *equal : replay_.graph.add_op(std::move(spec));
    for (size_t i = 0; i < node.results().size(); ++i) {
      replacement_[node.results()[i]] = copy.results()[i];
    }
  }

  const ir::Node* find_equal(const ir::OpSpec& spec) const {
    const ir::Node* found = nullptr;
    replay_.graph.for_each_node([&](const ir::Node& node) {
      if (node.op().operator_name() == spec.op.operator_name() &&
          std::equal(node.operands().begin(), node.operands().end(), spec.operands.begin(),
                     spec.operands.end())) {
        found = &node;
      }
    });
    return found;
  }

  const ir::Graph& recorded_;
  ir::ViewReplay replay_;
  std::map<ir::ValueId, ir::ValueId> replacement_;
};

}  // namespace

void add_view_replays(const tracing::Trace& trace, const std::vector<size_t>& order,
                      const std::vector<ir::ValueId>& values, ir::Signature& signature) {
  const ir::Graph& graph = trace.recording().graph();
  std::map<int64_t, Builder> builders;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const ir::OutputFacts& facts = signature.outputs[i];
    if (facts.kind != ir::OutputKind::AliasOfInput) continue;
    const tracing::StandIn& source = trace.stand_ins()[order[facts.source]];
    // The input as the call leaves it: a view of written memory is regenerated from the new data.
    const ir::ValueId root = tracing::current_value(source.tensor);
    const auto chain = view_chain(graph, root, values[i]);
    if (!chain) {
      TANDEM_UNSUPPORTED("signature", "output ", i, " shares memory with ", trace.name_of(source),
                         " in a way that view ops do not explain",
                         "\n  remedy: return a copy of it (clone())");
    }
    auto [it, is_new] = builders.try_emplace(facts.source, graph, facts.source,
                                             signature.inputs[facts.source], root);
    it->second.add_output(*chain, values[i], static_cast<int64_t>(i));
  }
  for (auto& [input, builder] : builders) signature.replays.push_back(builder.take());
}

}  // namespace tandem::signature
