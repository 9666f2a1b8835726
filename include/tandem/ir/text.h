#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::ir {

/// The text of a graph; docs/reference/graph-text.md has the grammar. `print(parse(s)) == s` for
/// every s that print made.
TANDEM_API std::string print(const Graph& graph);
/// One line, without indentation: for errors. Names every value of the graph first, so it costs as
/// much as the graph is long.
TANDEM_API std::string print(const Graph& graph, const Node& node);
/// What print calls each value, without the `%`, by value id; empty for a value that does not
/// appear.
TANDEM_API std::vector<std::string> value_names(const Graph& graph);

/// Reads one graph. A UserError names line, column, what was expected and what came.
TANDEM_API Graph parse(std::string_view text);
/// Every fact of a signature; `print(parse_signature(s)) == s` for every s that print made.
/// to_string(signature) is for people.
TANDEM_API std::string print(const Signature& signature);
TANDEM_API Signature parse_signature(std::string_view text);

/// A file may hold several graphs.
TANDEM_API std::vector<Graph> parse_all(std::string_view text);

/// Tensor constants of more than 64 elements go to `file` + ".constants" beside it.
TANDEM_API void write_file(const std::filesystem::path& file, std::span<const Graph> graphs);
TANDEM_API std::vector<Graph> read_file(const std::filesystem::path& file);

}  // namespace tandem::ir
