#include "pipeline/reports/explain.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/data_sizes.h"
#include "pipeline/reports/report.h"
#include "pipeline/reports/varying_sizes.h"
#include "pipeline/settings/environment.h"
#include "shapes/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace tandem::pipeline {
namespace {

constexpr size_t kMostRows = 12;   // of a table
constexpr size_t kMostMisses = 4;  // the latest ones

using Row = std::array<std::string, 3>;

/// Columns in line, the first `kMostRows` rows.
void print_rows(std::ostream& out, const std::vector<Row>& rows, const std::string& rest) {
  std::array<size_t, 2> widths{};
  const size_t shown = std::min(rows.size(), kMostRows);
  for (size_t i = 0; i < shown; ++i) {
    for (size_t k = 0; k < widths.size(); ++k) widths[k] = std::max(widths[k], rows[i][k].size());
  }
  for (size_t i = 0; i < shown; ++i) {
    std::string line = fmt::format("    {:<{}}  {:<{}}  {}", rows[i][0], widths[0], rows[i][1],
                                   widths[1], rows[i][2]);
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
  if (rows.size() > shown) out << "    and " << rows.size() - shown << " more " << rest << "\n";
}

void remark(std::string& remarks, const std::string& text) {
  remarks += (remarks.empty() ? "" : ", ") + text;
}

std::string counted(int64_t count, const char* one, const char* many) {
  return base::str(count, " ", count == 1 ? one : many);
}

/// What to call input i of the signature: `argument 0`, `parameter "fc.weight"`.
std::string input_name(const Explanation& explanation, size_t i) {
  const ir::Descriptor& role = explanation.entry->signature().inputs[i].role;
  switch (role.role) {
    case ir::Role::UserInput: {
      const auto index = static_cast<size_t>(role.index);
      return index < explanation.argument_names.size() ? explanation.argument_names[index]
                                                       : ir::to_string(role);
    }
    case ir::Role::Param:
      return "parameter \"" + role.name + "\"";
    case ir::Role::Buffer:
      return "buffer \"" + role.name + "\"";
    default:
      return base::str("closed-over tensor ", role.index);
  }
}

void describe_inputs(std::ostream& out, const Explanation& explanation,
                     const ir::Signature& signature) {
  std::vector<Row> arguments, closed_over;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const ir::InputFacts& facts = signature.inputs[i];
    std::string remarks;
    if (facts.requires_grad) remark(remarks, "gets a gradient");
    if (facts.data_written) remark(remarks, "written by the call");
    if (facts.closed_over) remark(remarks, "also closed over");
    if (facts.duplicate_of >= 0) {
      remark(remarks,
             "same tensor as " + input_name(explanation, static_cast<size_t>(facts.duplicate_of)));
    }
    Row row{input_name(explanation, i), facts.type ? ir::to_string(*facts.type) : "undefined",
            std::move(remarks)};
    (facts.role.role == ir::Role::UserInput ? arguments : closed_over).push_back(std::move(row));
  }
  out << "  arguments" << (arguments.empty() ? ": none\n" : "\n");
  print_rows(out, arguments, "arguments");
  if (closed_over.empty()) return;
  out << "  found in the function, given to the graph as inputs\n";
  print_rows(out, closed_over, "parameters, buffers and closed-over tensors");
}

std::string result_text(const Explanation& explanation, const ir::OutputFacts& facts) {
  switch (facts.kind) {
    case ir::OutputKind::Fresh:
      return facts.requires_grad ? "new, differentiable" : "new";
    case ir::OutputKind::IsInput:
      return input_name(explanation, static_cast<size_t>(facts.source)) + " itself";
    case ir::OutputKind::AliasOfInput:
      return "view of " + input_name(explanation, static_cast<size_t>(facts.source));
    case ir::OutputKind::AliasOfGroup:
      return "view of what arguments share";
    case ir::OutputKind::AliasOfBase:
      return facts.requires_grad ? "view of new memory, differentiable" : "view of new memory";
    case ir::OutputKind::AliasOfOutput:
      return base::str("view of result ", facts.source);
    case ir::OutputKind::SameAsOutput:
      return base::str("the same tensor as result ", facts.source);
    case ir::OutputKind::Undefined:
      break;
  }
  return "undefined";
}

void describe_results(std::ostream& out, const Explanation& explanation,
                      const ir::Signature& signature) {
  std::vector<Row> rows;
  const auto& outputs = signature.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    rows.push_back({base::str("result ", i), outputs[i].type ? ir::to_string(*outputs[i].type) : "",
                    result_text(explanation, outputs[i])});
  }
  out << "  results" << (rows.empty() ? ": none\n" : "\n");
  print_rows(out, rows, "results");
}

