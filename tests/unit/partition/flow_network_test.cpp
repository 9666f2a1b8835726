#include "partition/min_cut/flow_network.h"

#include "tandem/error.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <c10/util/NetworkFlow.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <string>

namespace tandem::partition {
namespace {

using Vertex = FlowNetwork::Vertex;
using EdgeIds = std::vector<FlowNetwork::EdgeId>;
constexpr int64_t kInfinite = FlowNetwork::kInfinite;

FlowNetwork network(Vertex vertices, const std::vector<FlowNetwork::Edge>& edges) {
  FlowNetwork result;
  for (Vertex i = 0; i < vertices; ++i) result.add_vertex();
  for (const FlowNetwork::Edge& edge : edges) result.add_edge(edge);
  return result;
}

TEST(MinimumCut, IsTheNarrowestPlaceOfAChain) {
  const FlowNetwork chain = network(4, {{0, 1, 5}, {1, 2, 3}, {2, 3, 4}});
  const FlowCut cut = minimum_cut(chain, 0, 3);
  EXPECT_EQ(cut.value, 3);
  EXPECT_EQ(cut.edges, EdgeIds{1});
  EXPECT_EQ(cut.on_sink_side, (std::vector<bool>{false, false, true, true}));
}

TEST(MinimumCut, IsTheOneClosestToTheSinkAmongEqualOnes) {
  const FlowNetwork chain = network(4, {{0, 1, 3}, {1, 2, 3}, {2, 3, 3}});
  EXPECT_EQ(minimum_cut(chain, 0, 3).edges, EdgeIds{2});
  // Where the last edge is wider, the last of the narrow ones.
  const FlowNetwork wider = network(4, {{0, 1, 3}, {1, 2, 3}, {2, 3, 4}});
  EXPECT_EQ(minimum_cut(wider, 0, 3).edges, EdgeIds{1});
}

TEST(MinimumCut, TakesFlowBackWhereAnotherPathNeedsTheEdge) {
  // 0 -> {1, 2} -> {3, 4} -> 5, with 1 -> 4 in the way of the only path of 2.
  const FlowNetwork crossed =
      network(6, {{0, 1, 1}, {0, 2, 1}, {1, 4, 1}, {1, 3, 1}, {2, 4, 1}, {3, 5, 1}, {4, 5, 1}});
  EXPECT_EQ(minimum_cut(crossed, 0, 5).value, 2);
}

TEST(MinimumCut, NeverContainsAnInfiniteEdge) {
  const FlowNetwork chain =
      network(4, {{0, 1, kInfinite}, {1, 2, kInfinite - 1}, {2, 3, kInfinite}});
  const FlowCut cut = minimum_cut(chain, 0, 3);
  EXPECT_EQ(cut.value, kInfinite - 1);
  EXPECT_EQ(cut.edges, EdgeIds{1});
}

TEST(MinimumCut, IsEmptyWhereNothingLeadsToTheSink) {
  const FlowCut cut = minimum_cut(network(3, {{0, 1, 7}, {2, 1, 7}}), 0, 2);
  EXPECT_EQ(cut.value, 0);
  EXPECT_TRUE(cut.edges.empty());
}

TEST(MinimumCut, RefusesWhatHasNone) {
  EXPECT_THROW(minimum_cut(network(2, {{0, 1, kInfinite}}), 0, 1), InternalError);
  EXPECT_THROW(minimum_cut(network(2, {{0, 1, kInfinite - 1}, {0, 1, kInfinite - 1}}), 0, 1),
               InternalError);
  EXPECT_THROW(minimum_cut(network(1, {}), 0, 0), InternalError);
}

TEST(FlowNetwork, RefusesEdgesThatAreNone) {
  FlowNetwork one = network(1, {});
  EXPECT_THROW(one.add_edge({0, 1, 1}), InternalError);
  EXPECT_THROW(one.add_edge({-1, 0, 1}), InternalError);
  EXPECT_THROW(one.add_edge({0, 0, -1}), InternalError);
  EXPECT_THROW(one.add_edge({0, 0, kInfinite + 1}), InternalError);
}

TEST(InfinitePath, NamesItsEdgesInOrder) {
  const FlowNetwork two_ways = network(5, {{0, 1, kInfinite, "cannot be computed again"},
                                           {1, 2, kInfinite, "cannot be saved"},
                                           {2, 3, 8, "bytes"},
                                           {2, 4, kInfinite, "the backward reads it"},
                                           {3, 4, kInfinite, "never reached"}});
  std::vector<std::string_view> reasons;
  for (auto edge : infinite_path(two_ways, 0, 4))
    reasons.push_back(two_ways.edges()[static_cast<size_t>(edge)].reason);
  EXPECT_EQ(reasons, (std::vector<std::string_view>{"cannot be computed again", "cannot be saved",
                                                    "the backward reads it"}));
}

TEST(InfinitePath, IsEmptyIfOneEdgeOfEachPathIsFinite) {
  EXPECT_TRUE(infinite_path(network(3, {{0, 1, kInfinite}, {1, 2, 8}}), 0, 2).empty());
  EXPECT_TRUE(infinite_path(network(2, {{1, 0, kInfinite}}), 0, 1).empty()) << "against an edge";
}

TEST(InfinitePath, IsAShortestOne) {
  const FlowNetwork both = network(
      4, {{0, 1, kInfinite}, {1, 2, kInfinite}, {2, 3, kInfinite}, {1, 3, kInfinite}, {3, 0, 1}});
  EXPECT_EQ(infinite_path(both, 0, 3), (EdgeIds{0, 3}));
}

// ---- against other people's solvers ----

/// Layers with edges forward, backward and sideways, double edges and loops, and ties in plenty.
FlowNetwork random_network(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto vertices = static_cast<Vertex>(pick(2, 24));
  const int64_t edges = pick(0, 4 * vertices);
  const int64_t widest = pick(0, 1) ? 3 : 1000;
  FlowNetwork made = network(vertices, {});
  for (int64_t i = 0; i < edges; ++i) {
    auto from = static_cast<Vertex>(pick(0, vertices - 1));
    auto to = static_cast<Vertex>(pick(0, vertices - 1));
    if (from > to && pick(0, 3) > 0) std::swap(from, to);
    made.add_edge({from, to, pick(0, 5) == 0 ? kInfinite : pick(0, widest)});
  }
  return made;
}

int64_t boost_flow(const FlowNetwork& network, Vertex source, Vertex sink) {
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  using Properties = boost::property<
      boost::edge_capacity_t, int64_t,
      boost::property<boost::edge_residual_capacity_t, int64_t,
                      boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>;
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS,
                                      boost::no_property, Properties>;
  Graph graph(static_cast<size_t>(network.vertex_count()));
  auto capacity = boost::get(boost::edge_capacity, graph);
  auto reverse = boost::get(boost::edge_reverse, graph);
  for (const FlowNetwork::Edge& edge : network.edges()) {
    const auto along =
        boost::add_edge(static_cast<size_t>(edge.from), static_cast<size_t>(edge.to), graph).first;
    const auto against =
        boost::add_edge(static_cast<size_t>(edge.to), static_cast<size_t>(edge.from), graph).first;
    // Small enough that its sums do not overflow, larger than all finite ones together.
    capacity[along] = std::min<int64_t>(edge.capacity, int64_t{1} << 40);
    capacity[against] = 0;
    reverse[along] = against;
    reverse[against] = along;
  }
  return boost::push_relabel_max_flow(graph, static_cast<size_t>(source),
                                      static_cast<size_t>(sink));
}

/// libtorch's own solver of the reference's partitioner: flow, and which side each vertex is on.
c10::MinCutResult c10_cut(const FlowNetwork& network, Vertex source, Vertex sink) {
  std::map<std::pair<Vertex, Vertex>, int64_t> sums;
  for (const FlowNetwork::Edge& edge : network.edges()) {
    int64_t& sum = sums[{edge.from, edge.to}];
    sum = std::min(kInfinite, sum + edge.capacity);
  }
  c10::NetworkFlowGraph graph;
  for (const auto& [ends, capacity] : sums)
    graph.add_edge(std::to_string(ends.first), std::to_string(ends.second), capacity);
  // Vertices that it shall know of though no edge has them.
  for (Vertex i = 0; i < network.vertex_count(); ++i)
    graph.add_edge(std::to_string(i), "nowhere", 0);
  return graph.minimum_cut(std::to_string(source), std::to_string(sink));
}

TEST(MinimumCut, AgreesWithBoostAndWithLibtorchOnTenThousandNetworks) {
  std::mt19937 random(20240817);
  int64_t unbounded = 0, tied = 0, flowing = 0;
  for (int i = 0; i < 10'000; ++i) {
    const FlowNetwork made = random_network(random);
    const Vertex source = 0, sink = made.vertex_count() - 1;
    const int64_t flow = boost_flow(made, source, sink);
    const c10::MinCutResult other = c10_cut(made, source, sink);
    if (!infinite_path(made, source, sink).empty()) {
      ++unbounded;
      ASSERT_GE(flow, int64_t{1} << 40) << "network " << i;
      ASSERT_NE(other.status, c10::MinCutStatus::SUCCESS) << "network " << i;
      continue;
    }
    const FlowCut cut = minimum_cut(made, source, sink);
    ASSERT_EQ(cut.value, flow) << "network " << i;
    ASSERT_EQ(other.status, c10::MinCutStatus::SUCCESS) << "network " << i;
    ASSERT_EQ(cut.value, other.max_flow) << "network " << i;
    std::set<std::string> mine;
    for (Vertex vertex = 0; vertex < made.vertex_count(); ++vertex) {
      if (cut.on_sink_side[static_cast<size_t>(vertex)]) mine.insert(std::to_string(vertex));
    }
    ASSERT_EQ(mine, std::set<std::string>(other.unreachable.begin(), other.unreachable.end()))
        << "network " << i;
    int64_t sum = 0;
    for (auto edge : cut.edges) sum += made.edges()[static_cast<size_t>(edge)].capacity;
    ASSERT_EQ(sum, cut.value) << "network " << i;
    flowing += cut.value > 0;
    // The cut closest to the source, by turning all edges round: another one if there is a tie.
    FlowNetwork turned = network(made.vertex_count(), {});
    for (FlowNetwork::Edge edge : made.edges()) {
      std::swap(edge.from, edge.to);
      turned.add_edge(edge);
    }
    const FlowCut far = minimum_cut(turned, sink, source);
    ASSERT_EQ(far.value, cut.value) << "network " << i;
    tied += far.edges != cut.edges;
  }
  // Otherwise the comparison above says little.
  EXPECT_GT(unbounded, 500);
  EXPECT_GT(flowing, 2000);
  EXPECT_GT(tied, 500);
}

// A training step is a long chain of blocks: a solver that walks all of it for every path would
// need minutes for this one.
TEST(MinimumCut, OfALongChainOfBlocksIsNoMatterOfMinutes) {
  constexpr int kBlocks = 2'000, kPerBlock = 50;
  FlowNetwork chain;
  const Vertex source = chain.add_vertex(), sink = chain.add_vertex();
  std::mt19937 random(1);
  Vertex before = source;
  for (int block = 0; block < kBlocks; ++block) {
    for (int i = 0; i < kPerBlock; ++i) {
      const Vertex in = chain.add_vertex(), out = chain.add_vertex();
      if (i == 0) chain.add_edge({source, in, kInfinite});
      if (before != source) chain.add_edge({before, in, kInfinite});
      chain.add_edge({in, out, static_cast<int64_t>(random() % 1000 + 1)});
      if (i % 3 == 0) chain.add_edge({out, sink, kInfinite});
      before = out;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const FlowCut cut = minimum_cut(chain, source, sink);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_GE(cut.edges.size(), size_t{kBlocks});
  EXPECT_LT(seconds.count(), 30) << "seconds";
}

}  // namespace
}  // namespace tandem::partition
