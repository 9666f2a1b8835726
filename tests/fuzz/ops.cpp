#include "fuzz/op.h"

#include <algorithm>
#include <unordered_map>

namespace tandem::fuzz {

std::span<const Op> all_ops() {
  static const std::vector<Op> all = [] {
    std::vector<Op> ops;
    for (auto list : {pointwise_ops, reduction_ops, layer_ops, shape_ops, in_place_ops,
                      autograd_ops, pattern_ops}) {
      const std::vector<Op> rows = list();
      ops.insert(ops.end(), rows.begin(), rows.end());
    }
    return ops;
  }();
  return all;
}

const Op* find_op(std::string_view name) {
  static const std::unordered_map<std::string_view, const Op*> by_name = [] {
    std::unordered_map<std::string_view, const Op*> map;
    for (const Op& op : all_ops()) {
      TORCH_CHECK(map.emplace(op.name, &op).second, "fuzz: two ops are called ", op.name);
    }
    return map;
  }();
  const auto found = by_name.find(name);
  TORCH_CHECK(found != by_name.end(), "fuzz: no op is called ", name);
  return found->second;
}

}  // namespace tandem::fuzz
