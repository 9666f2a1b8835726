#include "pipeline/verify/graph_difference.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "ir/text/printer.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::pipeline {
namespace {

/// Values numbered in the order of their definition: equal programs give equal lines.
std::vector<std::string> numbered(const ir::Graph& graph) {
  std::vector<std::string> names(graph.value_limit());
  size_t next = 0;
  const auto define = [&](ir::ValueId value) {
    if (value != ir::kNoValue) names[static_cast<size_t>(value)] = std::to_string(next++);
  };
  for (ir::ValueId input : graph.inputs()) define(input);
  graph.for_each_node([&](const ir::Node& node) {
    for (ir::ValueId result : node.results()) define(result);
  });
  return names;
}

std::string input_line(const ir::Graph& graph, size_t i) {
  if (i >= graph.inputs().size()) return {};
  const ir::ValueId input = graph.inputs()[i];
  return ir::to_string(graph.input_role(input)) + ": " + ir::to_string(graph.value(input).type());
}

std::string output_line(const ir::Graph& graph, const std::vector<std::string>& names, size_t i) {
  if (i >= graph.outputs().size()) return {};
  const ir::Output& output = graph.outputs()[i];
  const std::string value =
      output.value == ir::kNoValue ? "none" : "%" + names[static_cast<size_t>(output.value)];
  return value + ": " + ir::to_string(output.role);
}

ir::Graph without_lines(ir::Graph graph) {
  graph.for_each_node([&](ir::Node& node) { graph.set_location(node, {}); });
  return graph;
}

std::vector<std::string> node_lines(const ir::Graph& graph) {
  const std::vector<std::string> names = numbered(graph);
  std::vector<std::string> lines;
  graph.for_each_node(
      [&](const ir::Node& node) { ir::append_node(lines.emplace_back(), graph, node, names); });
  return lines;
}

std::vector<ir::NodeId> node_order(const ir::Graph& graph) {
  std::vector<ir::NodeId> order;
  graph.for_each_node([&](const ir::Node& node) { order.push_back(node.id()); });
  return order;
}

constexpr const char* kDecides = "host code decides something else than when it was compiled";

/// The texts leave large constants out, so these are compared here. Nothing if both are equal, or
/// are no constants.
std::optional<Difference> constant_difference(const ir::Node& compiled, const ir::Node& now) {
  if (compiled.kind() != ir::NodeKind::Constant) return std::nullopt;
  const auto a = ir::constant_bytes(compiled.constant()), b = ir::constant_bytes(now.constant());
  if (a == b) return std::nullopt;
  const at::Tensor x = compiled.constant().flatten(), y = now.constant().flatten();
  int64_t i = 0;
  while (i + 1 < x.numel() && x[i].equal(y[i])) ++i;
  return Difference{.what = base::str("element ", i, " of a tensor that host code fills is ",
                                      x[i].item(), ", now ", y[i].item()),
                    .line = now.location(),
                    .cause = "it holds numbers of the host that have changed"};
}

}  // namespace

