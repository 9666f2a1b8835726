#include "partition/min_cut/choose_saved.h"

#include "base/error.h"
#include "ops/op_table.h"
#include "partition/keeping.h"
#include "partition/min_cut/cut_graph.h"
#include "partition/min_cut/flow_network.h"
#include "partition/min_cut/keeping_weights.h"
#include "partition/min_cut/recompute_rules.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace tandem::partition {
namespace {

constexpr FlowNetwork::Vertex kSource = 0, kSink = 1;
constexpr FlowNetwork::Vertex enter(Item item) { return 2 + 2 * item; }
constexpr FlowNetwork::Vertex leave(Item item) { return 3 + 2 * item; }
constexpr Item item_of(FlowNetwork::Vertex vertex) { return (vertex - 2) / 2; }

/// The joint graph as a network. Source: what is there after the forward. Sink: what the backward
/// computes. Each item is an edge, whose capacity is what keeping it costs; cut, it is kept.
class Chooser {
 public:
  Chooser(const ir::Graph& joint, const ir::Signature& signature, const CutGraph& graph)
      : joint_(joint),
        graph_(graph),
        keeping_(joint, signature),
        weights_(keeping_weights(graph_, keeping_)),
        bans_(bans(graph_)) {
    const bool once = !graph_.fuses();
    const FlowNetwork::Vertex vertices = enter(graph_.size()) + (once ? graph_.size() : 0);
    for (FlowNetwork::Vertex i = 0; i < vertices; ++i) network_.add_vertex();
    for (Item item = 0; item < graph_.size(); ++item) add_item(item);
    if (once) compute_once();
    require_bounded();
    cut_ = minimum_cut(network_, kSource, kSink);
    for (FlowNetwork::EdgeId edge : cut_.edges) {
      const FlowNetwork::Edge& cut = network_.edges()[index(edge)];
      TANDEM_CHECK(cut.from == enter(item_of(cut.from)) && cut.to == leave(item_of(cut.from)),
                   "partition", "a minimum cut contains an edge that keeps nothing");
      chosen_.push_back(item_of(cut.from));
    }
    std::ranges::sort(chosen_);
  }

  const CutGraph& graph() const { return graph_; }
  const Keeping& keeping() const { return keeping_; }
  const std::vector<Item>& chosen() const { return chosen_; }
  std::string_view ban(Item item) const { return bans_[index(item)]; }
  bool runs_in_backward(Item item) const { return cut_.on_sink_side[index(enter(item))]; }

 private:
  static constexpr std::string_view kReads = "reads it";

  void add_edge(FlowNetwork::Vertex from, FlowNetwork::Vertex to, int64_t capacity,
                std::string_view reason) {
    network_.add_edge({from, to, capacity, reason});
  }

  void add_item(Item item) {
    constexpr int64_t kInfinite = FlowNetwork::kInfinite;
    const ItemFacts& facts = graph_[item];
    if (graph_.only_in_backward(item)) {
      add_edge(enter(item), kSink, kInfinite, "is computed in the backward");
      return;
    }
    if (graph_.needed_by_backward(item))
      add_edge(leave(item), kSink, kInfinite, "is a gradient as it is");
    if (facts.node == ir::kNoNode) {
      add_edge(kSource, enter(item), kInfinite, "it is an input");
    } else if (!bans_[index(item)].empty()) {
      add_edge(kSource, enter(item), kInfinite, bans_[index(item)]);
    }
    const KeepingWeight& weight = weights_[index(item)];
    add_edge(enter(item), leave(item), weight.bytes, weight.reason);
    for (Item user : graph_.users(item)) add_edge(leave(item), enter(user), kInfinite, kReads);
  }

  /// Without dead nodes, what is not computed in the backward is computed in the forward. What the
  /// forward computes on the way to a saved value, though nothing else of it needs that,
  /// the backward does not compute again: a node in the forward has its operands there. Views,
  /// numbers and constants are free; each stands for what it is made from.
  void compute_once() {
    const auto computed = [&](Item item) {
      const ItemFacts& facts = graph_[item];
      const bool is_free = facts.is_view || facts.is_number || facts.is_constant;
      return is_free ? enter(graph_.size()) + item : enter(item);
    };
    for (Item item = 0; item < graph_.size(); ++item) {
      if (graph_.only_in_backward(item)) continue;
      if (computed(item) != enter(item))
        add_edge(enter(item), computed(item), FlowNetwork::kInfinite, kReads);
      for (Item read : graph_.operands(item))
        add_edge(computed(item), computed(read), FlowNetwork::kInfinite, kReads);
    }
  }

