#include "tracing/recording/with_autocast.h"

#include "base/error.h"
#include "ir/ivalue.h"
#include "libtorch/version.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_to_copy.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tandem::tracing {
namespace {

class Redispatch {
 public:
  Redispatch(const ir::Graph& graph, const libtorch::AutocastState& state)
      : graph_(graph),
        state_(libtorch::ThreadState::now().with_autocast(state)),
        tensors_(graph.value_limit()) {
    state_.autocast_cache = false;  // traced tensors must not stay in it
  }

  ir::Graph run() && {
    const RecordingScope scope(&recording_);
    const c10::impl::IncludeDispatchKeyGuard keys{c10::DispatchKeySet{libtorch::kRecordKey}};
    const at::AutoDispatchBelowADInplaceOrView below;
    recording_.set_phase(ir::Phase::Backward);
    ir::Graph& made = recording_.graph();
    made.set_name(graph_.name());
    for (ir::ValueId input : graph_.inputs()) add_input(input);
    graph_.for_each_node([&](const ir::Node& node) {
      const ir::NodeId last = made.last_node();
      add(node);
      for (ir::NodeId id = made.last_node(); id != last; id = made.previous(id))
        made.set_location(made.node(id), node.location());
    });
    std::vector<ir::Output> outputs;
    for (const ir::Output& output : graph_.outputs())
      outputs.push_back({value_of(output.value), output.role});
    made.set_outputs(std::move(outputs));
    return std::move(made);
  }

 private:
  at::Tensor& tensor(ir::ValueId id) { return tensors_[static_cast<size_t>(id)]; }

  ir::ValueId value_of(ir::ValueId id) {
    if (id == ir::kNoValue || !tensor(id).defined()) return ir::kNoValue;
    return current_value(tensor(id));
  }

  void add_input(ir::ValueId input) {
    const ir::Value& value = graph_.value(input);
    TANDEM_CHECK(value.tensor_type() != nullptr, "lower", "input %", value.name(),
                 " of a backward is no tensor");
    ops::TensorMeta meta{.type = recording_.metadata().intern(*value.tensor_type())};
    const ir::ValueId made =
        recording_.graph().add_input(value.type(), graph_.input_role(input), value.name()).id();
    tensor(input) = recording_.wrap(made, meta);
  }

  void add(const ir::Node& node) {
    TANDEM_CHECK(node.kind() != ir::NodeKind::Region, "lower", "region ", node.label(),
                 " in a backward that runs under autocast");
    if (node.kind() == ir::NodeKind::Constant) {
      const ops::TensorMeta meta = recording_.metadata().meta_of(node.constant());
      const ir::ValueId made = recording_.graph().add_constant(node.constant()).results()[0];
      tensor(node.results()[0]) = recording_.wrap(made, meta);
      return;
    }
    torch::jit::Stack stack;
    const auto& arguments = node.op().schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      stack.push_back(ir::to_ivalue(
          graph_, node.operands()[i], arguments[i].real_type(),
          [&](ir::ValueId id) { return id == ir::kNoValue ? at::Tensor() : tensor(id); }));
    }
    {
      const libtorch::ThreadStateScope autocast(state_);
      node.op().callBoxed(stack);
    }
    take_results(node, stack);
  }

  void take_results(const ir::Node& node, const torch::jit::Stack& stack) {
    size_t next = 0;
    const auto take = [&](const at::Tensor& result) {
      const ir::ValueId id = node.results()[next++];
      if (id == ir::kNoValue || !result.defined()) return;
      const c10::ScalarType dtype = graph_.value(id).tensor_type()->dtype;
      tensor(id) = result.scalar_type() == dtype
                       ? result
                       : at::_to_copy(result, result.options().dtype(dtype));
    };
    for (const c10::IValue& value : stack) {
      if (next >= node.results().size()) return;  // a write may be recorded without its result
      if (value.isTensorList()) {
        for (const at::Tensor& result : value.toTensorVector()) take(result);
      } else if (value.isTensor()) {
        take(value.toTensor());
      } else {
        ++next;
      }
    }
  }

  const ir::Graph& graph_;
  libtorch::ThreadState state_;
  std::vector<at::Tensor> tensors_;  // by value of the graph that came in
  Recording recording_;
};

}  // namespace

ir::Graph with_autocast(const ir::Graph& backward, const libtorch::AutocastState& state) {
  if (!backward.symbols().empty()) {
    TANDEM_UNSUPPORTED("call",
                       "a backward with sizes that depend on data runs in an autocast region",
                       "\n  remedy: leave the region before the backward, as libtorch advises");
  }
  return Redispatch(backward, state).run();
}

}  // namespace tandem::tracing
