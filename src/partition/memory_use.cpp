#include "partition/memory_use.h"

#include "ops/memory/memory_roots.h"
#include "ops/op_table.h"
#include "passes/remove_dead_nodes.h"

#include <algorithm>
#include <queue>

namespace tandem::partition {
namespace {

template <class Id>
size_t index(Id id) {
  return static_cast<size_t>(id);
}

int64_t bytes_of(const ir::Value& value) {
  const ir::TypePtr& type = value.tensor_type();
  return type != nullptr && type->is_static() ? type->bytes() : 0;
}

/// Who holds which memory, and who reads it last. Memory is named by the value that owns it.
class Ledger {
 public:
  Ledger(const ir::Graph& graph, std::span<const int64_t> released)
      : graph_(graph),
        roots_(ops::memory_roots(graph)),
        bytes_(graph.value_limit(), 0),
        readers_(graph.value_limit(), 0),
        reads_(graph.node_limit()) {
    for (size_t i = 0; i < released.size(); ++i) bytes_[index(graph.inputs()[i])] = released[i];
    graph.for_each_node([&](const ir::Node& node) {
      for (ir::ValueId id : node.results()) {
        if (id != ir::kNoValue && roots_[index(id)] == id && node.kind() != ir::NodeKind::Constant)
          bytes_[index(id)] = bytes_of(graph.value(id));
      }
      note_reads(node);
      for (ir::ValueId root : roots_read(node)) ++readers_[index(root)];
    });
    // A result is read by the caller, after everything else.
    for (const ir::Output& output : graph.outputs()) {
      if (output.value != ir::kNoValue) ++readers_[index(roots_[index(output.value)])];
    }
  }

  /// Each once.
  std::span<const ir::ValueId> roots_read(const ir::Node& node) const {
    const Reads& reads = reads_[index(node.id())];
    return std::span(read_).subspan(reads.first, reads.count);
  }

  int64_t taken_by(const ir::Node& node) const {
    int64_t taken = 0;
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue && roots_[index(id)] == id) taken += bytes_[index(id)];
    }
    return taken;
  }

  /// If the node ran now.
  int64_t freed_by(const ir::Node& node) const {
    int64_t freed = 0;
    for (ir::ValueId root : roots_read(node))
      freed += readers_[index(root)] == 1 ? bytes_[index(root)] : 0;
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue && roots_[index(id)] == id && readers_[index(id)] == 0)
        freed += bytes_[index(id)];
    }
    return freed;
  }

  /// It writes its result over an operand that dies with it.
  bool takes_over(const ir::Node& node) const {
    if (node.kind() != ir::NodeKind::Op || node.results().size() != 1 || node.operands().empty())
      return false;
    const auto* first = node.operands()[0].get_if<ir::ValueId>();
    if (ops::info(node.op()).work != ops::Work::Pointwise || first == nullptr ||
        *first == ir::kNoValue || node.results()[0] == ir::kNoValue)
      return false;
    const ir::Value& written = graph_.value(*first);
    return roots_[index(*first)] == *first && !written.is_input() && readers_[index(*first)] == 1 &&
           written.tensor_type() != nullptr &&
           written.type() == graph_.value(node.results()[0]).type() &&
           ops::inplace_overload(node.op(), written.tensor_type()->dtype).has_value();
  }

  /// Notes that the node has run. `fn` gets each root that has one reader left.
  template <class Fn>
  void run(const ir::Node& node, const Fn& fn) {
    for (ir::ValueId root : roots_read(node)) {
      if (--readers_[index(root)] == 1) fn(root);
    }
  }

  ir::ValueId root(ir::ValueId id) const { return roots_[index(id)]; }

 private:
  /// Asked for many times, and there are many nodes: side by side, not a vector each.
  struct Reads {
    size_t first = 0, count = 0;  // in read_
  };

  void note_reads(const ir::Node& node) {
    const size_t first = read_.size();
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) { read_.push_back(roots_[index(id)]); });
    }
    const auto begin = read_.begin() + static_cast<std::ptrdiff_t>(first);
    std::sort(begin, read_.end());
    read_.erase(std::unique(begin, read_.end()), read_.end());
    reads_[index(node.id())] = {first, read_.size() - first};
  }

  const ir::Graph& graph_;
  std::vector<ir::ValueId> roots_;
  std::vector<int64_t> bytes_;    // by owner
  std::vector<int32_t> readers_;  // by owner: nodes that have not run, and the caller
  std::vector<Reads> reads_;      // by node
  std::vector<ir::ValueId> read_;
};

/// A greedy order: nodes that free memory run as soon as they can, all others in the order that
/// they had.
class Order {
 public:
  Order(const ir::Graph& graph, Ledger ledger)
      : graph_(graph),
        ledger_(std::move(ledger)),
        rank_(graph.node_limit(), 0),
        missing_(graph.node_limit(), 0),
        done_(graph.node_limit(), false),
        followers_(graph.node_limit()),
        readers_of_(graph.value_limit()) {}

  std::vector<ir::NodeId> run() {
    link();
    graph_.for_each_node([&](const ir::Node& node) {
      if (missing_[index(node.id())] == 0) offer(node.id());
    });
    while (!by_rank_.empty()) {
      const ir::NodeId next = pick();
      if (next != ir::kNoNode) place(next);
    }
    return std::move(order_);
  }

 private:
  using Freeing = std::pair<int64_t, int32_t>;  // change in bytes, rank

