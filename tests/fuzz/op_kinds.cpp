#include "fuzz/op_kinds.h"

namespace tandem::fuzz {

const std::array<std::vector<const Op*>, kKinds>& ops_by_kind() {
  static const std::array<std::vector<const Op*>, kKinds> table = [] {
    std::array<std::vector<const Op*>, kKinds> kinds;
    const auto add = [&](std::vector<Op> ops, Kind kind) {
      for (const Op& op : ops) {
        if (op.pattern == nullptr) continue;
        Kind actual = kind;
        if (op.has(kRandom) && !op.has(kInPlace)) actual = Draw;
        if (kind == Copy && op.has(kView)) actual = View;
        kinds[actual].push_back(find_op(op.name));
      }
    };
    add(pointwise_ops(), Pointwise);
    add(reduction_ops(), Reduction);
    add(layer_ops(), Layer);
    add(shape_ops(), Copy);
    add(in_place_ops(), Write);
    add(autograd_ops(), Autograd);
    return kinds;
  }();
  return table;
}

}  // namespace tandem::fuzz
