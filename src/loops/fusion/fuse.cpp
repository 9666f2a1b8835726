#include "loops/fusion/fuse.h"

#include "base/error.h"
#include "loops/fusion/group_loops.h"
#include "ops/op_table.h"
#include "ops/reads.h"
#include "tandem/ir/type.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

namespace tandem::loops {
namespace {

using Loops = IndexSpace::Loops;

const ir::TensorType& type_of(const ir::Graph& graph, ir::ValueId id) {
  return *graph.value(id).tensor_type();
}

const ir::Node* producer(const ir::Graph& graph, ir::ValueId id) {
  const ir::Value& value = graph.value(id);
  return value.is_input() ? nullptr : &graph.node(value.producer());
}

class Fuser {
 public:
  Fuser(const ir::Graph& graph, const Views& views, const Target& target)
      : graph_(graph), views_(views), target_(target), loops_(graph, views) {
    plan_.group_of.assign(graph.node_limit(), -1);
    plan_.source.assign(graph.node_limit(), nullptr);
    level_.assign(graph.node_limit(), 0);
    inner_.assign(graph.node_limit(), false);
    stage_.assign(graph.node_limit(), 0);
    is_reduction_.assign(graph.node_limit(), false);
    order_.assign(graph.node_limit(), 0);
  }

  FusionPlan run() && {
    graph_.for_each_node([&](const ir::Node& node) { visit(node); });
    settle(std::vector<ir::NodeId>(waiting_.begin(), waiting_.end()));
    leave_plain_copies_to_libtorch();
    store_needed_sources();
    return std::move(plan_);
  }

 private:
  void visit(const ir::Node& node) {
    if (node.kind() == ir::NodeKind::Constant) return;
    if (views_.is_folded(node)) return;
    const Call call(graph_, node);
    const Rule* rule = find_rule(call, target_);
    // A kernel computes what is read. What is kept for the error that it may raise, libtorch runs.
    const bool for_errors = !ops::is_read(graph_, node) && ops::may_raise(graph_, node);
    if (rule == nullptr || for_errors) return leave_to_libtorch(node);
    if (rule->kind == RuleKind::Source) {
      plan_.source[at(node)] = rule;
      return;
    }
    const std::vector<Reading> reads = readings(node, *rule);
    if (std::ranges::any_of(reads,
                            [&](const Reading& read) { return views_.is_loose(read.value); }))
      return leave_to_libtorch(node);
    if (waits(call, *rule, reads)) {
      waiting_.insert(node.id());
      return;
    }
    const std::vector<ir::NodeId> awaited = waiting_among(reads);
    for (int32_t group : candidates(reads)) {
      // What waits has no level yet: a path through it and back into the group would go unseen. So
      // the node joins with all that waits for it, or after that has found another place.
      if (bring_along(group, awaited) && try_join(group, call, *rule, reads)) return;
    }
    settle(awaited);
    for (int32_t group : awaited.empty() ? std::vector<int32_t>() : candidates(reads)) {
      if (try_join(group, call, *rule, reads)) return;
    }
    found_group(call, *rule, reads);
  }

  // ---- waiting: what is made of next to nothing joins the group of its first reader ----
  /// Spreading a few numbers over a whole tensor: as a kernel of its own it would only fill memory.
  bool waits(const Call& call, const Rule& rule, const std::vector<Reading>& reads) const {
    if (rule.kind != RuleKind::Pointwise || call.node().results().size() != 1) return false;
    int64_t read = 0;
    for (const Reading& reading : reads) {
      if (reading.memory) return false;
      const ir::ValueId memory = root(reading.value);
      if (const ir::Node* made = producer(graph_, memory); made && waiting_.contains(made->id()))
        return false;
      read += type_of(graph_, memory).bytes();
    }
    return !reads.empty() && read * target_.limits.spread <= call.result().bytes();
  }
  std::vector<ir::NodeId> waiting_among(const std::vector<Reading>& reads) const {
    std::vector<ir::NodeId> out;
    for (const Reading& reading : reads) {
      const ir::Node* made = producer(graph_, root(reading.value));
      if (made != nullptr && waiting_.contains(made->id()) &&
          std::ranges::find(out, made->id()) == out.end())
        out.push_back(made->id());
    }
    return out;
  }
  /// Whether all of them are in groups then.
  bool bring_along(int32_t group, const std::vector<ir::NodeId>& awaited) {
    bool all = true;
    for (ir::NodeId id : awaited) {
      if (!waiting_.contains(id)) continue;
      if (join(group, graph_.node(id))) {
        waiting_.erase(id);
      } else {
        all = false;
      }
    }
    return all;
  }
  bool join(int32_t group, const ir::Node& node) {
    const Call call(graph_, node);
    const Rule& rule = *find_rule(call, target_);
    return try_join(group, call, rule, readings(node, rule));
  }
  /// Those that found no place get a kernel of their own.
  void settle(const std::vector<ir::NodeId>& nodes) {
    for (ir::NodeId id : nodes) {
      if (waiting_.erase(id) == 0) continue;
      const ir::Node& node = graph_.node(id);
      const Call call(graph_, node);
      const Rule& rule = *find_rule(call, target_);
      found_group(call, rule, readings(node, rule));
    }
  }

