#include "loops/fusion/group_loops.h"

#include <algorithm>

namespace tandem::loops {
namespace {

using Loops = IndexSpace::Loops;

bool distinct(const IndexSpace& space, const DimLoops& loops) {
  Loops all;
  for (const auto& dim : loops) {
    if (!dim.has_value()) continue;
    for (int32_t loop : space.resolve(*dim)) all.push_back(loop);
  }
  std::ranges::sort(all);
  return std::ranges::adjacent_find(all) == all.end();
}

}  // namespace

std::optional<DimLoops> GroupLoops::of(KernelGroup& group, ir::ValueId id) const {
  if (const auto it = group.loops.find(id); it != group.loops.end()) return it->second;
  const ViewStep* step = views_.step(id);
  if (step == nullptr || step->shape == ViewShape::Picked) return std::nullopt;
  const ir::ValueId from = views_.source(id);
  const auto known = of(group, from);
  if (!known.has_value()) return std::nullopt;
  const ir::TensorType& type = type_of(id);
  DimLoops out(type.sizes.size());
  switch (step->shape) {
    case ViewShape::Permuted:
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = step->order[i] < 0 ? Loops{} : (*known)[static_cast<size_t>(step->order[i])];
      }
      break;
    case ViewShape::Expanded:
      for (size_t i = 0; i < known->size(); ++i) {
        const size_t d = i + out.size() - known->size();
        if (type_of(from).sizes[i].value() != 1) out[d] = (*known)[i];
      }
      break;
    default: {
      std::vector<Loops> dims;
      for (const auto& dim : *known) {
        if (!dim.has_value()) return std::nullopt;
        dims.push_back(*dim);
      }
      const auto regrouped = group.space.regroup(dims, type.static_sizes());
      if (!regrouped.has_value()) return std::nullopt;
      for (size_t i = 0; i < out.size(); ++i) out[i] = (*regrouped)[i];
    }
  }
  group.loops.emplace(id, out);
  return out;
}

std::optional<DimLoops> GroupLoops::fit(KernelGroup& group, const ir::TensorType& type,
                                        const std::vector<Reading>& reads,
                                        c10::function_ref<bool(ir::ValueId)> is_inside) const {
  const size_t rank = type.sizes.size();
  DimLoops loops(rank);
  auto take_from = [&](const DimLoops& known, const ir::TensorType& operand, bool must) {
    DimLoops merged = loops;
    for (size_t d = 0; d < known.size(); ++d) {
      if (operand.sizes[d].value() == 1 || !known[d].has_value()) continue;
      auto& dim = merged[d + rank - known.size()];
      if (!dim.has_value()) {
        dim = known[d];
      } else if (!group.space.same(*dim, *known[d])) {
        return !must;
      }
    }
    if (must || distinct(group.space, merged)) loops = std::move(merged);
    return true;
  };
  for (bool computed : {true, false}) {
    for (const Reading& reading : reads) {
      const bool here = is_inside(views_.behind(reading.value).value);
      const ir::TensorType& operand = type_of(reading.value);
      if (here != computed || reading.memory || operand.sizes.size() > rank) continue;
      const std::optional<DimLoops> known = of(group, reading.value);
      if (here && !known.has_value()) return std::nullopt;
      if (known.has_value() && !take_from(*known, operand, here)) return std::nullopt;
    }
  }
  const bool same_shape =
      rank == group.shape.size() &&
      std::ranges::equal(type.sizes, group.shape,
                         [](const ir::Size& a, int64_t b) { return a.value() == b; });
  for (size_t d = 0; d < rank; ++d) {
    if (type.sizes[d].value() == 1) {
      loops[d] = Loops{};
    } else if (!loops[d].has_value()) {
      if (!same_shape) return std::nullopt;
      loops[d] = group.shape_loops[d];
    }
  }
  if (!distinct(group.space, loops)) return std::nullopt;
  return loops;
}

DimLoops reduced_loops(const Call& call, const Rule& rule, const DimLoops& loops,
                       const ir::TensorType& result) {
  const std::vector<int64_t> dims = rule.dims(call);
  const bool keeps_dims = result.sizes.size() == loops.size() && !loops.empty();
  DimLoops out;
  for (size_t d = 0; d < loops.size(); ++d) {
    const bool reduced = std::ranges::find(dims, static_cast<int64_t>(d)) != dims.end();
    if (!reduced) {
      out.push_back(loops[d]);
    } else if (keeps_dims) {
      out.emplace_back(Loops{});
    }
  }
  return out;
}

DimLoops broadcast_loops(const DimLoops& result, const ir::TensorType& operand) {
  DimLoops out(operand.sizes.size());
  for (size_t d = 0; d < out.size(); ++d) {
    const bool single = operand.sizes[d].value() == 1;
    out[d] = single ? Loops{} : result[d + result.size() - out.size()];
  }
  return out;
}

}  // namespace tandem::loops
