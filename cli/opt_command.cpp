#include "commands.h"
#include "graph_file.h"
#include "tandem/ir/text.h"
#include "tandem/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace tandem::cli {
namespace {

bool is_pass(const std::string& name) {
  return std::ranges::any_of(registered_passes(),
                             [&](const PassInfo& pass) { return name == pass.name; });
}

std::string known_passes() {
  std::string names;
  for (const PassInfo& pass : registered_passes())
    names += (names.empty() ? "" : ", ") + std::string(pass.name);
  return names;
}

/// Before any file is read: a wrong name is a wrong command line, whatever the file holds.
void check_names(const OptOptions& options) {
  for (const std::string& name : options.passes) {
    if (is_pass(name)) continue;
    throw UsageError(
        fmt::format("--passes: no pass is called \"{}\"\n  known:  {}", name, known_passes()));
  }
  if (options.dump_after == "all" || options.dump_after == "none") return;
  if (std::ranges::find(options.passes, options.dump_after) == options.passes.end()) {
    throw UsageError(fmt::format(
        "--dump-after: expected all, none or a pass of --passes, got \"{}\"", options.dump_after));
  }
}

void dump(const std::string& pass, const ir::Graph& graph, int64_t changes) {
  // `#` starts a comment, so a dump cut out of the log still parses.
  if (changes == 0) {
    std::cerr << fmt::format("# graph {} after {}: unchanged\n", graph.name(), pass);
  } else {
    std::cerr << fmt::format("# graph {} after {}: {}\n", graph.name(), pass,
                             counted(static_cast<size_t>(changes), "change"))
              << ir::print(graph);
  }
}

void optimise(ir::Graph& graph, const OptOptions& options) {
  std::string times =
      fmt::format("{:<28} {:>8} {:>8} {:>10}\n", "graph " + graph.name(), "changes", "nodes", "ms");
  for (const std::string& pass : options.passes) {
    apply_pass(pass, graph, [&](const PassStep& step) {
      if (options.dump_after == "all" || options.dump_after == pass)
        dump(pass, graph, step.changes);
      times += fmt::format("  {:<26} {:>8} {:>8} {:>10.3f}\n", pass, step.changes,
                           graph.node_count(), 1e3 * step.seconds);
    });
  }
  // Behind the dumps, so that it stays in one piece.
  if (options.time) std::cerr << times;
}

}  // namespace

void optimise_graphs(const OptOptions& options) {
  check_names(options);
  std::vector<ir::Graph> graphs = read_graphs(options.file);
  for (ir::Graph& graph : graphs) optimise(graph, options);
  if (!options.output.empty()) {
    ir::write_file(options.output, graphs);
    return;
  }
  const char* separator = "";
  for (const ir::Graph& graph : graphs) {
    std::cout << separator << ir::print(graph);
    separator = "\n";
  }
}

void list_passes() {
  for (const PassInfo& pass : registered_passes()) {
    std::cout << fmt::format("{:<20} {:<8} {:<4} {}\n", pass.name, pass.exact ? "exact" : "inexact",
                             pass.on_by_default ? "on" : "off", pass.summary);
  }
}

}  // namespace tandem::cli