/// `u0, 0 to 6: how many aten.nonzero gives (moe.cpp:12)`.
void describe_data_sizes(std::ostream& out, const ir::Graph& forward) {
  if (forward.symbols().empty()) return;
  std::vector<Row> rows;
  for (const ir::Symbol& symbol : forward.symbols()) {
    std::string maker;
    forward.for_each_node([&](const ir::Node& node) {
      if (!maker.empty() || !ops::makes_size(node)) return;
      for (ir::ValueId id : node.results()) {
        if (id == ir::kNoValue || !forward.value(id).tensor_type()) continue;
        for (const ir::Size& size : forward.value(id).tensor_type()->sizes) {
          if (shapes::symbol_name(size) != symbol.name) continue;
          const std::string line = ir::to_string(node.location());
          maker = ir::op_text(node.op()) + (line.empty() ? "" : " (" + line + ")");
        }
      }
    });
    rows.push_back({symbol.name,
                    symbol.max ? base::str(symbol.min, " to ", *symbol.max)
                               : base::str("at least ", symbol.min),
                    maker});
  }
  out << "  sizes that depend on data\n";
  print_rows(out, rows, "sizes");
}

void describe_compiled(std::ostream& out, const Explanation& explanation,
                       const VaryingSizes& varying) {
  const runtime::EntryState& entry = *explanation.entry;
  const Split& split = entry.split();
  out << "\nWhat is compiled\n  "
      << (split.signature.training
              ? base::str("a training entry: ", split.forward.node_count(), " forward nodes, ",
                          split.backward.node_count(), " backward nodes")
              : "an inference entry (no result needs a gradient): " +
                    counted(static_cast<int64_t>(split.forward.node_count()), "node", "nodes"))
      << ", backend " << entry.backend_name() << "\n";
  describe_inputs(out, explanation, varying.signature);
  describe_results(out, explanation, varying.signature);
  if (!varying.symbols.empty()) out << describe_sizes(varying, explanation.variants.size(), "  ");
  describe_data_sizes(out, split.forward);
  if (split.signature.training) out << describe_saved(split, "  ");
  out << describe_memory(entry, "  ");
}

bool starts_with_any(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.starts_with(word); });
}

/// The guards of single parameters and modules say little, and there are hundreds.
void describe_guards(std::ostream& out, const runtime::EntryState& entry,
                     const VaryingSizes& varying) {
  out << "\nWhen this entry serves a call\n";
  int64_t tensors = 0, modules = 0;
  std::vector<std::string> lines;
  for (std::string& text : entry.guards().texts(varying.words)) {
    if (starts_with_any(text, {"param \"", "buffer \"", "lifted "})) {
      ++tensors;
    } else if (starts_with_any(text, {"the module: ", "module \""})) {
      ++modules;
    } else {
      lines.push_back(std::move(text));
    }
  }
  for (size_t i = 0; i < std::min(lines.size(), kMostRows); ++i) out << "  " << lines[i] << "\n";
  if (lines.size() > kMostRows) out << "  and " << lines.size() - kMostRows << " more\n";
  if (modules > 0) {
    out << "  " << counted(modules, "named module", "named modules")
        << ": train()/eval() as they are now, parameters, buffers and sub-modules the same\n";
  }
  if (tensors > 0) {
    out << "  " << counted(tensors, "tensor", "tensors")
        << " found in the function: type, strides and requires_grad as above\n";
  }
}

void describe_settings(std::ostream& out, const Options& options) {
  const Options defaults;
  std::string set;
  if (options.backend.name() != defaults.backend.name()) {
    remark(set, "backend = " + options.backend.name());
  }
  using Plain = Split (*)(const Joint&, const Options&);
  const Plain* partitioner = options.partitioner.target<Plain>();
  if (partitioner && *partitioner == &default_partition) {
    remark(set, "partitioner = default_partition");
  } else if (partitioner && *partitioner == &min_cut_recompute) {
    remark(set, "partitioner = min_cut_recompute");
  } else if (!partitioner || *partitioner != &min_cut) {
    remark(set, "partitioner of your own");
  }
  if (options.dynamic != defaults.dynamic)
    remark(set, options.dynamic == Dynamic::never ? "dynamic = never" : "dynamic = always");
  if (options.max_entries != defaults.max_entries) {
    remark(set, base::str("max_entries = ", options.max_entries));
  }
  if (options.on_overflow != defaults.on_overflow) remark(set, "on_overflow = error");
  if (options.on_unsupported != defaults.on_unsupported) remark(set, "on_unsupported = eager");
  if (!options.closes_over.empty()) {
    remark(set,
           "closes_over (" +
               counted(static_cast<int64_t>(options.closes_over.size()), "variable", "variables") +
               ")");
  }
  if (options.guard_on) remark(set, "guard_on");
  if (options.verify_every != defaults.verify_every)
    remark(set, base::str("verify_every = ", options.verify_every));
  if (!options.dump_dir.empty()) remark(set, "dump_dir = " + options.dump_dir.string());
  if (options.on_event) remark(set, "on_event");
  const std::string environment = describe_environment();
  if (set.empty() && environment.empty()) return;
  out << "\nSettings\n";
  if (!set.empty()) out << "  not at their default: " << set << "\n";
  if (!environment.empty()) {
    out << "  from the environment, which beats the program: " << environment << "\n";
  }
}

