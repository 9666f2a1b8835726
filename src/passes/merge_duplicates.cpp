#include "passes/merge_duplicates.h"

#include "ops/op_table.h"
#include "tandem/ir/graph.h"

#include <algorithm>
#include <bit>
#include <complex>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <variant>
#include <vector>

namespace tandem::passes {
namespace {

bool writes(const ir::Node& node) {
  return node.kind() == ir::NodeKind::Op && ops::info(node.op()).writes();
}

/// Values whose memory the caller gets, or some op writes to.
class PinnedValues {
 public:
  explicit PinnedValues(const ir::Graph& graph)
      : graph_(graph), pinned_(graph.value_limit(), false) {
    for (const ir::Output& output : graph.outputs()) pin(output.value);
    graph.for_each_node([&](const ir::Node& node) {
      if (!writes(node)) return;
      for (const ir::Operand& operand : node.operands())
        operand.for_each_value([&](ir::ValueId id) { pin(id); });
    });
  }

  bool any(const ir::Node& node) const {
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue && pinned_[static_cast<size_t>(id)]) return true;
    }
    return false;
  }

 private:
  // A view shares memory with what it was made from, so that is pinned too.
  void pin(ir::ValueId id) {
    while (id != ir::kNoValue && !pinned_[static_cast<size_t>(id)]) {
      pinned_[static_cast<size_t>(id)] = true;
      const ir::NodeId producer = graph_.value(id).producer();
      if (producer == ir::kNoNode) return;
      const ir::Node& node = graph_.node(producer);
      if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view) return;
      const auto* source = node.operands()[0].get_if<ir::ValueId>();
      if (source == nullptr) return;
      id = *source;
    }
  }

  const ir::Graph& graph_;
  std::vector<bool> pinned_;
};

class Hasher {
 public:
  void add(uint64_t word) { hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u + (hash_ >> 29); }
  void add(std::string_view text) { add(std::hash<std::string_view>{}(text)); }
  void add_bits(double number) { add(std::bit_cast<uint64_t>(number)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

void hash_operand(Hasher& hasher, const ir::Operand& operand) {
  hasher.add(operand.data.index());
  std::visit(
      [&](const auto& data) {
        using T = std::remove_cvref_t<decltype(data)>;
        if constexpr (std::same_as<T, ir::Operand::None>) {
          return;
        } else if constexpr (std::same_as<T, ir::Operand::Values>) {
          for (ir::ValueId id : data) hasher.add(static_cast<uint64_t>(id));
        } else if constexpr (std::same_as<T, ir::Size>) {
          hasher.add(data.hash());
        } else if constexpr (std::same_as<T, ir::Operand::Sizes>) {
          for (const ir::Size& size : data) hasher.add(size.hash());
        } else if constexpr (std::same_as<T, double>) {
          hasher.add_bits(data);
        } else if constexpr (std::same_as<T, std::complex<double>>) {
          hasher.add_bits(data.real());
          hasher.add_bits(data.imag());
        } else if constexpr (std::same_as<T, std::vector<double>>) {
          for (double number : data) hasher.add_bits(number);
        } else if constexpr (std::same_as<T, std::vector<bool>>) {
          for (bool bit : data) hasher.add(bit ? 1 : 0);
        } else if constexpr (std::same_as<T, std::string>) {
          hasher.add(std::string_view(data));
        } else if constexpr (std::same_as<T, c10::Device>) {
          hasher.add(std::hash<c10::Device>{}(data));
        } else if constexpr (std::same_as<T, ir::GeneratorRef>) {
          hasher.add(static_cast<uint64_t>(data.index));
        } else {
          hasher.add(static_cast<uint64_t>(data));
        }
      },
      operand.data);
}

bool same_results(const ir::Graph& graph, const ir::Node& a, const ir::Node& b) {
  if (a.result_shape() != b.result_shape()) return false;
  return std::ranges::equal(a.results(), b.results(), [&](ir::ValueId left, ir::ValueId right) {
    if (left == ir::kNoValue || right == ir::kNoValue) return left == right;
    return graph.value(left).type() == graph.value(right).type();
  });
}

// Only constants that the host can read cheaply are compared: others count as different.
bool comparable(const at::Tensor& constant) {
  return constant.device().is_cpu() && constant.layout() == c10::kStrided &&
         constant.is_contiguous();
}

std::string_view bytes_of(const at::Tensor& constant) {
  return {static_cast<const char*>(constant.const_data_ptr()), constant.nbytes()};
}

// A Scalar in disguise: its dtype gives way to that of a tensor.
bool promotes_like_number(const at::Tensor& constant) {
  return constant.unsafeGetTensorImpl()->is_wrapped_number();
}

bool mergeable(const ir::Node& node) {
  switch (node.kind()) {
    case ir::NodeKind::Op:
      return ops::info(node.op()).mergeable();
    case ir::NodeKind::Constant:
      return comparable(node.constant());
    case ir::NodeKind::Region:
      return false;
  }
  return false;
}

uint64_t hash_node(const ir::Node& node) {
  Hasher hasher;
  if (node.kind() == ir::NodeKind::Constant) {
    hasher.add(bytes_of(node.constant()));
    return hasher.value();
  }
  hasher.add(std::hash<c10::OperatorName>{}(node.op().operator_name()));
  for (const ir::Operand& operand : node.operands()) hash_operand(hasher, operand);
  return hasher.value();
}

bool same_node(const ir::Graph& graph, const ir::Node& a, const ir::Node& b) {
  if (a.kind() != b.kind() || !same_results(graph, a, b)) return false;
  if (a.kind() == ir::NodeKind::Constant) {
    return bytes_of(a.constant()) == bytes_of(b.constant()) &&
           promotes_like_number(a.constant()) == promotes_like_number(b.constant());
  }
  return a.op() == b.op() && std::ranges::equal(a.operands(), b.operands());
}

}  // namespace

PassResult merge_duplicates(ir::Graph& graph) {
  PassResult result;
  const PinnedValues pinned(graph);
  std::unordered_multimap<uint64_t, ir::NodeId> seen;
  seen.reserve(graph.node_count());
  graph.for_each_node([&](ir::Node& node) {
    if (writes(node)) {
      seen.clear();  // what was read before the write need not be what is read after it
      return;
    }
    if (!mergeable(node) || pinned.any(node)) return;
    const uint64_t hash = hash_node(node);
    auto [begin, end] = seen.equal_range(hash);
    for (auto candidate = begin; candidate != end; ++candidate) {
      ir::Node& first = graph.node(candidate->second);
      if (!same_node(graph, first, node)) continue;
      if (first.phase() == ir::Phase::Backward && node.phase() == ir::Phase::Forward) continue;
      for (size_t i = 0; i < node.results().size(); ++i) {
        if (node.results()[i] == ir::kNoValue) continue;
        graph.replace_all_uses(node.results()[i], first.results()[i]);
      }
      graph.erase(node);
      ++result.changes;
      return;
    }
    seen.emplace(hash, node.id());
  });
  return result;
}

}  // namespace tandem::passes
