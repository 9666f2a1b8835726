#include "loops/fusion/index_space.h"

namespace tandem::loops {

int32_t IndexSpace::add(int64_t extent) {
  nodes_.push_back({.extent = extent});
  return static_cast<int32_t>(nodes_.size() - 1);
}

void IndexSpace::mark_reduced(const Loops& loops) {
  for (int32_t loop : resolve(loops)) nodes_[static_cast<size_t>(loop)].reduced = true;
}

void IndexSpace::flatten(int32_t loop, Loops& out) const {
  const Node& node = nodes_[static_cast<size_t>(loop)];
  if (node.outer < 0) {
    out.push_back(loop);
    return;
  }
  flatten(node.outer, out);
  flatten(node.inner, out);
}

IndexSpace::Loops IndexSpace::resolve(const Loops& loops) const {
  Loops out;
  for (int32_t loop : loops) flatten(loop, out);
  return out;
}

int64_t IndexSpace::count(const Loops& loops) const {
  int64_t count = 1;
  for (int32_t loop : loops) count *= extent(loop);
  return count;
}

IndexSpace::Loops IndexSpace::leaves() const {
  Loops out;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].part) flatten(static_cast<int32_t>(i), out);
  }
  return out;
}

void IndexSpace::split(int32_t loop, int64_t outer_extent) {
  const Node node = nodes_[static_cast<size_t>(loop)];
  const int32_t outer = add(outer_extent), inner = add(node.extent / outer_extent);
  for (int32_t part : {outer, inner}) {
    nodes_[static_cast<size_t>(part)].reduced = node.reduced;
    nodes_[static_cast<size_t>(part)].part = true;
  }
  nodes_[static_cast<size_t>(loop)].outer = outer;
  nodes_[static_cast<size_t>(loop)].inner = inner;
}

std::optional<std::vector<IndexSpace::Loops>> IndexSpace::regroup(const std::vector<Loops>& dims,
                                                                  std::span<const int64_t> sizes) {
  Loops flat;
  for (const Loops& dim : dims) {
    for (int32_t loop : resolve(dim)) flat.push_back(loop);
  }
  std::vector<Loops> out(sizes.size());
  size_t next = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t left = sizes[d];
    while (left > 1) {
      if (next == flat.size()) return std::nullopt;
      const int32_t loop = flat[next];
      const int64_t size = extent(loop);
      if (left % size == 0) {
        out[d].push_back(loop);
        left /= size;
        ++next;
      } else if (size % left == 0) {
        split(loop, left);
        out[d].push_back(nodes_[static_cast<size_t>(loop)].outer);
        flat[next] = nodes_[static_cast<size_t>(loop)].inner;
        left = 1;
      } else {
        return std::nullopt;
      }
    }
  }
  if (next != flat.size()) return std::nullopt;
  return out;
}

}  // namespace tandem::loops