  bool stands_for_another(FlowNetwork::Vertex vertex) const {
    return vertex >= enter(graph_.size());
  }

  void require_bounded() const {
    const std::vector<FlowNetwork::EdgeId> path = infinite_path(network_, kSource, kSink);
    if (path.empty()) return;
    const std::vector<std::string> names = ir::value_names(joint_);
    std::string lines;
    const auto add_line = [&](Item item, std::string_view what, std::string_view reason) {
      lines += lines.empty() ? "\n  path:   " : "\n          ";
      lines += describe(item, names);
      lines += what;
      lines += reason;
    };
    for (FlowNetwork::EdgeId id : path) {
      const FlowNetwork::Edge& edge = network_.edges()[index(id)];
      if (stands_for_another(edge.from) || stands_for_another(edge.to)) continue;
      if (edge.from == kSource) {
        add_line(item_of(edge.to), " cannot be computed again: ", edge.reason);
      } else if (edge.to == kSink) {
        add_line(item_of(edge.from), " ", edge.reason);
      } else if (item_of(edge.from) == item_of(edge.to)) {
        add_line(item_of(edge.from), " cannot be kept: ", edge.reason);
      } else {
        add_line(item_of(edge.to), " ", edge.reason);
      }
    }
    TANDEM_UNSUPPORTED(
        "partition", "the backward needs a value that can neither be kept nor computed again",
        lines, "\n  remedy: keep it in a tensor, or give default_partition as partitioner");
  }

  std::string describe(Item item, const std::vector<std::string>& names) const {
    const ItemFacts& facts = graph_[item];
    if (facts.value != ir::kNoValue) return "%" + names[static_cast<size_t>(facts.value)];
    return op_name(joint_.node(facts.node));
  }

  const ir::Graph& joint_;
  const CutGraph& graph_;
  const Keeping keeping_;
  const std::vector<KeepingWeight> weights_;
  const std::vector<std::string_view> bans_;
  FlowNetwork network_;
  FlowCut cut_;
  std::vector<Item> chosen_;
};

/// Turns the cut into what is kept, with reasons.
class Keeper {
 public:
  Keeper(const ir::Graph& joint, const Chooser& chooser)
      : joint_(joint), chooser_(chooser), graph_(chooser.graph()) {}

  std::vector<SavedValue> run() {
    std::vector<bool> kept(index(graph_.size()), false);
    for (Item item : chooser_.chosen()) kept[index(item_to_keep(item))] = true;
    std::vector<SavedValue> saved;
    for (Item item = 0; item < graph_.size(); ++item) {
      if (!kept[index(item)] || is_view_of_kept(item, kept)) continue;
      const ir::ValueId value = graph_[item].value;
      saved.push_back(
          {.value = value, .why = why(item, kept), .how = *chooser_.keeping().how(value)});
    }
    return saved;
  }

 private:
  Item item_to_keep(Item item) const {
    return graph_.of(chooser_.keeping().value_to_keep(graph_[item].value));
  }

  /// Made again from what is kept in any case.
  bool is_view_of_kept(Item item, const std::vector<bool>& kept) const {
    for (Item at = item; graph_[at].value != graph_[item].memory;) {
      at = graph_.operands(at)[0];
      if (graph_[at].value != ir::kNoValue && kept[index(at)]) return true;
    }
    return false;
  }

