#include "partition/min_cut/flow_network.h"

#include "base/error.h"

#include <algorithm>

namespace tandem::partition {
namespace {

using Vertex = FlowNetwork::Vertex;
using EdgeId = FlowNetwork::EdgeId;
using Arc = int32_t;  // 2 * edge along it, 2 * edge + 1 against it

constexpr int32_t kNone = -1;

Arc opposite(Arc arc) { return arc ^ 1; }

/// The arcs that leave each vertex, those of one vertex side by side and in the order of the edges.
class Adjacency {
 public:
  explicit Adjacency(const FlowNetwork& network)
      : edges_(network.edges()), begin_(index(network.vertex_count()) + 1) {
    for (const FlowNetwork::Edge& edge : edges_) {
      ++begin_[index(edge.from) + 1];
      ++begin_[index(edge.to) + 1];
    }
    for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    arcs_.resize(2 * edges_.size());
    std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < edges_.size(); ++i) {
      const auto along = static_cast<Arc>(2 * i);
      arcs_[index(next[index(edges_[i].from)]++)] = along;
      arcs_[index(next[index(edges_[i].to)]++)] = opposite(along);
    }
  }

  int32_t begin(Vertex vertex) const { return begin_[index(vertex)]; }
  int32_t end(Vertex vertex) const { return begin_[index(vertex) + 1]; }
  Arc at(int32_t position) const { return arcs_[index(position)]; }
  std::span<const Arc> leaving(Vertex vertex) const {
    return std::span(arcs_).subspan(index(begin(vertex)), index(end(vertex) - begin(vertex)));
  }
  Vertex head(Arc arc) const {
    const FlowNetwork::Edge& edge = edges_[index(arc / 2)];
    return (arc & 1) ? edge.from : edge.to;
  }

 private:
  std::span<const FlowNetwork::Edge> edges_;
  std::vector<int32_t> begin_;  // by vertex, into arcs_
  std::vector<Arc> arcs_;
};

/// Dinic's algorithm, with distances to the sink: when the flow is at its largest, the vertices
/// that have one are those that can still reach it, which is the cut that is asked for.
class Dinic {
 public:
  Dinic(const FlowNetwork& network, Vertex source, Vertex sink)
      : network_(network), adjacency_(network), source_(source), sink_(sink) {
    room_.reserve(2 * network.edges().size());
    for (const FlowNetwork::Edge& edge : network.edges()) {
      room_.push_back(edge.capacity);
      room_.push_back(0);
    }
  }

  int64_t run() {
    int64_t flow = 0;
    while (measure_distances()) flow += push_along_shortest_paths();
    return flow;
  }

  bool reaches_sink(Vertex vertex) const { return distance_[index(vertex)] != kNone; }

 private:
  bool measure_distances() {
    distance_.assign(index(network_.vertex_count()), kNone);
    queue_.assign(1, sink_);
    distance_[index(sink_)] = 0;
    for (size_t i = 0; i < queue_.size(); ++i) {
      const Vertex at = queue_[i];
      for (Arc arc : adjacency_.leaving(at)) {
        const Vertex before = adjacency_.head(arc);
        if (room_[index(opposite(arc))] == 0 || distance_[index(before)] != kNone) continue;
        distance_[index(before)] = distance_[index(at)] + 1;
        queue_.push_back(before);
      }
    }
    return distance_[index(source_)] != kNone;
  }

  // Without recursion: paths are as long as the longest chain of the graph.
  int64_t push_along_shortest_paths() {
    next_.resize(index(network_.vertex_count()));
    for (Vertex vertex : queue_) next_[index(vertex)] = adjacency_.begin(vertex);
    int64_t flow = 0;
    path_.clear();
    for (Vertex at = source_;;) {
      if (at == sink_) {
        flow += push_path();
        at = path_.empty() ? source_ : adjacency_.head(path_.back());
        continue;
      }
      if (const Arc arc = next_arc(at); arc != kNone) {
        path_.push_back(arc);
        at = adjacency_.head(arc);
        continue;
      }
      if (path_.empty()) return flow;
      // A dead end: nobody needs to come here again before the distances change.
      distance_[index(at)] = kNone;
      at = adjacency_.head(opposite(path_.back()));
      path_.pop_back();
    }
  }

  Arc next_arc(Vertex at) {
    for (int32_t& position = next_[index(at)]; position < adjacency_.end(at); ++position) {
      const Arc arc = adjacency_.at(position);
      if (room_[index(arc)] > 0 &&
          distance_[index(adjacency_.head(arc))] == distance_[index(at)] - 1) {
        return arc;
      }
    }
    return kNone;
  }

