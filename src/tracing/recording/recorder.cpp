#include "tracing/recording/recorder.h"

#include "base/error.h"
#include "ir/ivalue.h"
#include "ir/text/op_names.h"
#include "ops/data_sizes.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/op_table.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace tandem::tracing {
namespace {

ops::TensorMeta meta_of_operand(ops::MetadataPropagator& metadata, const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (TracedTensor* traced = as_traced(tensor)) return traced->meta();
  return metadata.meta_of(tensor);
}

/// The line of the op that is under way. Outside of ops libtorch catches up with writes through
/// views: such a node belongs to what it reads, the youngest value first.
ir::Location location_of(Recording& recording, const std::vector<ir::Operand>& operands) {
  ir::Location location = recording.lines().current();
  if (location.noted()) return location;
  const ir::Graph& graph = recording.graph();
  ir::NodeId youngest = ir::kNoNode;
  for (const ir::Operand& operand : operands) {
    operand.for_each_value([&](ir::ValueId id) {
      const ir::NodeId producer = graph.value(id).producer();
      if (producer != ir::kNoNode && (youngest == ir::kNoNode || producer > youngest)) {
        youngest = producer;
      }
    });
  }
  return youngest == ir::kNoNode ? location : graph.node(youngest).location();
}

/// Adds the node and puts its traced results on the stack.
void add_node(Recording& recording, const c10::OperatorHandle& op,
              std::vector<ir::Operand> operands, const std::vector<ops::MetaResult>& results,
              torch::jit::Stack* stack) {
  ir::OpSpec spec{.op = op, .phase = recording.phase()};
  spec.location = location_of(recording, operands);
  spec.operands = std::move(operands);
  bool has_list = false;
  for (const ops::MetaResult& result : results) {
    has_list |= result.kind == ops::MetaResult::Kind::TensorList;
    for (const ops::TensorMeta& meta : result.tensors) {
      spec.results.push_back(meta.type ? ir::ResultType(ir::Type(meta.type)) : std::nullopt);
    }
  }
  if (has_list) {
    for (const ops::MetaResult& result : results) {
      spec.shape.push_back(result.kind == ops::MetaResult::Kind::TensorList
                               ? static_cast<int64_t>(result.tensors.size())
                               : ir::kSingle);
    }
  }
  const ir::Node& node = recording.graph().add_op(std::move(spec));
  if (node.phase() == ir::Phase::Backward) recording.note_backward_node(node.id());
  size_t next = 0;
  const auto wrap = [&](const ops::TensorMeta& meta) {
    ir::ValueId value = node.results()[next++];
    return meta.type ? recording.wrap(value, meta) : at::Tensor();
  };
  for (const ops::MetaResult& result : results) {
    if (result.kind == ops::MetaResult::Kind::Tensor) {
      stack->emplace_back(wrap(result.tensors[0]));
    } else if (result.kind == ops::MetaResult::Kind::TensorList) {
      c10::List<at::Tensor> list;
      list.reserve(result.tensors.size());
      for (const ops::TensorMeta& meta : result.tensors) list.push_back(wrap(meta));
      stack->emplace_back(std::move(list));
    } else {
      stack->push_back(result.other);
    }
  }
}

/// What the op gives if data decides its sizes, with a number drawn for what is not known; nullopt
/// for any other call, and where that is refused.
std::optional<std::vector<ops::MetaResult>> results_by_data(BoxedCall& call,
                                                            const c10::OperatorHandle& op) {
  Recording& recording = *call.recording;
  if (!recording.data_sizes() || !ops::may_size_by_data(op)) return std::nullopt;
  std::vector<ops::MetaArg> args;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    args.push_back(ops::to_meta_arg(
        call.operand(i), arguments[i].type(),
        [&](const at::Tensor& tensor) { return meta_of_operand(recording.metadata(), tensor); }));
  }
  const ops::MetaCall described{op, args};
  const std::optional<ops::DataSize> size = ops::data_size(described);
  if (!size) return std::nullopt;
  DataSizes::Decider decider{.what = size->what};
  if (!size->what.empty()) {
    const TracedTensor* of = as_traced(call.operand(size->decided_by).toTensor());
    if (of == nullptr) return std::nullopt;  // of a real tensor: a constant
    decider.value = of->value();
  }
  const int64_t drawn = recording.data_sizes()->draw(decider, size->min, size->max);
  std::vector<ops::MetaResult> results = ops::results_of_size(described, drawn);
  for (ops::MetaResult& result : results) {
    for (ops::TensorMeta& tensor : result.tensors) {
      if (tensor.type) tensor.type = recording.metadata().intern(*tensor.type);
    }
  }
  return results;
}

/// A question, such as `is_same_size`: no result is a tensor.
bool returns_numbers(const c10::OperatorHandle& op) {
  const auto is_number = [](const c10::Argument& result) {
    return result.real_type()->isSubtypeOf(c10::NumberType::get()) ||
           result.real_type()->isSubtypeOf(c10::BoolType::get());
  };
  const std::vector<c10::Argument>& returns = op.schema().returns();
  return !returns.empty() && std::ranges::all_of(returns, is_number);
}

/// Otherwise the answer was that of the kernel for zeros.
void require_answered_by_metadata(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta) ||
      (op.schema().name().starts_with("aten::") &&
       op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))) {
    return;
  }
  TANDEM_UNSUPPORTED(
      "trace", ir::op_text(op),
      " answers with a number, and no Meta kernel says that sizes decide it",
      "\n  remedy: register a Meta kernel, or call it outside the compiled function");
}

}  // namespace

std::vector<ir::Operand> operands_of(Recording& recording, const c10::OperatorHandle& op,
                                     c10::ArrayRef<c10::IValue> args) {
  ir::Graph& graph = recording.graph();
  const auto value_of = [&](const at::Tensor& tensor) -> ir::ValueId {
    if (!tensor.defined()) return ir::kNoValue;
    if (TracedTensor* traced = as_traced(tensor)) return traced->value();
    ir::Node& node = graph.add_constant(tensor.detach().clone());
    graph.set_location(node, recording.lines().current());
    return node.results()[0];
  };
  const auto& arguments = op.schema().arguments();
  std::vector<ir::Operand> operands;
  operands.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    operands.push_back(ir::to_operand(graph, args[i], arguments[i].real_type(), value_of));
  }
  return operands;
}

void record_call(BoxedCall& call, const c10::OperatorHandle& op) {
  Recording& recording = *call.recording;
  const std::optional<std::vector<ops::MetaResult>> by_data = results_by_data(call, op);
  const std::vector<ops::MetaResult>& results =
      by_data ? *by_data
              : recording.metadata().propagate(
                    op, {call.operands().data(), call.operands().size()}, meta_of_operand,
                    /*must_run=*/recording.phase() == ir::Phase::Forward);
  if (returns_numbers(op) && !ops::info(op).must_happen()) {
    require_answered_by_metadata(op);
    call.drop();
    for (const ops::MetaResult& result : results) call.stack.push_back(result.other);
    return;
  }
  std::vector<ir::Operand> operands = operands_of(recording, op, call.operands());
  call.drop();
  add_node(recording, op, std::move(operands), results, &call.stack);
}

}  // namespace tandem::tracing
