#include "passes/merge_views.h"

#include "ops/memory/view_offset.h"
#include "passes/facts/memory_facts.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::passes {
namespace {

/// How far up a chain a view looks for a better source: bounds the time per node.
constexpr int kMostMerges = 8;

/// Where a value lies: how many elements behind the start of which other value. With its type that
/// says which elements it shows.
struct Address {
  ir::ValueId base = ir::kNoValue;
  int64_t offset = 0;
  friend bool operator==(const Address&, const Address&) = default;
};

/// The order of dimensions of a transposition, or nothing.
std::optional<std::vector<int64_t>> order_of(const ir::Node& node, int64_t rank) {
  const c10::OperatorName& op = node.op().operator_name();
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto dim = [&](const ir::Operand& operand) -> size_t {
    const int64_t given = operand.get_if<ir::Size>()->value();
    return static_cast<size_t>(given < 0 ? given + rank : given);
  };
  if (op.name == "aten::t") {
    std::ranges::reverse(order);
    return order;
  }
  if (op.name == "aten::transpose" && op.overload_name == "int") {
    if (rank > 0) std::swap(order[dim(node.operands()[1])], order[dim(node.operands()[2])]);
    return order;
  }
  if (op.name == "aten::permute") {
    const auto& dims = *node.operands()[1].get_if<ir::Operand::Sizes>();
    for (size_t i = 0; i < dims.size(); ++i) order[i] = static_cast<int64_t>(dim(dims[i]));
    return order;
  }
  return std::nullopt;
}

class Merger {
 public:
  explicit Merger(ir::Graph& graph) : graph_(graph), addresses_(graph.value_limit()) {}

  PassResult run() {
    graph_.for_each_node([&](ir::Node& node) { visit(node); });
    return result_;
  }

 private:
  void visit(ir::Node& node) {
    bool is_view = false;
    for (size_t i = 0; i < node.results().size(); ++i) {
      const ir::ValueId id = node.results()[i];
      const std::optional<int64_t> offset = ops::offset_in_source(graph_, node, i);
      if (!offset) continue;
      is_view = true;
      const Address source = address(*node.operands()[0].get_if<ir::ValueId>());
      set_address(id, {source.base, source.offset + *offset});
      replace(id);
    }
    if (!is_view) return;
    // Pieces of an expanded tensor show the same: a later one may have been replaced by an earlier.
    const bool is_read = std::ranges::any_of(node.results(), [&](ir::ValueId id) {
      return id != ir::kNoValue && graph_.value(id).has_users();
    });
    if (!is_read) {
      graph_.erase(node);
    } else if (node.results().size() == 1) {
      shorten(node);
    }
  }

  Address address(ir::ValueId id) const {
    const auto at = static_cast<size_t>(id);
    if (at < addresses_.size() && addresses_[at].base != ir::kNoValue) return addresses_[at];
    return {id, 0};
  }
  void set_address(ir::ValueId id, Address address) {
    const auto at = static_cast<size_t>(id);
    if (at >= addresses_.size()) addresses_.resize(at + 1);
    addresses_[at] = address;
  }

  ir::Phase phase(ir::ValueId id) const {
    const ir::NodeId producer = graph_.value(id).producer();
    return producer == ir::kNoNode ? ir::Phase::Forward : graph_.node(producer).phase();
  }

  bool may_replace(ir::ValueId id, ir::ValueId other) const {
    const ir::NodeId producer = graph_.value(other).producer();
    if (producer != ir::kNoNode && graph_.node(producer).erased()) return false;
    if (!(address(id) == address(other)) ||
        !(graph_.value(id).type() == graph_.value(other).type()))
      return false;
    if (phase(other) == ir::Phase::Backward && phase(id) == ir::Phase::Forward) return false;
    return !would_merge_outputs(graph_.value(other), graph_.value(id));
  }

  /// If another value shows the same, everybody reads that from now on.
  void replace(ir::ValueId id) {
    const Address where = address(id);
    if (may_replace(id, where.base)) return take(id, where.base);
    const uint64_t hash = hash_of(where, *graph_.value(id).tensor_type());
    auto [begin, end] = seen_.equal_range(hash);
    for (auto other = begin; other != end; ++other) {
      if (may_replace(id, other->second)) return take(id, other->second);
    }
    // A piece that nobody reads may stand for one that is read later.
    seen_.emplace(hash, id);
  }

  void take(ir::ValueId id, ir::ValueId other) {
    if (!graph_.value(id).has_users()) return;
    graph_.replace_all_uses(id, other);
    ++result_.changes;
  }

