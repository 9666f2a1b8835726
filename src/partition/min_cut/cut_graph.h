#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tandem::partition {

/// A place in the joint graph where the min-cut may cut: an input, a node, or one of several
/// results of a node. A number from 0, in an order in which readers come after what they read.
using Item = int32_t;
inline constexpr Item kNoItem = -1;

/// What the min-cut asks about an item. One that has no value of its own is a node with several
/// results, which are items too, or with none.
struct ItemFacts {
  ir::NodeId node = ir::kNoNode;  // kNoNode: an input
  ir::ValueId value = ir::kNoValue;
  ir::ValueId memory = ir::kNoValue;  // the value whose memory it shows
  int64_t bytes = 0;                  // of its elements, of all results of a node with several
  bool is_result = false;             // one of several
  bool is_tangent = false;
  bool is_view = false;
  bool is_number = false;
  bool is_constant = false;
  bool pure = true;     // may be left out, moved, repeated
  bool fusible = true;  // shares a kernel with its like, so computed twice for little
  bool follows_default_dtype = false;  // of the thread that computes it
  bool in_backward = false;            // recorded there
  bool is_output = false;              // of the joint, a gradient or not
  bool is_forward_output = false;
};

/// Whether a node that is no view is computed inside the kernels of those that read it:
/// Backend::can_fuse.
using CanFuse = std::function<bool(const ir::Graph&, const ir::Node&)>;

/// As on a backend that runs every node by itself.
bool fuses_nothing(const ir::Graph& joint, const ir::Node& node);
/// As on one that fuses whatever is one pass over its operands.
bool fuses_sweeps(const ir::Graph& joint, const ir::Node& node);

/// Dense arrays over the items of a joint graph, and what its halves need.
class CutGraph {
 public:
  CutGraph(const ir::Graph& joint, const CanFuse& can_fuse);

  Item size() const { return static_cast<Item>(facts_.size()); }
  const ItemFacts& operator[](Item item) const { return facts_[static_cast<size_t>(item)]; }
  std::span<const Item> users(Item item) const { return slice(users_, first_user_, item); }
  std::span<const Item> operands(Item item) const { return slice(operands_, first_operand_, item); }
  /// Whether anything of this graph is fused. If not, every value is in memory anyway, and the
  /// backward computes nothing again but views.
  bool fuses() const { return fuses_; }
  Item of(ir::ValueId value) const { return item_of_value_[static_cast<size_t>(value)]; }

  /// Depends on a tangent, or on a draw or effect of the backward: nothing else can compute it.
  bool only_in_backward(Item item) const { return only_in_backward_[static_cast<size_t>(item)]; }
  /// Results, draws or effects of the forward need it.
  bool needed_by_forward(Item item) const { return needed_by_forward_[static_cast<size_t>(item)]; }
  /// Computed in the backward, or a gradient as it is.
  bool needed_by_backward(Item item) const {
    return only_in_backward(item) || is_gradient_[static_cast<size_t>(item)];
  }

 private:
  static std::span<const Item> slice(const std::vector<Item>& list,
                                     const std::vector<int32_t>& first, Item item) {
    const auto i = static_cast<size_t>(item);
    return std::span(list).subspan(static_cast<size_t>(first[i]),
                                   static_cast<size_t>(first[i + 1] - first[i]));
  }
  void add_inputs(const ir::Graph& joint);
  void add_node(const ir::Graph& joint, const ir::Node& node, const CanFuse& can_fuse);
  void link();
  void note_outputs(const ir::Graph& joint);
  void spread();

  std::vector<ItemFacts> facts_;
  std::vector<Item> item_of_value_;
  std::vector<Item> operands_, users_;               // those of one item side by side
  std::vector<int32_t> first_operand_, first_user_;  // by item, one more at the end
  std::vector<bool> is_gradient_, only_in_backward_, needed_by_forward_;
  bool fuses_ = false;
};

}  // namespace tandem::partition
