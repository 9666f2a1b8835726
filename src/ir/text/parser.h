#pragma once

#include "tandem/ir/graph.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::ir {

/// Where the text of a file keeps its large constants.
class ConstantSource {
 public:
  virtual ~ConstantSource() = default;
  /// The elements that `@index:checksum` stands for; a sentence instead if there are none.
  virtual std::string load(int64_t index, uint64_t checksum, std::vector<std::byte>& bytes) = 0;
};

/// With a null source, a constant in a side file is an error.
std::vector<Graph> parse_graphs(std::string_view text, ConstantSource* source);

}  // namespace tandem::ir
