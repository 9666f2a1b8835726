#include "partition/tangents/drop_tangents.h"

#include "base/error.h"
#include "ops/op_table.h"
#include "ops/own/arrives.h"
#include "ops/own/inputs_in_backward.h"
#include "passes/remove_dead_nodes.h"
#include "shapes/reach.h"
#include "tandem/ir/type.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::partition {
namespace {

/// How a value depends on the tangents.
enum class Dependence : uint8_t {
  None,     // on no tangent at all
  Defined,  // on a defined tangent, perhaps among others
  Silent,   // on undefined ones only, but through metadata or a comparison: not zero, still no
            // gradient
  Zero,     // on undefined ones only, linearly
};

// Factories look at the metadata of their operand only; zeros of a zero are zero either way.
bool ignores_data(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  std::string_view name = node.op().operator_name().name;
  if (size_t colons = name.find("::"); colons != std::string_view::npos)
    name.remove_prefix(colons + 2);
  if (name == "zeros_like" || name == "new_zeros") return false;
  return name.ends_with("_like") || name.starts_with("new_");
}

bool is_floating(const ir::Value& value) {
  if (value.tensor_type() == nullptr) return false;
  return c10::isFloatingType(value.tensor_type()->dtype) ||
         c10::isComplexType(value.tensor_type()->dtype);
}

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

bool is_add(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  const c10::OperatorName& name = node.op().operator_name();
  return name.name == "aten::add" && name.overload_name == "Tensor";
}

/// What is there of what a backward may leave out.
bool is_mark(const ir::Node& node) {
  return ops::kArrives.is(node) || ops::kEither.is(node) || ops::kWritten.is(node);
}

/// With all gradients there, or chosen.
void drop_arrivals(ir::Graph& graph) {
  graph.for_each_node([&](ir::Node& node) {
    if (!is_mark(node)) return;
    graph.replace_all_uses(node.results()[0], *node.operands()[0].get_if<ir::ValueId>());
    graph.erase(node);
  });
}

void raise_if_eager_does(const ir::Graph& graph) {
  graph.for_each_node([&](const ir::Node& node) {
    TORCH_CHECK(!ops::kRaises.is(node), *node.operands()[1].get_if<std::string>());
  });
}

class Specialiser {
 public:
  Specialiser(ir::Graph graph, const Asked& asked, const ir::Signature& signature)
      : graph_(std::move(graph)),
        dependence_(graph_.value_limit(), Dependence::None),
        run_(formulas_run(signature, asked)) {
    const std::vector<bool>& defined = asked.defined;
    find_unreached(signature.effects);
    if (!asked.wanted.empty()) drop_unwanted(asked.wanted);
    for (ir::ValueId input : graph_.inputs()) {
      const ir::Descriptor& role = graph_.input_role(input);
      if (role.role != ir::Role::Tangent) continue;
      TANDEM_CHECK(role.index >= 0 && role.index < static_cast<int64_t>(defined.size()),
                   "partition", "tangent ", role.index, " of the backward has no flag among ",
                   defined.size());
      set(input, defined[static_cast<size_t>(role.index)] ? Dependence::Defined : Dependence::Zero);
    }
  }

  ir::Graph run() && {
    in_order([&](ir::Node& node) { choose(node); });
    graph_.for_each_node([&](ir::Node& node) { spread(node); });
    in_order([&](ir::Node& node) { drop_from_sum(node); });
    drop_gradients();
    in_order([&](ir::Node& node) {
      if (!is_zero(node)) write_out_zeros(node);
    });
    passes::remove_dead_nodes(graph_);
    // Nodes that compute zeros are gone now, but for draws and effects, which must still happen.
    in_order([&](ir::Node& node) { write_out_zeros(node); });
    drop_arrivals(graph_);
    do {
      passes::remove_dead_nodes(graph_);
    } while (drop_unreached() || drop_idle_reads());
    raise_if_eager_does(graph_);
    ir::verify(graph_, "partition");
    return std::move(graph_);
  }

 private:
  /// Formulas that nobody knows are run.
  bool is_run(int64_t formula) const {
    return formula < 0 || static_cast<size_t>(formula) >= run_.size() ||
           run_[static_cast<size_t>(formula)];
  }

  void drop_unwanted(const std::vector<bool>& wanted) {
    size_t gradient = 0;
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (graph_.outputs()[i].role.role != ir::Role::Grad) continue;
      if (!wanted[gradient++]) graph_.set_output(i, ir::kNoValue);
    }
  }