  /// As much as fits; then back to where the first full edge leaves.
  int64_t push_path() {
    int64_t amount = FlowNetwork::kInfinite;
    for (Arc arc : path_) amount = std::min(amount, room_[index(arc)]);
    TANDEM_CHECK(amount < FlowNetwork::kInfinite, "partition",
                 "a path from source to sink has no finite edge");
    size_t first_full = path_.size();
    for (size_t i = path_.size(); i-- > 0;) {
      const Arc arc = path_[i];
      add_room(arc, -amount);
      add_room(opposite(arc), amount);
      if (room_[index(arc)] == 0) first_full = i;
    }
    path_.resize(first_full);
    return amount;
  }

  /// What is infinite stays so.
  void add_room(Arc arc, int64_t amount) {
    int64_t& room = room_[index(arc)];
    if (room != FlowNetwork::kInfinite) room += amount;
  }

  const FlowNetwork& network_;
  const Adjacency adjacency_;
  const Vertex source_, sink_;
  std::vector<int64_t> room_;      // by arc
  std::vector<int32_t> distance_;  // by vertex: arcs to the sink, kNone if it is out of reach
  std::vector<int32_t> next_;      // by vertex: the first arc that was not found to be of no use
  std::vector<Vertex> queue_;
  std::vector<Arc> path_;
};

}  // namespace

EdgeId FlowNetwork::add_edge(Edge edge) {
  TANDEM_CHECK(
      edge.from >= 0 && edge.from < vertex_count_ && edge.to >= 0 && edge.to < vertex_count_,
      "partition", "edge ", edge.from, " -> ", edge.to, " of a network with ", vertex_count_,
      " vertices");
  TANDEM_CHECK(edge.capacity >= 0 && edge.capacity <= kInfinite, "partition", "capacity ",
               edge.capacity);
  edges_.push_back(edge);
  return static_cast<EdgeId>(edges_.size()) - 1;
}

FlowCut minimum_cut(const FlowNetwork& network, Vertex source, Vertex sink) {
  TANDEM_CHECK(source != sink, "partition", "source and sink are one vertex");
  // Any flow goes through finite edges, so no sum of flows is larger than that of their capacities.
  int64_t finite = 0;
  for (const FlowNetwork::Edge& edge : network.edges()) {
    if (edge.capacity == FlowNetwork::kInfinite) continue;
    TANDEM_CHECK(edge.capacity < FlowNetwork::kInfinite - finite, "partition",
                 "the finite capacities of a network add up to more than can be counted");
    finite += edge.capacity;
  }
  Dinic solver(network, source, sink);
  FlowCut cut;
  cut.value = solver.run();
  cut.on_sink_side.resize(index(network.vertex_count()));
  for (Vertex vertex = 0; vertex < network.vertex_count(); ++vertex) {
    cut.on_sink_side[index(vertex)] = solver.reaches_sink(vertex);
  }
  for (size_t i = 0; i < network.edges().size(); ++i) {
    const FlowNetwork::Edge& edge = network.edges()[i];
    if (!cut.on_sink_side[index(edge.from)] && cut.on_sink_side[index(edge.to)])
      cut.edges.push_back(static_cast<EdgeId>(i));
  }
  return cut;
}

std::vector<EdgeId> infinite_path(const FlowNetwork& network, Vertex source, Vertex sink) {
  const Adjacency adjacency(network);
  std::vector<Arc> arrival(index(network.vertex_count()), kNone);
  std::vector<Vertex> queue{source};
  std::vector<EdgeId> path;
  for (size_t i = 0; i < queue.size() && queue[i] != sink; ++i) {
    for (Arc arc : adjacency.leaving(queue[i])) {
      const Vertex to = adjacency.head(arc);
      const bool along = (arc & 1) == 0;
      if (!along || network.edges()[index(arc / 2)].capacity != FlowNetwork::kInfinite ||
          to == source || arrival[index(to)] != kNone) {
        continue;
      }
      arrival[index(to)] = arc;
      queue.push_back(to);
    }
  }
  if (source == sink || arrival[index(sink)] == kNone) return path;
  for (Vertex at = sink; at != source; at = adjacency.head(opposite(arrival[index(at)])))
    path.push_back(arrival[index(at)] / 2);
  std::ranges::reverse(path);
  return path;
}

}  // namespace tandem::partition