  void link() {
    int32_t rank = 0;
    ir::NodeId last_effect = ir::kNoNode;
    graph_.for_each_node([&](const ir::Node& node) {
      by_place_.push_back(node.id());
      rank_[index(node.id())] = rank++;
      std::vector<ir::NodeId> before;
      for (const ir::Operand& operand : node.operands()) {
        operand.for_each_value([&](ir::ValueId id) {
          if (!graph_.value(id).is_input()) before.push_back(graph_.value(id).producer());
        });
      }
      if (!passes::removable(node)) {
        if (last_effect != ir::kNoNode) before.push_back(last_effect);
        last_effect = node.id();
      }
      std::ranges::sort(before);
      before.erase(std::unique(before.begin(), before.end()), before.end());
      missing_[index(node.id())] = static_cast<int32_t>(before.size());
      for (ir::NodeId id : before) followers_[index(id)].push_back(node.id());
      for (ir::ValueId root : ledger_.roots_read(node))
        readers_of_[index(root)].push_back(node.id());
    });
  }

  bool is_ready(ir::NodeId id) const { return missing_[index(id)] == 0 && !done_[index(id)]; }
  int64_t change(const ir::Node& node) const {
    return ledger_.taken_by(node) - ledger_.freed_by(node);
  }

  void offer(ir::NodeId id) {
    by_rank_.push(rank_[index(id)]);
    const int64_t bytes = change(graph_.node(id));
    if (bytes < 0) freeing_.push({bytes, rank_[index(id)]});
  }

  /// The readiest; kNoNode if the entry was out of date.
  ir::NodeId pick() {
    while (!freeing_.empty()) {
      const auto [bytes, rank] = freeing_.top();
      freeing_.pop();
      const ir::NodeId id = by_place_[index(rank)];
      if (is_ready(id) && change(graph_.node(id)) == bytes) return id;
    }
    const ir::NodeId id = by_place_[index(by_rank_.top())];
    by_rank_.pop();
    return is_ready(id) ? id : ir::kNoNode;
  }

  void place(ir::NodeId id) {
    done_[index(id)] = true;
    order_.push_back(id);
    ledger_.run(graph_.node(id), [&](ir::ValueId root) {
      // Its last reader frees it from now on.
      for (ir::NodeId reader : readers_of_[index(root)]) {
        if (is_ready(reader)) offer(reader);
      }
    });
    for (ir::NodeId follower : followers_[index(id)]) {
      if (--missing_[index(follower)] == 0) offer(follower);
    }
  }

  const ir::Graph& graph_;
  Ledger ledger_;
  std::vector<int32_t> rank_;                        // by node: its place as it stands
  std::vector<int32_t> missing_;                     // by node: what must run before it
  std::vector<bool> done_;                           // by node
  std::vector<std::vector<ir::NodeId>> followers_;   // by node
  std::vector<std::vector<ir::NodeId>> readers_of_;  // by owner of memory
  std::vector<ir::NodeId> by_place_, order_;
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> by_rank_;
  std::priority_queue<Freeing, std::vector<Freeing>, std::greater<>> freeing_;
};

bool writes_something(const ir::Graph& graph) {
  bool writes = false;
  graph.for_each_node([&](const ir::Node& node) {
    writes = writes || (node.kind() == ir::NodeKind::Op && ops::info(node.op()).writes());
  });
  return writes;
}

}  // namespace

std::vector<ir::NodeId> order_of(const ir::Graph& graph) {
  std::vector<ir::NodeId> order;
  order.reserve(graph.node_count());
  graph.for_each_node([&](const ir::Node& node) { order.push_back(node.id()); });
  return order;
}

namespace {

MemoryUse use_of(const ir::Graph& graph, std::span<const ir::NodeId> order, Ledger ledger) {
  MemoryUse use;
  for (ir::NodeId id : order) {
    const ir::Node& node = graph.node(id);
    const int64_t taken = ledger.taken_by(node), freed = ledger.freed_by(node);
    const int64_t over = ledger.takes_over(node) ? taken : 0;
    use.peak = std::max(use.peak, use.end + taken - over);
    use.end += taken - freed;
    ledger.run(node, [](ir::ValueId) {});
  }
  return use;
}

}  // namespace

MemoryUse memory_use(const ir::Graph& graph, std::span<const ir::NodeId> order,
                     std::span<const int64_t> released) {
  return use_of(graph, order, Ledger(graph, released));
}

std::vector<int64_t> released_bytes(const Split& split) {
  std::vector<int64_t> bytes;
  for (ir::ValueId input : split.backward.inputs()) {
    const ir::Descriptor& role = split.backward.input_role(input);
    const bool is_saved = role.role == ir::Role::Saved;
    bytes.push_back(is_saved ? split.saved[index(role.index)].bytes : 0);
  }
  return bytes;
}

void schedule_for_memory(ir::Graph& graph, std::span<const int64_t> released) {
  if (writes_something(graph)) return;
  const Ledger ledger(graph, released);
  const std::vector<ir::NodeId> before = order_of(graph);
  const std::vector<ir::NodeId> after = Order(graph, ledger).run();
  if (use_of(graph, after, ledger).peak >= use_of(graph, before, ledger).peak) return;
  for (size_t i = after.size(); i-- > 1;)
    graph.move_before(graph.node(after[i - 1]), graph.node(after[i]));
}

}  // namespace tandem::partition
