#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tandem::loops {

/// The loops of a kernel under construction. A loop may be split in two later: lists of loops that
/// were made before stay valid, `resolve` reads them in the loops of now.
class IndexSpace {
 public:
  /// Outermost first.
  using Loops = std::vector<int32_t>;

  int32_t add(int64_t extent);
  void mark_reduced(const Loops& loops);

  /// The same index, as loops that are not split.
  Loops resolve(const Loops& loops) const;
  bool same(const Loops& a, const Loops& b) const { return resolve(a) == resolve(b); }
  int64_t extent(int32_t loop) const { return nodes_[static_cast<size_t>(loop)].extent; }
  int64_t count(const Loops& loops) const;
  bool reduced(int32_t loop) const { return nodes_[static_cast<size_t>(loop)].reduced; }

  /// All loops that are not split, in the order of their making; parts of a loop in its place.
  Loops leaves() const;

  /// Reads the loops of one flat, row-major index as dims of these sizes, splitting loops where a
  /// size ends within one; nullopt if that leaves a rest.
  std::optional<std::vector<Loops>> regroup(const std::vector<Loops>& dims,
                                            std::span<const int64_t> sizes);

 private:
  struct Node {
    int64_t extent = 1;
    bool reduced = false;
    bool part = false;               // of a split loop
    int32_t outer = -1, inner = -1;  // of a split loop
  };
  void flatten(int32_t loop, Loops& out) const;
  void split(int32_t loop, int64_t outer_extent);

  std::vector<Node> nodes_;
};

/// Per dim of a value, the loops that make up its index; none for a dim of size 1, absent where the
/// value does not say (it is expanded there).
using DimLoops = std::vector<std::optional<IndexSpace::Loops>>;

}  // namespace tandem::loops
