#include "passes/decompose.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/op_table.h"
#include "tandem/ir/graph.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tandem::passes {
namespace {

// A body that leads back to its own op would go on for ever.
constexpr int kDeepest = 8;

bool is_plain(const ir::Value& value) {
  const ir::TypePtr& type = value.tensor_type();
  return type && type->is_static() && type->layout == c10::Layout::Strided &&
         !c10::isComplexType(type->dtype);
}

/// Whether the operands are tensors that bodies know about, the first one with elements.
bool is_plain(const ir::Graph& graph, const ir::Node& node) {
  bool plain = true, first = true;
  for (const ir::Operand& operand : node.operands()) {
    operand.for_each_value([&](ir::ValueId id) {
      plain = plain && is_plain(graph.value(id));
      if (plain && std::exchange(first, false))
        plain = graph.value(id).tensor_type()->numel().value() > 0;
    });
  }
  return plain;
}

/// As rows of the caller's table are named in errors.
std::string row_text(const ir::Node& node) { return "decomposition of " + ir::op_text(node.op()); }

class Rewriter {
 public:
  Rewriter(ir::Graph& graph, const Decompositions& table)
      : graph_(graph), table_(table), builder_(graph) {}

  int64_t run() {
    graph_.for_each_node([&](ir::Node& node) { visit(node, 0); });
    return changes_;
  }

 private:
  void visit(ir::Node& node, int depth) {
    if (node.kind() != ir::NodeKind::Op || ops::info(node.op()).marked) return;
    const Decomposition* row = table_.find(node.op());
    if (!row || !is_plain(graph_, node)) return;
    TANDEM_REQUIRE(
        depth < kDeepest, "passes", row_text(node), " leads back to ops with a ", "decomposition, ",
        kDeepest, " times over", base::detail_line("at", ir::to_string(node.location())),
        "\n  remedy: build the body from ops that have none, or keep(\"", row->op, "\")");
    const ir::NodeId before = graph_.previous(node.id());
    first_new_ = static_cast<ir::NodeId>(graph_.node_limit());
    builder_.move_to(node);
    std::vector<Expr> results = row->body(OpCall(builder_, node));
    if (results.empty()) {  // it declined: what it had begun goes
      for (ir::NodeId id : made_between(before, node) | std::views::reverse)
        graph_.erase(graph_.node(id));
      return;
    }
    const std::vector<ir::ValueId> wanted = replace(node, results);
    const std::vector<ir::NodeId> made = in_order(made_between(before, node), wanted);
    for (ir::NodeId id : made) graph_.move_before(graph_.node(id), node);
    graph_.erase(node);
    ++changes_;
    for (ir::NodeId id : made) visit(graph_.node(id), depth + 1);
  }

  std::vector<ir::NodeId> made_between(ir::NodeId before, const ir::Node& node) const {
    std::vector<ir::NodeId> made;
    ir::NodeId id = before == ir::kNoNode ? graph_.first_node() : graph_.next(before);
    for (; id != node.id(); id = graph_.next(id)) made.push_back(id);
    return made;
  }

  /// Bodies write `mul(sub(a, b), exp(c))`, and C++ leaves it to the compiler which operand is
  /// built first. So nodes follow from the results, operands from left to right: a graph has one
  /// text, whoever compiled us. What must happen keeps its order; what nobody reads comes last.
  std::vector<ir::NodeId> in_order(const std::vector<ir::NodeId>& made,
                                   const std::vector<ir::ValueId>& wanted) const {
    std::unordered_set<ir::NodeId> waiting(made.begin(), made.end());
    std::vector<ir::NodeId> order;
    auto place = [&](auto&& self, ir::NodeId id) -> void {
      if (waiting.erase(id) == 0) return;
      for (const ir::Operand& operand : graph_.node(id).operands())
        operand.for_each_value(
            [&](ir::ValueId value) { self(self, graph_.value(value).producer()); });
      order.push_back(id);
    };
    for (ir::NodeId id : made) {
      const ir::Node& node = graph_.node(id);
      if (node.kind() == ir::NodeKind::Op && ops::info(node.op()).must_happen()) place(place, id);
    }
    for (ir::ValueId value : wanted) place(place, graph_.value(value).producer());
    for (ir::NodeId id : made) place(place, id);
    return order;
  }

