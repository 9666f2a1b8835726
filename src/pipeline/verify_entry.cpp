#include "pipeline/verify_entry.h"

#include "base/error.h"
#include "ir/tensor_data.h"
#include "ir/text/printer.h"
#include "pipeline/pipeline.h"
#include "runtime/guards/constant_text.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <optional>
#include <sstream>

namespace tandem::pipeline {
namespace {

constexpr size_t kLongestText = 240;

/// The text of what was compiled and of what a trace gives now. A text is empty if there is no such
/// thing.
struct Difference {
  std::string what, compiled, now;
};

std::string cut_short(std::string text) {
  if (text.size() > kLongestText) text = text.substr(0, kLongestText) + " ...";
  return text.empty() ? "nothing" : text;
}

[[noreturn]] void report(const Difference& difference) {
  throw UserError(
      "call",
      base::str(
          "verify_every: the function is not what was compiled: ", difference.what, " differs",
          "\n  compiled: ", cut_short(difference.compiled),
          "\n  now:      ", cut_short(difference.now),
          "\n  cause:    host code depends on something that no guard watches",
          "\n  remedy:   name it: a module whose flags it reads (compile(net, fn) or "
          "Options::modules), a tensor variable that is assigned again "
          "(Options::closes_over), anything else (Options::guard_on); reset() compiles anew"));
}

std::string lifted_text(const ir::Graph& graph, const std::vector<at::Tensor>& lifted, size_t i) {
  if (i >= lifted.size()) return {};
  const ir::ValueId input = graph.inputs()[i];
  std::ostringstream out;
  out << ir::to_string(graph.input_role(input)) << ", "
      << ir::to_string(*graph.value(input).tensor_type()) << ", tensor object at "
      << static_cast<const void*>(lifted[i].unsafeGetTensorImpl());
  return out.str();
}

void compare_lifted(const ir::Graph& compiled, const std::vector<at::Tensor>& then,
                    const Joint& now) {
  for (size_t i = 0; i < std::max(then.size(), now.lifted.size()); ++i) {
    if (i < then.size() && i < now.lifted.size() && then[i].is_same(now.lifted[i])) continue;
    report({base::str("closed-over tensor ", i), lifted_text(compiled, then, i),
            lifted_text(now.graph, now.lifted, i)});
  }
}

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

std::vector<std::string> node_lines(ir::Graph graph) {
  graph.for_each_node([&](ir::Node& node) { graph.set_location(node, {}); });
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

/// The texts leave large constants out, so these are compared here. Nothing if both are equal, or
/// are no constants.
std::optional<Difference> constant_difference(const ir::Node& compiled, const ir::Node& now) {
  if (compiled.kind() != ir::NodeKind::Constant) return std::nullopt;
  const auto a = ir::constant_bytes(compiled.constant()), b = ir::constant_bytes(now.constant());
  if (a == b) return std::nullopt;
  const at::Tensor x = compiled.constant().flatten(), y = now.constant().flatten();
  int64_t i = 0;
  while (i + 1 < x.numel() && x[i].equal(y[i])) ++i;
  const auto text = [&](const at::Tensor& tensor) {
    return base::str("element ", i, " is ", tensor[i].item());
  };
  return Difference{"a constant of the host", text(x), text(y)};
}

void compare_graphs(const ir::Graph& compiled, const ir::Graph& now) {
  if (ir::structural_hash(compiled) == ir::structural_hash(now)) return;
  for (size_t i = 0; i < std::max(compiled.inputs().size(), now.inputs().size()); ++i) {
    const std::string a = input_line(compiled, i), b = input_line(now, i);
    if (a != b) report({base::str("input ", i), a, b});
  }
  const std::vector<std::string> lines = node_lines(compiled), lines_now = node_lines(now);
  const std::vector<ir::NodeId> order = node_order(compiled), order_now = node_order(now);
  for (size_t i = 0; i < std::max(lines.size(), lines_now.size()); ++i) {
    if (i < lines.size() && i < lines_now.size() && lines[i] == lines_now[i]) {
      const auto difference = constant_difference(compiled.node(order[i]), now.node(order_now[i]));
      if (difference) report(*difference);
      continue;
    }
    // The graphs' own names and locations read better than the numbers.
    report({base::str("node ", i, " of ", lines.size()),
            i < order.size() ? ir::print(compiled, compiled.node(order[i])) : "",
            i < order_now.size() ? ir::print(now, now.node(order_now[i])) : ""});
  }
  const std::vector<std::string> names = numbered(compiled), names_now = numbered(now);
  for (size_t i = 0; i < std::max(compiled.outputs().size(), now.outputs().size()); ++i) {
    const std::string a = output_line(compiled, names, i), b = output_line(now, names_now, i);
    if (a != b) report({base::str("output ", i), a, b});
  }
  // The texts are equal, but the hashes are not: the difference is in what texts leave out, such as
  // the phase of a node.
  report({"the graph", base::str(lines.size(), " nodes"), base::str(lines_now.size(), " nodes")});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void compare_signatures(const ir::Signature& compiled, const ir::Signature& now) {
  const auto a = lines_of(ir::to_string(compiled)), b = lines_of(ir::to_string(now));
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string x = i < a.size() ? a[i] : "", y = i < b.size() ? b[i] : "";
    if (x != y) report({"what a call does to arguments and results", x, y});
  }
  for (size_t i = 0; i < std::max(compiled.replays.size(), now.replays.size()); ++i) {
    const std::string x = i < compiled.replays.size() ? ir::print(compiled.replays[i].graph) : "";
    const std::string y = i < now.replays.size() ? ir::print(now.replays[i].graph) : "";
    if (x != y) report({"how a result is made as a view of an input", x, y});
  }
}

}  // namespace

void verify_entry(const runtime::EntryState& entry, const Program& program,
                  const detail::Flat& arguments, const Options& options) {
  StageLog log("verify", {});
  Captured now = capture(program, arguments, options, log);
  compare_lifted(entry.joint(), entry.lifted(), now.joint);
  run_passes(now.joint.graph, chosen_decompositions(options), options.rounding, log);
  compare_graphs(entry.joint(), now.joint.graph);
  compare_signatures(entry.signature(), now.joint.signature);
  const auto& then = entry.result_constants();
  for (size_t i = 0; i < std::max(then.size(), now.result_constants.size()); ++i) {
    const std::string a = i < then.size() ? runtime::constant_text(then[i]) : "";
    const std::string b =
        i < now.result_constants.size() ? runtime::constant_text(now.result_constants[i]) : "";
    if (a != b) report({base::str("constant ", i, " of the results"), a, b});
  }
}

}  // namespace tandem::pipeline