  std::string why(Item item, const std::vector<bool>& kept) const {
    const ItemFacts& facts = graph_[item];
    if (facts.node == ir::kNoNode) {
      const Keeping& keeping = chooser_.keeping();
      const bool is_read = keeping.is_read_directly(facts.value);
      if (keeping.how(facts.value)->as == Saved::As::Copy) {
        return base::str("a copy of an input that ",
                         is_read ? "the call writes: " : "eager does not keep: ", reader(item));
      }
      return is_read ? "an input that the backward reads (by reference, 0 bytes)"
                     : "a parameter (by reference, 0 bytes): " + reader(item);
    }
    // Of one of several results, what holds for the node that makes them.
    const Item maker = facts.is_result ? graph_.operands(item)[0] : item;
    const std::string_view ban =
        chooser_.ban(item).empty() ? chooser_.ban(maker) : chooser_.ban(item);
    const std::string cost = base::str("computing it again would take ", ops_to_repeat(item, kept));
    if (ban == kNothingIsFused) return base::str(reader(item), "; ", cost);
    if (!ban.empty()) return base::str(reader(item), "; ", ban, ", ", cost);
    return base::str(reader(item), "; no more bytes than what it is computed from, ", cost);
  }

  std::string reader(Item item) const {
    for (Item at = item;;) {
      Item next = kNoItem;
      for (Item user : graph_.users(at)) {
        if (chooser_.runs_in_backward(user) || graph_.only_in_backward(user)) {
          next = user;
          break;
        }
      }
      if (next == kNoItem) break;
      const ItemFacts& facts = graph_[next];
      if ((!facts.is_view && !facts.is_result) || graph_.users(next).empty()) {
        const std::string name = op_name(joint_.node(facts.node));
        return graph_.only_in_backward(next) ? base::str("read by ", name, " in the backward")
                                             : base::str(name, " is computed again from it");
      }
      at = next;
    }
    return "returned as a gradient";
  }

  /// Without views, down to what is kept.
  std::string ops_to_repeat(Item item, const std::vector<bool>& kept) const {
    constexpr size_t kMost = 100;
    std::vector<Item> found{item};
    int64_t ops = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found.size() > kMost) return base::str("more than ", kMost, " ops");
      const ItemFacts& facts = graph_[found[i]];
      ops += !facts.is_view && !facts.is_result &&
             joint_.node(facts.node).kind() != ir::NodeKind::Constant;
      for (Item read : graph_.operands(found[i])) {
        if (graph_[read].node == ir::kNoNode || kept[index(read)]) continue;
        if (std::ranges::find(found, read) == found.end()) found.push_back(read);
      }
    }
    return ops == 1 ? "1 op" : base::str(ops, " ops");
  }

  const ir::Graph& joint_;
  const Chooser& chooser_;
  const CutGraph& graph_;
};

}  // namespace

std::vector<ir::ValueId> minimum_crossing(const ir::Graph& joint, const ir::Signature& signature,
                                          const CutGraph& graph) {
  const Chooser chooser(joint, signature, graph);
  std::vector<ir::ValueId> values;
  for (Item item : chooser.chosen()) values.push_back(chooser.graph()[item].value);
  return values;
}

std::vector<SavedValue> choose_saved(const ir::Graph& joint, const ir::Signature& signature,
                                     const CutGraph& graph) {
  const Chooser chooser(joint, signature, graph);
  return Keeper(joint, chooser).run();
}

std::vector<Recomputed> recomputed_values(const ir::Graph& joint, const Split& split) {
  std::vector<Recomputed> recomputed;
  std::vector<std::string> names;
  split.backward.for_each_node([&](const ir::Node& node) {
    if (static_cast<size_t>(node.id()) >= joint.node_limit() ||
        split.forward.node(node.id()).erased() || node.kind() != ir::NodeKind::Op) {
      return;
    }
    if (names.empty()) names = ir::value_names(split.backward);
    const bool is_view = ops::info(node.op()).is_view;
    std::string sources;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        if (id == ir::kNoValue) return;
        sources += (sources.empty() ? "%" : ", %") + names[static_cast<size_t>(id)];
      });
    }
    for (ir::ValueId id : node.results()) {
      if (id == ir::kNoValue || !split.backward.value(id).has_users()) continue;
      const ir::TypePtr& type = split.backward.value(id).tensor_type();
      const bool counts = !is_view && type != nullptr && type->is_static();
      recomputed.push_back(
          {.name = names[static_cast<size_t>(id)],
           .bytes = counts ? type->bytes() : 0,
           .line = node.location().found() ? ir::to_string(node.location()) : std::string(),
           .why = base::str(op_name(node), is_view ? " is a view" : " is cheap",
                            sources.empty() ? "" : ", made from " + sources)});
    }
  });
  return recomputed;
}

}  // namespace tandem::partition