  static uint64_t hash_of(const Address& address, const ir::TensorType& type) {
    constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
    uint64_t hash = type.hash();
    hash = (hash ^ static_cast<uint64_t>(address.base)) * kFactor + (hash >> 29);
    return (hash ^ static_cast<uint64_t>(address.offset)) * kFactor + (hash >> 29);
  }

  void shorten(ir::Node& node) {
    const ir::ValueId result = node.results()[0];
    const std::string& name = node.op().operator_name().name;
    if (name == "aten::view" || name == "aten::_unsafe_view") {
      shorten(node, [&](const ir::TensorType& source) { return views_as(source, result); });
    } else if (name == "aten::expand") {
      shorten(node, [&](const ir::TensorType& source) { return expands_to(source, result); });
    } else {
      compose(node);
    }
  }

  /// Takes the view from the last value up the chain from which the same op gives the same.
  template <class Fits>
  void shorten(ir::Node& node, const Fits& fits) {
    const Address where = address(node.results()[0]);
    ir::ValueId source = *node.operands()[0].get_if<ir::ValueId>(), best = source;
    for (int step = 0; step < kMostMerges; ++step) {
      const ir::NodeId producer = graph_.value(source).producer();
      // The base of an address is what no such view makes.
      if (producer == ir::kNoNode || address(source).base == source) break;
      source = *graph_.node(producer).operands()[0].get_if<ir::ValueId>();
      if (address(source) == where && fits(*graph_.value(source).tensor_type())) best = source;
    }
    if (best == *node.operands()[0].get_if<ir::ValueId>()) return;
    graph_.set_operand(node, 0, best);
    ++result_.changes;
  }

  bool views_as(const ir::TensorType& source, ir::ValueId result) const {
    const ir::TensorType& type = *graph_.value(result).tensor_type();
    if (!source.is_static() || !type.is_static() || !(source.numel() == type.numel())) return false;
    const auto strides = at::detail::computeStride(at::IntArrayRef(source.static_sizes()),
                                                   at::IntArrayRef(source.static_strides()),
                                                   at::IntArrayRef(type.static_sizes()));
    return strides && *strides == type.static_strides();
  }

  bool expands_to(const ir::TensorType& source, ir::ValueId result) const {
    const ir::TensorType& type = *graph_.value(result).tensor_type();
    if (!source.is_static() || !type.is_static()) return false;
    const std::vector<int64_t> from = source.static_sizes(), to = type.static_sizes();
    if (from.size() > to.size()) return false;
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] != 1 && from[i] != to[to.size() - from.size() + i]) return false;
    }
    const auto geometry = at::inferExpandGeometry(from, source.static_strides(), to);
    return std::get<1>(geometry) == type.static_strides();
  }

  /// One transposition for two.
  void compose(ir::Node& node) {
    const ir::ValueId result = node.results()[0];
    const ir::ValueId middle = *node.operands()[0].get_if<ir::ValueId>();
    const ir::NodeId producer = graph_.value(middle).producer();
    if (producer == ir::kNoNode || graph_.node(producer).kind() != ir::NodeKind::Op) return;
    const ir::Node& first = graph_.node(producer);
    const int64_t rank = graph_.value(result).tensor_type()->rank();
    if (!ops::offset_in_source(graph_, first, 0) ||
        graph_.value(middle).tensor_type()->rank() != rank) {
      return;
    }
    const auto second_order = order_of(node, rank), first_order = order_of(first, rank);
    if (!second_order || !first_order) return;
    ir::Operand::Sizes dims;
    for (int64_t dim : *second_order) dims.emplace_back((*first_order)[static_cast<size_t>(dim)]);
    static const c10::OperatorHandle permute =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::permute", "");
    graph_.set_insert_point(node.id());
    const ir::Node& both = graph_.add_op({.op = permute,
                                          .operands = {first.operands()[0], std::move(dims)},
                                          .results = {graph_.value(result).type()},
                                          .phase = node.phase(),
                                          .location = node.location()});
    graph_.set_insert_point(ir::kNoNode);
    const ir::ValueId replacement = both.results()[0];
    set_address(replacement, address(result));
    seen_.emplace(hash_of(address(result), *graph_.value(result).tensor_type()), replacement);
    graph_.replace_all_uses(result, replacement);
    const std::string name = graph_.value(result).name();
    graph_.erase(node);
    graph_.set_name(replacement, name);
    ++result_.changes;
  }

  ir::Graph& graph_;
  std::vector<Address> addresses_;                       // by value; no base: lies where it lies
  std::unordered_multimap<uint64_t, ir::ValueId> seen_;  // the first of each
  PassResult result_;
};

}  // namespace

PassResult merge_views(ir::Graph& graph) { return Merger(graph).run(); }

}  // namespace tandem::passes