/// Tensors that look like parameters but belong to no module that was named.
std::vector<std::string> unnamed_parameters(const Explanation& explanation) {
  std::vector<std::string> names;
  const auto& inputs = explanation.entry->signature().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].role.role != ir::Role::Lifted || !inputs[i].requires_grad) continue;
    if (inputs[i].is_leaf) names.push_back(input_name(explanation, i));
  }
  return names;
}

void describe_advice(std::ostream& out, const Explanation& explanation, const Options& options,
                     const Stats& stats) {
  std::vector<std::string> advice;
  if (options.dynamic == Dynamic::never &&
      explanation.forecast.find(": size is ") != std::string::npos) {
    advice.push_back(
        base::str("with dynamic = never every set of sizes gets an entry of its own, "
                  "at most ",
                  options.max_entries, "\n    (max_entries): leave it at automatic"));
  }
  if (explanation.entry) {
    if (const auto names = unnamed_parameters(explanation); !names.empty()) {
      std::string list = names[0];
      if (names.size() > 1) list += base::str(" and ", names.size() - 1, " more");
      advice.push_back(list + (names.size() > 1 ? " require" : " requires") + " grad but " +
                       (names.size() > 1 ? "belong" : "belongs") +
                       " to no named module. If a module holds them, nobody guards its\n"
                       "    train()/eval(): compile(net, fn) names it");
    } else if (options.modules.empty()) {
      advice.push_back(
          "no module is named: if the function reads a flag of one (train(), eval()), nobody\n"
          "    guards it: compile(net, fn) names it");
    }
  }
  if (stats.entries > 3 && stats.hits < 2 * stats.entries) {
    advice.push_back(base::str("few calls find their entry (", stats.hits, " of ", stats.calls,
                               "): the reasons below say what changes from call to call"));
  }
  if (stats.zero_fallbacks > 0) {
    advice.push_back(base::str(
        counted(stats.zero_fallbacks, "op", "ops"),
        " had to run on zeros to learn the sizes of a result; a Meta kernel makes that faster"));
  }
  if (stats.evictions > 0) {
    advice.push_back(base::str(counted(stats.evictions, "entry was", "entries were"),
                               " dropped because the program had let go of a closed-over tensor;\n"
                               "    pass what changes as an argument"));
  }
  advice.push_back(options.verify_every == automatic
                       ? "what host code decides is decided once, when Tandem traces; it is "
                         "checked at the 2nd,\n"
                         "    4th, 8th, ... call of an entry, with verify_every = 1 at each"
                       : "what host code decides is decided once, when Tandem traces; verify_every "
                         "= 1 finds out\n"
                         "    whether that is a mistake");
  out << "\nWorth knowing\n";
  for (const std::string& line : advice) out << "  - " << line << "\n";
}

void describe_history(std::ostream& out, const Stats& stats) {
  out << "\nSo far\n  " << counted(stats.calls, "call", "calls") << ", "
      << counted(stats.hits, "hit", "hits") << ", "
      << counted(stats.compiles, "compile", "compiles") << ", "
      << counted(stats.entries, "entry", "entries");
  if (stats.eager_calls > 0) out << ", " << counted(stats.eager_calls, "eager call", "eager calls");
  double total = 0;
  for (const auto& [stage, seconds] : stats.seconds) {
    if (stage.find('/') == std::string::npos) total += seconds;  // a step is part of its stage
  }
  if (stats.compiles > 0) out << fmt::format("; {:.1f} ms spent compiling", total * 1e3);
  out << "\n";
  const size_t first = stats.misses.size() > kMostMisses ? stats.misses.size() - kMostMisses : 0;
  for (size_t i = first; i < stats.misses.size(); ++i) {
    out << "  compiled because: " << stats.misses[i].reason << "\n";
  }
}

}  // namespace

std::string explain_page(const Explanation& explanation, const Options& options,
                         const Stats& stats) {
  std::ostringstream out;
  out << "A call of " << options.name << " with these arguments\n" << explanation.forecast;
  if (explanation.entry) {
    const VaryingSizes varying = varying_sizes(explanation.variants, *explanation.entry);
    describe_compiled(out, explanation, varying);
    describe_guards(out, *explanation.entry, varying);
  }
  describe_settings(out, options);
  describe_advice(out, explanation, options, stats);
  describe_history(out, stats);
  return out.str();
}

}  // namespace tandem::pipeline