  void leave_to_libtorch(const ir::Node& node) {
    int32_t level = floor_;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) { settle(waiting_among({{id, true}})); });
    }
    const bool writes = node.kind() != ir::NodeKind::Op || ops::info(node.op()).writes();
    // Nothing moves across a write.
    if (writes) settle(std::vector<ir::NodeId>(waiting_.begin(), waiting_.end()));
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) { level = std::max(level, level_of(id) + 1); });
    }
    const bool ordered = node.kind() != ir::NodeKind::Op || ops::info(node.op()).must_happen();
    if (ordered) level = last_ordered_ = std::max(level, last_ordered_ + 1);
    highest_ = std::max(highest_, level);
    if (writes && node.kind() == ir::NodeKind::Op) {
      level = highest_ + 1;
      highest_ = level;
      floor_ = level + 1;
    }
    level_[at(node)] = level;
    for (const ir::Operand& operand : node.operands())
      operand.for_each_value([&](ir::ValueId id) { note_reader(id, level); });
  }

  // ---- levels ----
  int32_t level_of(ir::ValueId id) const {
    const ir::Node* node = producer(graph_, root(id));
    if (node == nullptr) return 0;
    TANDEM_CHECK(!waiting_.contains(node->id()), "lower", "a node that waits has no level yet");
    const int32_t group = plan_.group_of[at(*node)];
    return group >= 0 ? plan_.groups[static_cast<size_t>(group)].level : level_[at(*node)];
  }
  ir::ValueId root(ir::ValueId id) const { return views_.behind(id).value; }
  int32_t group_of(ir::ValueId id) const {
    const ir::Node* node = producer(graph_, id);
    return node == nullptr ? -1 : plan_.group_of[at(*node)];
  }
  void note_reader(ir::ValueId id, int32_t level) {
    const int32_t group = group_of(root(id));
    if (group < 0) return;
    int32_t& first = plan_.groups[static_cast<size_t>(group)].first_reader;
    first = std::min(first, level);
  }

  // ---- joining ----
  std::vector<int32_t> candidates(const std::vector<Reading>& reads) const {
    std::vector<std::pair<int64_t, int32_t>> found;
    auto count = [&](int32_t group, int64_t bytes) {
      if (group < 0) return;
      const auto it = std::ranges::find(found, group, &std::pair<int64_t, int32_t>::second);
      if (it == found.end()) {
        found.emplace_back(bytes, group);
      } else {
        it->first += bytes;
      }
    };
    for (const Reading& reading : reads) {
      const int64_t bytes = type_of(graph_, reading.value).bytes();
      const ir::ValueId memory = root(reading.value);
      count(group_of(memory), bytes);
      if (const auto it = readers_.find(memory); it != readers_.end()) {
        for (int32_t group : it->second) count(group, bytes);
      }
    }
    // Most bytes first; among equals one that reduces, which can absorb the others, then the
    // youngest, which is likeliest to fit.
    std::ranges::sort(found, [&](const auto& a, const auto& b) {
      const bool reduces_a = plan_.groups[static_cast<size_t>(a.second)].has_reduction;
      const bool reduces_b = plan_.groups[static_cast<size_t>(b.second)].has_reduction;
      if (a.first != b.first) return a.first > b.first;
      return reduces_a != reduces_b ? reduces_a : a.second > b.second;
    });
    std::vector<int32_t> out;
    for (const auto& [bytes, group] : found) out.push_back(group);
    return out;
  }

  bool try_join(int32_t index, const Call& call, const Rule& rule,
                const std::vector<Reading>& reads) {
    KernelGroup& group = plan_.groups[static_cast<size_t>(index)];
    if (group.members.empty()) return false;  // absorbed by another
    if (group.members.size() >= target_.limits.most_nodes ||
        group.loops.size() >= target_.limits.most_reads + target_.limits.most_nodes)
      return false;
    if (group.level < floor_) return false;  // a write lies between
    int32_t needed = group.level;
    for (const Reading& reading : reads) {
      const ir::ValueId memory = root(reading.value);
      if (group_of(memory) == index) {
        const ViewSource source = views_.behind(reading.value);
        if (reading.memory || source.picks) return false;
      } else {
        needed = std::max(needed, level_of(reading.value) + 1);
      }
    }
    if (needed >= group.first_reader) return false;
    // The loops of the group that the node covers: those of its operand if it reduces, else those
    // of its result.
    const bool reduces = rule.kind == RuleKind::Reduction;
    const ir::TensorType& space_type = reduces ? *call.tensor(0) : call.result();
    std::optional<DimLoops> loops =
        loops_.fit(group, space_type, reads, [&](ir::ValueId id) { return group_of(id) == index; });
    if (!loops.has_value()) return false;
    Loops covered;
    for (const auto& dim : *loops) {
      for (int32_t loop : group.space.resolve(*dim)) covered.push_back(loop);
    }
    std::ranges::sort(covered);
    Loops all = group.space.leaves();
    std::ranges::sort(all);
    const bool full = covered == all;
    const auto is_reduced = [&](int32_t loop) { return group.space.reduced(loop); };
    Member member{.node = call.node().id(), .rule = &rule};
    for (const Reading& reading : reads) {
      const ir::ValueId base = views_.behind(reading.value).value;
      if (group_of(base) != index) continue;
      const size_t made = at(*producer(graph_, base));
      member.stage = std::max(member.stage, stage_[made] + (is_reduction_[made] ? 1 : 0));
    }
    if (reduces) {
      if (!full) return false;
      Loops reduced;
      for (int64_t dim : rule.dims(call)) {
        for (int32_t loop : group.space.resolve(*(*loops)[static_cast<size_t>(dim)]))
          reduced.push_back(loop);
      }
      std::ranges::sort(reduced);
      if (group.has_reduction) {
        Loops now;
        std::ranges::copy_if(all, std::back_inserter(now), is_reduced);
        if (now != reduced) return false;
        if (member.stage > 0 && !sweeps_again(group)) return false;
      } else {
        start_reducing(group, reduced, space_type, *loops);
      }
      member.inner = true;
    } else if (full) {
      member.inner = group.has_reduction;
      if (member.stage > 0 && !sweeps_again(group)) return false;
    } else {
      Loops kept;
      std::ranges::copy_if(all, std::back_inserter(kept),
                           [&](int32_t loop) { return !is_reduced(loop); });
      if (!group.has_reduction || covered != kept) return false;
    }
    for (const Reading& reading : reads) absorb(index, reading, reads, *loops, needed);
    group.level = needed;
    commit(index, call, member, *loops, reads);
    return true;
  }

  /// A node that reads two groups makes one of them, if the other is pointwise work on the same
  /// space that nobody has read yet: levels then say that no path leads from one to the other.
  void absorb(int32_t index, const Reading& reading, const std::vector<Reading>& reads,
              const DimLoops& loops, int32_t needed) {
    const int32_t other = group_of(reading.value);  // of a view: none
    if (reading.memory || other < 0 || other == index) return;
    KernelGroup& from = plan_.groups[static_cast<size_t>(other)];
    KernelGroup& into = plan_.groups[static_cast<size_t>(index)];
    if (from.has_reduction || from.level < floor_ || needed >= from.first_reader) return;
    if (from.shape != into.shape ||
        from.members.size() + into.members.size() >= target_.limits.most_nodes)
      return;
    // The node must read the value element by element, and neither group may have split its loops
    // otherwise.
    if (type_of(graph_, reading.value).static_sizes() != into.shape ||
        loops.size() != into.shape.size())
      return;
    // What the node reads of the group, the value itself among it, with the loops in which it is
    // computed there. The node may read through a transposing view, so the loops with which the
    // group began say nothing.
    std::vector<std::pair<ir::ValueId, DimLoops>> theirs;
    for (const Reading& read : reads) {
      if (group_of(root(read.value)) != other) continue;
      std::optional<DimLoops> known = loops_.of(from, read.value);
      if (read.memory || !known.has_value() || known->size() > loops.size()) return;
      theirs.emplace_back(read.value, *std::move(known));
    }
    std::unordered_map<int32_t, Loops> renamed;
    for (size_t d = 0; d < loops.size(); ++d) {
      if (into.shape[d] == 1) continue;
      if (!into.shape_loops[d].has_value() || !loops[d].has_value() ||
          !into.space.same(*loops[d], *into.shape_loops[d]))
        return;
      const Loops leaf = from.space.resolve(*from.loops.at(reading.value)[d]);
      if (leaf.size() != 1) return;
      renamed.emplace(leaf[0], *into.shape_loops[d]);
    }
    const auto rename = [&](const DimLoops& dims) {
      DimLoops out;
      for (const auto& dim : dims) {
        out.emplace_back();
        if (!dim.has_value()) continue;
        out.back() = Loops{};
        for (int32_t loop : from.space.resolve(*dim)) {
          const Loops& now = renamed.at(loop);
          out.back()->insert(out.back()->end(), now.begin(), now.end());
        }
      }
      return out;
    };
    // Each of these values must be wanted at the index at which it is computed.
    for (const auto& [id, known] : theirs) {
      const ir::TensorType& type = type_of(graph_, id);
      const DimLoops there = rename(known), here = broadcast_loops(loops, type);
      for (size_t d = 0; d < here.size(); ++d) {
        if (type.sizes[d].value() == 1 || !there[d].has_value()) continue;
        if (!into.space.same(*there[d], *here[d])) return;
      }
    }
    for (Member& member : from.members) {
      member.loops = rename(member.loops);
      member.inner = into.has_reduction;
      const auto node = static_cast<size_t>(member.node);
      plan_.group_of[node] = index;
      inner_[node] = member.inner;
      into.members.push_back(std::move(member));
    }
    std::ranges::sort(into.members, {}, [&](const Member& member) {
      return order_[static_cast<size_t>(member.node)];
    });
    for (const auto& [id, dims] : from.loops) {
      into.loops.try_emplace(id, rename(dims));
      if (const auto it = readers_.find(root(id)); it != readers_.end())
        std::ranges::replace(it->second, other, index);
    }
    into.first_reader = std::min(into.first_reader, from.first_reader);
    from.members.clear();
    from.loops.clear();
  }

  /// Whether later phases may walk the reduced loops once more.
  bool sweeps_again(const KernelGroup& group) const {
    if (group.column && !target_.limits.column_sweeps) return false;
    int64_t rows = 1, length = 1;
    for (int32_t loop : group.space.leaves())
      (group.space.reduced(loop) ? length : rows) *= group.space.extent(loop);
    return rows >= target_.limits.few_rows || length <= target_.limits.long_row;
  }

  void start_reducing(KernelGroup& group, const Loops& reduced, const ir::TensorType& type,
                      const DimLoops& loops) {
    group.has_reduction = true;
    group.space.mark_reduced(reduced);
    for (Member& member : group.members) {
      member.inner = true;
      inner_[static_cast<size_t>(member.node)] = true;
    }
    // The loop with the smallest stride decides which way the nest is walked.
    int64_t smallest = INT64_MAX;
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      const Loops dim = group.space.resolve(*loops[d]);
      const int64_t stride = type.strides[d].value();
      if (dim.empty() || stride == 0 || stride >= smallest) continue;
      smallest = stride;
      group.column = !group.space.reduced(dim.back());
    }
  }

  void found_group(const Call& call, const Rule& rule, const std::vector<Reading>& reads) {
    const bool reduces = rule.kind == RuleKind::Reduction;
    const ir::TensorType& type = reduces ? *call.tensor(0) : call.result();
    KernelGroup group;
    group.shape = type.static_sizes();
    group.level = floor_;
    for (int64_t size : group.shape)
      group.shape_loops.push_back(size == 1 ? Loops{} : Loops{group.space.add(size)});
    for (const Reading& reading : reads)
      group.level = std::max(group.level, level_of(reading.value) + 1);
    if (reduces) {
      Loops reduced;
      for (int64_t dim : rule.dims(call)) {
        for (int32_t loop : *group.shape_loops[static_cast<size_t>(dim)]) reduced.push_back(loop);
      }
      start_reducing(group, reduced, type, group.shape_loops);
    }
    const DimLoops loops = group.shape_loops;
    plan_.groups.push_back(std::move(group));
    commit(static_cast<int32_t>(plan_.groups.size() - 1), call,
           {.node = call.node().id(), .rule = &rule, .inner = reduces}, loops, reads);
  }

  void commit(int32_t index, const Call& call, const Member& member, const DimLoops& loops,
              const std::vector<Reading>& reads) {
    KernelGroup& group = plan_.groups[static_cast<size_t>(index)];
    const ir::Node& node = call.node();
    const bool reduces = member.rule->kind == RuleKind::Reduction;
    plan_.group_of[at(node)] = index;
    order_[at(node)] = committed_++;
    inner_[at(node)] = member.inner;
    stage_[at(node)] = member.stage;
    is_reduction_[at(node)] = reduces;
    highest_ = std::max(highest_, group.level);
    group.members.push_back(member);
    group.members.back().loops = loops;
    for (const Reading& reading : reads) {
      note_reader_outside(reading.value, index, group.level);
      const ir::TensorType& type = type_of(graph_, reading.value);
      if (reading.memory || type.sizes.size() > loops.size()) continue;
      group.loops.try_emplace(reading.value, broadcast_loops(loops, type));
      std::vector<int32_t>& readers = readers_[root(reading.value)];
      if (readers.empty() || readers.back() != index) readers.push_back(index);
      if (readers.size() > kMostReaders) readers.erase(readers.begin());
    }
    for (ir::ValueId result : node.results()) {
      group.loops.insert_or_assign(
          result,
          reduces ? reduced_loops(call, *member.rule, loops, type_of(graph_, result)) : loops);
    }
  }

  void note_reader_outside(ir::ValueId id, int32_t index, int32_t level) {
    if (group_of(root(id)) != index) note_reader(id, level);
  }

  /// A copy alone, a lone cat or lookup: libtorch's kernels have nothing to learn from us.
  void leave_plain_copies_to_libtorch() {
    for (KernelGroup& group : plan_.groups) {
      if (group.members.size() != 1) continue;
      const Member& only = group.members.front();
      if (only.rule->pays_alone) continue;
      plan_.group_of[static_cast<size_t>(only.node)] = -1;
      group.members.clear();
    }
  }

  /// Values that libtorch takes, or that a kernel reads at other places, are written once, by a
  /// kernel of their own.
  void store_needed_sources() {
    std::unordered_set<ir::ValueId> needed;
    graph_.for_each_node([&](const ir::Node& node) {
      if (node.kind() == ir::NodeKind::Constant || plan_.source[at(node)] != nullptr ||
          views_.is_folded(node))
        return;
      const bool fused = plan_.group_of[at(node)] >= 0;
      const Rule* rule = fused ? find_rule(Call(graph_, node), target_) : nullptr;
      static const Rule kAllInMemory{
          .op = "", .memory_operands = UINT32_MAX, .list_in_memory = true};
      for (const Reading& reading : readings(node, rule == nullptr ? kAllInMemory : *rule)) {
        if (reading.memory) needed.insert(root(reading.value));
      }
    });
    for (const ir::Output& output : graph_.outputs()) {
      if (output.value != ir::kNoValue) needed.insert(root(output.value));
    }
    graph_.for_each_node([&](const ir::Node& node) {
      const Rule* rule = plan_.source[at(node)];
      if (rule != nullptr && needed.contains(node.results()[0]))
        found_group(Call(graph_, node), *rule, {});
    });
  }

  static size_t at(const ir::Node& node) { return static_cast<size_t>(node.id()); }

  static constexpr size_t kMostReaders = 4;

  const ir::Graph& graph_;
  const Views& views_;
  const Target& target_;
  const GroupLoops loops_;
  FusionPlan plan_;
  std::vector<int32_t> level_;  // of nodes left to libtorch
  std::vector<bool> inner_;
  std::vector<int32_t> stage_;
  std::vector<bool> is_reduction_;
  std::set<ir::NodeId> waiting_;  // for their first reader; in order, so that plans are repeatable
  std::vector<int32_t> order_;    // in which nodes joined their groups
  int32_t committed_ = 0;
  std::unordered_map<ir::ValueId, std::vector<int32_t>> readers_;  // by root: groups that read it
  int32_t last_ordered_ = 0;  // level of the last draw or effect: they keep their order
  int32_t floor_ = 0;         // groups below it are closed by a write
  int32_t highest_ = 0;       // level of anything so far
};

}  // namespace

FusionPlan fuse(const ir::Graph& graph, const Views& views, const Target& target) {
  return Fuser(graph, views, target).run();
}

}  // namespace tandem::loops
