#include "loops/kernels/extract_group.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tandem::loops {
namespace {

class Extractor {
 public:
  Extractor(const ir::Graph& graph, const Views& views, const FusionPlan& plan,
            const KernelGroup& group)
      : graph_(graph), views_(views), plan_(plan) {
    for (const Member& member : group.members) members_.insert(member.node);
  }

  ExtractedGroup run(const KernelGroup& group, const std::vector<ir::ValueId>& stored) && {
    out_.graph.set_name("group");
    for (const Member& member : group.members) copy(graph_.node(member.node));
    for (ir::ValueId id : stored) {
      out_.graph.add_output(now_.at(id),
                            ir::Descriptor::output(static_cast<int64_t>(out_.outputs.size())));
      out_.outputs.push_back(id);
    }
    return std::move(out_);
  }

 private:
  ir::ValueId take(ir::ValueId id) {
    if (id == ir::kNoValue) return id;
    if (const auto it = now_.find(id); it != now_.end()) return it->second;
    const ir::Value& value = graph_.value(id);
    if (!value.is_input()) {
      const ir::Node& node = graph_.node(value.producer());
      const bool made_here =
          members_.contains(node.id()) || node.kind() == ir::NodeKind::Constant ||
          plan_.source[static_cast<size_t>(node.id())] != nullptr || views_.step(id) != nullptr;
      if (made_here) {
        copy(node);
        return now_.at(id);
      }
    }
    const ir::ValueId made =
        out_.graph
            .add_input(value.type(),
                       ir::Descriptor::user_input(static_cast<int64_t>(out_.inputs.size())))
            .id();
    out_.inputs.push_back(id);
    now_.emplace(id, made);
    return made;
  }

  /// What is made of nothing reads the sizes of its operand only: nobody waits until that is made.
  ir::ValueId space_like(ir::ValueId id) {
    const ir::TypePtr& type = graph_.value(id).tensor_type();
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty_strided", "");
    ir::OpSpec spec{.op = op};
    spec.operands = {type->sizes, type->strides, type->dtype, type->layout, type->device, {}};
    spec.results.emplace_back(type);
    return out_.graph.add_op(std::move(spec)).results()[0];
  }

  void copy(const ir::Node& node) {
    if (!copied_.insert(node.id()).second) return;
    if (node.kind() == ir::NodeKind::Constant) {
      now_[node.results()[0]] = out_.graph.add_constant(node.constant()).results()[0];
      return;
    }
    ir::OpSpec spec{.op = node.op(), .shape = node.result_shape(), .location = node.location()};
    const bool from_nothing = plan_.source[static_cast<size_t>(node.id())] != nullptr;
    for (const ir::Operand& operand : node.operands()) {
      if (const auto* id = operand.get_if<ir::ValueId>(); id && from_nothing) {
        spec.operands.emplace_back(space_like(*id));
      } else if (id != nullptr) {
        spec.operands.emplace_back(take(*id));
      } else if (const auto* ids = operand.get_if<ir::Operand::Values>()) {
        ir::Operand::Values values;
        for (ir::ValueId each : *ids) values.push_back(take(each));
        spec.operands.emplace_back(std::move(values));
      } else {
        spec.operands.push_back(operand);
      }
    }
    for (ir::ValueId id : node.results()) {
      spec.results.push_back(id == ir::kNoValue ? ir::ResultType()
                                                : ir::ResultType(graph_.value(id).type()));
    }
    const ir::Node& made = out_.graph.add_op(std::move(spec));
    for (size_t i = 0; i < node.results().size(); ++i) {
      if (node.results()[i] != ir::kNoValue) now_[node.results()[i]] = made.results()[i];
    }
  }

  const ir::Graph& graph_;
  const Views& views_;
  const FusionPlan& plan_;
  std::unordered_set<ir::NodeId> members_, copied_;
  std::unordered_map<ir::ValueId, ir::ValueId> now_;
  ExtractedGroup out_;
};

}  // namespace

ExtractedGroup extract_group(const ir::Graph& graph, const Views& views, const FusionPlan& plan,
                             const KernelGroup& group, const std::vector<ir::ValueId>& stored) {
  return Extractor(graph, views, plan, group).run(group, stored);
}

}  // namespace tandem::loops