  /// Returns what now stands for the results that are read.
  std::vector<ir::ValueId> replace(const ir::Node& node, const std::vector<Expr>& results) {
    TANDEM_REQUIRE(results.size() == node.results().size(), "passes", row_text(node), " returns ",
                   results.size(), " results: the op has ", node.results().size(),
                   base::detail_line("at", ir::to_string(node.location())),
                   "\n  schema: ", node.op().schema(),
                   "\n  remedy: return one Expr per result, undefined where there is none");
    std::vector<ir::ValueId> used;
    for (size_t i = 0; i < results.size(); ++i) {
      const ir::ValueId old = node.results()[i];
      if (old == ir::kNoValue) continue;
      const ir::TensorType& type = *graph_.value(old).tensor_type();
      const bool read = graph_.value(old).has_users();
      TANDEM_REQUIRE(results[i].defined() || !read, "passes", row_text(node), " leaves result ", i,
                     " undefined, which is read",
                     base::detail_line("at", ir::to_string(node.location())),
                     "\n  remedy: compute it");
      if (!read) continue;
      const Expr fitted = fit(node, i, results[i], type, used);
      used.push_back(fitted.id());
      graph_.set_name(fitted.id(), graph_.value(old).name());
      graph_.replace_all_uses(old, fitted.id());
    }
    return used;
  }

  /// The result as the op itself returns it: dtype, strides, and memory of its own.
  Expr fit(const ir::Node& node, size_t index, const Expr& made, const ir::TensorType& type,
           const std::vector<ir::ValueId>& used) {
    TANDEM_REQUIRE(made.type().sizes == type.sizes && made.type().device == type.device, "passes",
                   row_text(node), " gives result ", index, " the type ",
                   ir::to_string(made.type()), ": the op returns ", ir::to_string(type),
                   base::detail_line("at", ir::to_string(node.location())),
                   "\n  remedy: return the sizes and the device of the op");
    const Expr cast = to(made, type.dtype);
    if (cast.type().strides != type.strides) return laid_out(cast, type);
    return is_fresh(cast, used) ? cast : builder_.op("clone", {cast});
  }

  Expr laid_out(const Expr& x, const ir::TensorType& type) {
    if (type.is_contiguous())
      return builder_.op("clone", {x}, {{"memory_format", c10::MemoryFormat::Contiguous}});
    const Expr space = builder_.op("empty_strided", {type.sizes, type.strides},
                                   {{"dtype", type.dtype}, {"device", type.device}});
    return builder_.op("copy", {space, x});
  }

  /// Made by the body, no view, and in one place only: a caller may write to what it receives.
  bool is_fresh(const Expr& x, const std::vector<ir::ValueId>& used) const {
    const ir::NodeId producer = graph_.value(x.id()).producer();
    if (producer == ir::kNoNode || producer < first_new_) return false;
    const ir::Node& maker = graph_.node(producer);
    return maker.kind() == ir::NodeKind::Op && !ops::info(maker.op()).is_view &&
           std::ranges::find(used, x.id()) == used.end();
  }

  ir::Graph& graph_;
  const Decompositions& table_;
  Builder builder_;
  ir::NodeId first_new_{0};  // ids grow: what the body adds is younger than all that was there
  int64_t changes_ = 0;
};

}  // namespace

PassResult decompose(ir::Graph& graph, const Decompositions& table) {
  if (table.empty()) return {};
  return {.changes = Rewriter(graph, table).run()};
}

PassResult decompose(ir::Graph& graph) { return decompose(graph, Decompositions::standard()); }

}  // namespace tandem::passes
