#include "partition/min_cut/recompute_rules.h"

#include "partition/min_cut/flow_network.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace tandem::partition {
namespace {

/// The rules one after the other; an item keeps the first reason that it is given.
class Bans {
 public:
  explicit Bans(const CutGraph& graph)
      : graph_(graph), reasons_(index(graph.size())), order_(index(graph.size()), kNoItem) {
    for (Item item = 0; item < graph.size(); ++item) {
      if (!graph.needed_by_forward(item)) continue;
      order_[index(item)] = static_cast<int32_t>(forward_.size());
      forward_.push_back(item);
    }
  }

  std::vector<std::string_view> run() && {
    for (Item item : forward_) {
      if (const std::string_view reason = reason_by_itself(item); !reason.empty())
        ban(item, reason);
    }
    if (!graph_.fuses()) return std::move(reasons_);
    ban_what_is_used_far_apart();
    ban_ends_of_long_chains();
    return std::move(reasons_);
  }

 private:
  bool is_banned(Item item) const { return !reasons_[index(item)].empty(); }
  bool in_forward(Item item) const { return order_[index(item)] != kNoItem; }

  void ban(Item item, std::string_view reason) {
    // No ban is needed for what only the backward computes, nor for views, which cost nothing.
    if (is_banned(item) || graph_.only_in_backward(item)) return;
    if (graph_[item].is_view && graph_[item].pure) return;
    reasons_[index(item)] = reason;
  }

  std::string_view reason_by_itself(Item item) const {
    const ItemFacts& facts = graph_[item];
    if (facts.node == ir::kNoNode) return "it is an input";
    if (facts.is_result) return {};
    if (facts.is_constant) return {};  // lies in the graph: both halves read it there
    if (!facts.pure) return "it draws or has an effect";
    if (!facts.fusible && !facts.is_number)
      return graph_.fuses() ? "it is costly to compute" : kNothingIsFused;
    if (facts.follows_default_dtype) return "its dtype follows the thread's default";
    // A number cannot be kept, so the rules about memory do not apply. Reading it off a tensor
    // costs nothing.
    if (facts.is_number) return {};
    if (is_materialised_in_backward(item)) return "the backward needs it in memory";
    if (shrinks_its_operands(item)) return "it is small beside what it is computed from";
    return {};
  }

  bool is_materialised_in_backward(Item item) const {
    if (graph_[item].is_view) return false;
    std::vector<Item> list{item};
    for (size_t i = 0; i < list.size(); ++i) {
      for (Item user : graph_.users(list[i])) {
        if (!in_forward(user) && !can_fuse(graph_, list[i], user)) return true;
        // A view of it is in memory where it is.
        if (graph_[user].is_view && std::ranges::find(list, user) == list.end())
          list.push_back(user);
      }
    }
    return false;
  }

  bool shrinks_its_operands(Item item) const {
    int64_t read = 0;
    for (Item operand : graph_.operands(item)) read += graph_[operand].bytes;
    return 4 * graph_[item].bytes < read;
  }

  /// Something that cannot be fused lies between the near and the far readers of a value: if the
  /// far ones were computed again, it would not be in one kernel with the near ones.
  void ban_what_is_used_far_apart() {
    for (Item item : forward_) {
      int32_t last = kNoItem;
      for (Item user : graph_.users(item)) last = std::max(last, order_[index(user)]);
      if (last == kNoItem) continue;
      const int32_t limit = first_barrier(item, last);
      for (Item user : graph_.users(item)) {
        if (in_forward(user) && order_[index(user)] > limit && can_fuse(graph_, item, user))
          ban(user, "it is used far from what it is computed from");
      }
    }
  }

  /// The position of the first reader, direct or indirect, that cannot be fused with what it reads;
  /// `last` if there is none before that.
  int32_t first_barrier(Item item, int32_t last) {
    struct Entry {
      int32_t order;
      bool fused;
      bool operator>(const Entry& other) const {
        return std::tie(order, fused) > std::tie(other.order, other.fused);
      }
    };
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    for (Item user : graph_.users(item)) {
      if (in_forward(user)) queue.push({order_[index(user)], true});
    }
    int32_t done = kNoItem;  // entries come in order: equal ones follow each other
    while (!queue.empty()) {
      const Entry entry = queue.top();
      queue.pop();
      if (!entry.fused) return entry.order;
      if (entry.order == done) continue;
      done = entry.order;
      const Item at = forward_[index(entry.order)];
      for (Item user : graph_.users(at)) {
        const int32_t order = order_[index(user)];
        if (order != kNoItem && order <= last) queue.push({order, can_fuse(graph_, at, user)});
      }
    }
    return last;
  }

  /// A chain of cheap ops through the whole network would be computed again from its start.
  void ban_ends_of_long_chains() {
    constexpr int32_t kLongest = 100;
    std::vector<bool> visited(forward_.size(), false);
    for (int32_t start = 0; start < static_cast<int32_t>(forward_.size()); ++start) {
      std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> queue;
      queue.push(start);
      while (!queue.empty()) {
        const int32_t order = queue.top();
        queue.pop();
        if (visited[index(order)]) continue;
        visited[index(order)] = true;
        const Item item = forward_[index(order)];
        if (order > start + kLongest && queue.empty()) {
          ban(item, "a long chain of cheap ops leads to it");
          break;
        }
        for (Item user : graph_.users(item)) {
          if (in_forward(user) && can_fuse(graph_, item, user) && !is_banned(user))
            queue.push(order_[index(user)]);
        }
      }
    }
  }

  const CutGraph& graph_;
  std::vector<std::string_view> reasons_;  // by item
  std::vector<int32_t> order_;             // by item, of what the forward needs
  std::vector<Item> forward_;              // by order
};

}  // namespace

bool can_fuse(const CutGraph& graph, Item producer, Item user) {
  return graph[producer].fusible && graph[user].fusible;
}

bool is_materialised(const CutGraph& graph, Item item) {
  if (graph[item].node == ir::kNoNode || graph[item].is_output) return true;
  return std::ranges::any_of(graph.users(item),
                             [&](Item user) { return !can_fuse(graph, item, user); });
}

std::vector<int32_t> distance_from_backward(const CutGraph& graph) {
  std::vector<int32_t> distance(index(graph.size()), 0);
  for (Item item = graph.size(); item-- > 0;) {
    if (!graph.needed_by_forward(item)) continue;
    int32_t nearest = kFarFromBackward;
    for (Item user : graph.users(item)) nearest = std::min(nearest, distance[index(user)] + 1);
    distance[index(item)] = nearest;
  }
  return distance;
}

std::vector<std::string_view> bans(const CutGraph& graph) { return Bans(graph).run(); }

}  // namespace tandem::partition
