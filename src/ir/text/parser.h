#pragma once

#include "ir/text/cursor.h"
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

// What stands at a cursor.
Graph parse_graph(Cursor& cursor, ConstantSource* source);
TensorType parse_tensor_type(Cursor& cursor);
/// Of an input or an output.
Descriptor parse_descriptor(Cursor& cursor);

/// With a null source, a constant in a side file is an error.
std::vector<Graph> parse_graphs(std::string_view text, ConstantSource* source);

}  // namespace tandem::ir
