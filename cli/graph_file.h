#pragma once

#include "tandem/ir/graph.h"

#include <string>
#include <vector>

namespace tandem::cli {

/// The graphs of a file, at least one, all of them well-formed; `-` reads stdin.
std::vector<ir::Graph> read_graphs(const std::string& file);

/// What messages call the file.
std::string display_name(const std::string& file);

/// `1 graph`, `3 graphs`.
std::string counted(size_t count, const char* noun);

}  // namespace tandem::cli
