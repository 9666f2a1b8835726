#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::partition {

/// Of a number that is not negative, to look into a vector with.
inline size_t index(int32_t id) { return static_cast<size_t>(id); }

/// A directed graph whose edges hold so much and no more, or hold everything.
class FlowNetwork {
 public:
  using Vertex = int32_t;
  using EdgeId = int32_t;

  /// The capacity of an edge that no cut may contain. Every other capacity is smaller.
  static constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 2;

  struct Edge {
    Vertex from = 0, to = 0;
    int64_t capacity = 0;
    std::string_view reason{};  // why it is there, for errors; text that outlives the network
  };

  Vertex add_vertex() { return vertex_count_++; }
  /// Capacities are not negative; infinite ones are exactly kInfinite.
  EdgeId add_edge(Edge edge);

  Vertex vertex_count() const { return vertex_count_; }
  std::span<const Edge> edges() const { return edges_; }

 private:
  Vertex vertex_count_ = 0;
  std::vector<Edge> edges_;
};

/// A minimum cut: what has to be taken away so that nothing gets from the source to the sink.
struct FlowCut {
  int64_t value = 0;                       // sum of the capacities of `edges`
  std::vector<FlowNetwork::EdgeId> edges;  // from the source's side to the sink's, ascending
  std::vector<bool> on_sink_side;          // by vertex
};

/// Among equal cuts the one closest to the sink: its side holds only what can still reach the sink
/// when the flow is at its largest. Deterministic. Every path must have a finite edge: ask
/// infinite_path first.
FlowCut minimum_cut(const FlowNetwork& network, FlowNetwork::Vertex source,
                    FlowNetwork::Vertex sink);

/// The edges of a shortest path from source to sink that are all infinite; empty if every path has
/// a finite edge.
std::vector<FlowNetwork::EdgeId> infinite_path(const FlowNetwork& network,
                                               FlowNetwork::Vertex source,
                                               FlowNetwork::Vertex sink);

}  // namespace tandem::partition