std::optional<Difference> graph_difference(const ir::Graph& compiled, const ir::Graph& now) {
  if (ir::structural_hash(compiled) == ir::structural_hash(now)) return std::nullopt;
  for (size_t i = 0; i < std::max(compiled.inputs().size(), now.inputs().size()); ++i) {
    const std::string a = input_line(compiled, i), b = input_line(now, i);
    if (a != b) {
      return Difference{
          .what = base::str("input ", i, " differs"), .compiled = a, .now = b, .cause = kDecides};
    }
  }
  const ir::Graph plain = without_lines(compiled), plain_now = without_lines(now);
  const std::vector<std::string> lines = node_lines(plain), lines_now = node_lines(plain_now);
  const std::vector<ir::NodeId> order = node_order(compiled), order_now = node_order(now);
  for (size_t i = 0; i < std::max(lines.size(), lines_now.size()); ++i) {
    if (i < lines.size() && i < lines_now.size()) {
      const ir::Node &a = compiled.node(order[i]), &b = now.node(order_now[i]);
      const bool both = a.kind() == ir::NodeKind::Constant && b.kind() == ir::NodeKind::Constant &&
                        a.constant().sizes() == b.constant().sizes() &&
                        a.constant().dtype() == b.constant().dtype();
      if (auto difference = both ? constant_difference(a, b) : std::nullopt) return difference;
      if (lines[i] == lines_now[i]) continue;
    }
    // The graphs' own names read better than the numbers.
    Difference difference{.what = "an op reads something else", .cause = kDecides};
    if (i < order.size()) difference.compiled = ir::print(plain, plain.node(order[i]));
    if (i < order_now.size()) {
      difference.now = ir::print(plain_now, plain_now.node(order_now[i]));
      difference.line = now.node(order_now[i]).location();
    }
    return difference;
  }
  const std::vector<std::string> names = numbered(compiled), names_now = numbered(now);
  for (size_t i = 0; i < std::max(compiled.outputs().size(), now.outputs().size()); ++i) {
    const std::string a = output_line(compiled, names, i), b = output_line(now, names_now, i);
    if (a != b) {
      return Difference{
          .what = base::str("output ", i, " differs"), .compiled = a, .now = b, .cause = kDecides};
    }
  }
  // The texts are equal, but the hashes are not: the difference is in what texts leave out, such as
  // the phase of a node.
  return Difference{.what = base::str("a graph of ", lines.size(), " nodes differs in its details"),
                    .cause = kDecides};
}

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// What the function does, whatever the call finds. An entry serves calls whose inputs count their
/// versions together or apart, where that changes nothing else; and libtorch's words for what a
/// backward refuses name the versions of one moment.
ir::Signature of_any_call(ir::Signature signature, bool with_counters) {
  for (ir::TangentFacts& tangent : signature.tangents) {
    if (!tangent.raises.empty()) tangent.raises = "an error";
  }
  for (ir::InputFacts& input : signature.inputs) {
    if (with_counters) continue;
    input.counter_of = -1;
    input.version_delta = 0;
    input.histories = 1;
  }
  return signature;
}

}  // namespace

std::optional<Difference> signature_difference(const ir::Signature& found_then,
                                               const ir::Signature& found_now) {
  const auto counter_of = [](const ir::InputFacts& input) { return input.counter_of; };
  const bool same_counters =
      std::ranges::equal(found_then.inputs, found_now.inputs, {}, counter_of, counter_of);
  const ir::Signature compiled = of_any_call(found_then, same_counters);
  const ir::Signature now = of_any_call(found_now, same_counters);
  const std::string text = ir::to_string(compiled), text_now = ir::to_string(now);
  if (text != text_now) {
    const auto a = lines_of(text), b = lines_of(text_now);
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      const std::string x = i < a.size() ? a[i] : "", y = i < b.size() ? b[i] : "";
      if (x == y) continue;
      return Difference{.what = "what a call does to arguments and results differs",
                        .compiled = x,
                        .now = y,
                        .cause = kDecides};
    }
  }
  for (size_t i = 0; i < std::max(compiled.replays.size(), now.replays.size()); ++i) {
    const bool both = i < compiled.replays.size() && i < now.replays.size();
    // Texts have the lines of the program, which take long to look up.
    if (both &&
        ir::structural_hash(compiled.replays[i].graph) == ir::structural_hash(now.replays[i].graph))
      continue;
    const std::string x = i < compiled.replays.size() ? ir::print(compiled.replays[i].graph) : "";
    const std::string y = i < now.replays.size() ? ir::print(now.replays[i].graph) : "";
    if (x == y) continue;
    return Difference{.what = "how a result is made as a view of an input differs",
                      .compiled = x,
                      .now = y,
                      .cause = kDecides};
  }
  return std::nullopt;
}

}  // namespace tandem::pipeline