  /// Finds the draws and effects that eager's backward does not reach.
  void find_unreached(const std::vector<ir::EffectFacts>& effects) {
    if (effects.empty()) return;
    size_t next = 0;
    graph_.for_each_node([&](const ir::Node& node) {
      if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).must_happen()) return;
      TANDEM_CHECK(next < effects.size(), "partition", "the backward has more than ",
                   effects.size(), " draws and effects");
      if (!is_run(effects[next++].formula)) unreached_.push_back(node.id());
    });
    TANDEM_CHECK(next == effects.size(), "partition", "the backward has ", next,
                 " draws and effects, recorded were ", effects.size());
  }

  /// From the last to the first: a later one may read an earlier one.
  bool drop_unreached() {
    bool any = false;
    for (size_t i = unreached_.size(); i-- > 0;) {
      ir::Node& node = graph_.node(unreached_[i]);
      if (node.erased() || std::ranges::any_of(node.results(), [&](ir::ValueId id) {
            return id != ir::kNoValue && graph_.value(id).has_users();
          })) {
        continue;
      }
      graph_.erase(node);
      any = true;
    }
    return any;
  }

  /// What an input holds is asked for what is written to it, and by formulas that are run.
  bool drop_idle_reads() {
    bool any = false;
    graph_.for_each_node_reversed([&](ir::Node& node) {
      if (!ops::kReadInBackward.is(node) || graph_.value(node.results()[0]).has_users()) return;
      graph_.erase(node);
      any = true;
    });
    return any;
  }

  /// Zeros that one node has been given serve those after it.
  template <class Fn>
  void in_order(const Fn& fn) {
    zeros_.clear();
    graph_.for_each_node(fn);
  }

  /// Where the recording has a branch for gradients that are not there.
  void choose(ir::Node& node) {
    if (ops::kWritten.is(node)) {
      const size_t chosen = is_run(node.operands()[2].get_if<ir::Size>()->value()) ? 0 : 1;
      graph_.replace_all_uses(node.results()[0], *node.operands()[chosen].get_if<ir::ValueId>());
      return graph_.erase(node);
    }
    if (!ops::kEither.is(node)) return;
    const auto& tangents = *node.operands()[2].get_if<ir::Operand::Values>();
    const ir::ValueId gradient = *node.operands()[0].get_if<ir::ValueId>();
    const auto* otherwise = node.operands()[1].get_if<ir::ValueId>();
    ir::ValueId chosen = gradient;
    if (!any_defined(tangents)) {
      const bool is_branch = otherwise && *otherwise != ir::kNoValue;
      chosen = is_branch ? *otherwise : zeros_like(gradient, node);  // not Zero: a formula reads it
    }
    graph_.replace_all_uses(node.results()[0], chosen);
    graph_.erase(node);
  }

  bool any_defined(const ir::Operand::Values& tangents) const {
    return std::ranges::any_of(
        tangents, [&](ir::ValueId tangent) { return of(tangent) == Dependence::Defined; });
  }

  Dependence of(ir::ValueId id) const {
    const auto at = static_cast<size_t>(id);
    return at < dependence_.size() ? dependence_[at] : Dependence::None;
  }
  void set(ir::ValueId id, Dependence dependence) {
    if (static_cast<size_t>(id) >= dependence_.size()) return;  // of zeros that were written out
    dependence_[static_cast<size_t>(id)] = dependence;
  }

  void spread(const ir::Node& node) {
    if (ops::kArrives.is(node)) {
      const bool there = any_defined(*node.operands()[1].get_if<ir::Operand::Values>());
      return set(node.results()[0], there ? Dependence::Defined : Dependence::Zero);
    }
    if (ops::kRaises.is(node)) return;  // no zero
    bool any_defined = false, any_silent = false, any_zero = false;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        any_defined = any_defined || of(id) == Dependence::Defined;
        any_silent = any_silent || of(id) == Dependence::Silent;
        any_zero = any_zero || of(id) == Dependence::Zero;
      });
    }
    const bool unreached = std::ranges::find(unreached_, node.id()) != unreached_.end();
    for (ir::ValueId id : node.results()) {
      if (id == ir::kNoValue) continue;
      if (unreached) {
        // Part of a formula that eager does not run: no gradient comes out of it.
        set(id, is_floating(graph_.value(id)) ? Dependence::Zero : Dependence::Silent);
      } else if (any_defined) {
        set(id, Dependence::Defined);
      } else if (any_silent || any_zero) {
        const bool zero = !any_silent && !ignores_data(node) && is_floating(graph_.value(id));
        set(id, zero ? Dependence::Zero : Dependence::Silent);
      }
    }
  }

  bool is_zero(const ir::Node& node) const {
    return std::ranges::all_of(node.results(), [&](ir::ValueId id) {
      return id == ir::kNoValue || of(id) == Dependence::Zero;
    });
  }

  // Autograd sums the gradients of a value that is used twice. If one of them is undefined, eager's
  // sum has one term less.
  void drop_from_sum(ir::Node& node) {
    if (!is_add(node) || of(node.results()[0]) != Dependence::Defined) return;
    const auto* alpha = node.operands()[2].get_if<ir::Size>();
    if (alpha == nullptr || !(*alpha == ir::Size(1))) return;
    const ir::ValueId left = *node.operands()[0].get_if<ir::ValueId>();
    const ir::ValueId right = *node.operands()[1].get_if<ir::ValueId>();
    // The sum is defined, so at most one of them is not. Nothing of a formula that compares its
    // gradient may be left either: it would read saved values that eager does not look at.
    const auto is_left_out = [&](ir::ValueId id) {
      return of(id) == Dependence::Zero || of(id) == Dependence::Silent;
    };
    if (!is_left_out(left) && !is_left_out(right)) return;
    const ir::ValueId rest = is_left_out(left) ? right : left;
    if (!(graph_.value(rest).type() == graph_.value(node.results()[0]).type())) {
      const size_t out = is_left_out(left) ? 0 : 1;
      graph_.set_operand(node, out, zeros_like(out == 0 ? left : right, node));
      return;
    }
    graph_.replace_all_uses(node.results()[0], rest);
    graph_.erase(node);
  }

  void drop_gradients() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ir::Output& output = graph_.outputs()[i];
      if (output.role.role != ir::Role::Grad || output.value == ir::kNoValue) continue;
      const Dependence dependence = of(output.value);
      if (dependence == Dependence::Zero || dependence == Dependence::Silent) {
        graph_.set_output(i, ir::kNoValue);
      }
    }
  }

  /// Zeros of the type that a value has, made before the node that reads them.
  ir::ValueId zeros_like(ir::ValueId id, const ir::Node& reader) {
    const ir::TypePtr& type = graph_.value(id).tensor_type();
    for (const auto& [known, zeros] : zeros_) {
      if (*known == *type) return zeros;
    }
    graph_.set_insert_point(reader.id());
    const ir::ValueId zeros =
        type->is_contiguous() ? add_zeros(*type, reader) : add_strided_zeros(*type, reader);
    graph_.set_insert_point(ir::kNoNode);
    zeros_.emplace_back(type, zeros);
    return zeros;
  }

  ir::ValueId add_zeros(const ir::TensorType& type, const ir::Node& reader) {
    return graph_
        .add_op({.op = find("aten::zeros"),
                 .operands = {type.sizes, type.dtype, type.layout, type.device, ir::Operand{}},
                 .results = {ir::Type(type)},
                 .phase = ir::Phase::Backward,
                 .location = reader.location()})
        .results()[0];
  }

  // Any strides, also those of an expanded tensor: as many zeros as the layout spans, seen through
  // it.
  ir::ValueId add_strided_zeros(const ir::TensorType& type, const ir::Node& reader) {
    const ir::Size span = shapes::reach(type.sizes, type.strides);
    const ir::ValueId flat =
        add_zeros(ir::TensorType::contiguous(type.dtype, {span}, type.device), reader);
    return graph_
        .add_op({.op = find("aten::as_strided"),
                 .operands = {flat, type.sizes, type.strides, ir::Operand{}},
                 .results = {ir::Type(type)},
                 .phase = ir::Phase::Backward,
                 .location = reader.location()})
        .results()[0];
  }

  /// The backward of `split` and its kin joins gradients of different formulas. Where one of them
  /// is undefined eager puts zeros, whatever the formula would make of zeros.
  bool is_zero_in_list(ir::ValueId id, const ir::Node& node) const {
    if (of(id) == Dependence::Zero) return true;
    if (of(id) != Dependence::Silent || !is_floating(graph_.value(id))) return false;
    const std::string& name = node.op().operator_name().name;
    return of(node.results()[0]) == Dependence::Defined &&
           (name == "aten::cat" || name == "aten::stack");
  }

  void write_out_zeros(ir::Node& node) {
    const size_t count = ops::kArrives.is(node) ? 1 : node.operands().size();
    for (size_t i = 0; i < count; ++i) {
      const ir::Operand& operand = node.operands()[i];
      if (const auto* id = operand.get_if<ir::ValueId>()) {
        if (*id != ir::kNoValue && of(*id) == Dependence::Zero)
          graph_.set_operand(node, i, zeros_like(*id, node));
      } else if (const auto* ids = operand.get_if<ir::Operand::Values>()) {
        ir::Operand::Values replaced = *ids;
        for (ir::ValueId& id : replaced) {
          if (id != ir::kNoValue && is_zero_in_list(id, node)) id = zeros_like(id, node);
        }
        if (replaced != *ids) graph_.set_operand(node, i, std::move(replaced));
      }
    }
  }

  ir::Graph graph_;
  std::vector<Dependence> dependence_;  // by value of the graph that came in
  std::vector<std::pair<ir::TypePtr, ir::ValueId>> zeros_;
  std::vector<ir::NodeId> unreached_;
  const std::vector<bool> run_;  // by formula
};

}  // namespace

bool has_arrival_marks(const ir::Graph& graph) {
  bool any = false;
  graph.for_each_node([&](const ir::Node& node) { any = any || is_mark(node); });
  return any;
}

void drop_arrival_marks(ir::Graph& graph) {
  drop_arrivals(graph);
  passes::remove_dead_nodes(graph);
  raise_if_eager_does(graph);
}

ir::Graph drop_tangents(const ir::Graph& backward, const Asked& asked,
                        const ir::Signature& signature) {
  return Specialiser(backward, asked, signature).run();
}

}  // namespace tandem::partition
