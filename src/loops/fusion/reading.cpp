#include "loops/fusion/reading.h"

namespace tandem::loops {

std::vector<Reading> readings(const ir::Node& node, const Rule& rule) {
  std::vector<Reading> out;
  for (size_t i = 0; i < node.operands().size(); ++i) {
    const bool memory =
        (i < 32 && (rule.memory_operands >> i & 1) != 0) || (i == 0 && rule.list_in_memory);
    node.operands()[i].for_each_value([&](ir::ValueId id) { out.push_back({id, memory}); });
  }
  return out;
}

}  // namespace tandem::loops
