#include "tracing/recorder.h"

#include "base/error.h"
#include "ir/ivalue.h"
#include "ir/text/op_names.h"
#include "libtorch/version.h"
#include "ops/op_row.h"
#include "ops/op_table.h"
#include "tracing/draws.h"
#include "tracing/equality.h"
#include "tracing/operand_text.h"
#include "tracing/recording.h"
#include "tracing/tensors_of.h"
#include "tracing/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_is_any_true_ops.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/contiguous.h>
#include <ATen/ops/view_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_map>

namespace tandem::tracing {
namespace {

/// What the recorder asks about an op on every call, looked up once per thread.
struct OpFacts {
  bool composite = false;  // libtorch decomposes it; so do we
  bool compares = false;   // `equal`, which C++ attention modules call on values
  bool views = false;      // `view`, which raises if strides do not allow it
  bool scales = false;     // `mul`, of which libtorch has another kernel for zero tensors
  bool bernoulli = false;  // its draws follow the memory of its operand
  bool casts_inside = false;
  int device_argument = -1;
};

OpFacts make_facts(const c10::OperatorHandle& op) {
  OpFacts facts;
  // silu_backward and mish_backward have a CPU kernel beside the composite one: decomposing them
  // would round differently from eager.
  facts.composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                    !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  facts.bernoulli = is_bernoulli(op);
  const ops::OpRow* row = ops::find_row(op);
  facts.casts_inside = row && (row->facts & ops::Fact::CastsInside);
  facts.scales = op.operator_name().name == "aten::mul";
  facts.compares = op.operator_name().name == "aten::equal";
  facts.views = op.schema().name() == at::_ops::view::name &&
                op.schema().overload_name() == at::_ops::view::overload_name;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "device") facts.device_argument = static_cast<int>(i);
  }
  return facts;
}

const OpFacts& facts_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, OpFacts> known;
  auto [it, inserted] = known.try_emplace(&op.schema());
  if (inserted) it->second = make_facts(op);
  return it->second;
}

ops::TensorMeta meta_of_operand(ops::MetadataPropagator& metadata, const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (TracedTensor* traced = as_traced(tensor)) return traced->meta();
  return metadata.meta_of(tensor);
}

/// Autocast would reach ops that a kernel calls on this device.
bool autocast_is_on(c10::ArrayRef<c10::IValue> args) {
  bool on = false;
  for (const c10::IValue& arg : args) {
    for_each_tensor(arg, [&](const at::Tensor& tensor) {
      const auto key =
          at::autocast::get_autocast_dispatch_key_from_device_type(tensor.device().type());
      on = on || !c10::impl::tls_is_dispatch_key_excluded(key);
    });
  }
  return on;
}

/// The engine asks in anomaly mode whether a gradient holds a NaN. A trace has no data that could;
/// the gradients that leave a call are checked whenever it runs.
bool is_anomaly_check(const Recording& recording, const c10::OperatorHandle& op,
                      c10::ArrayRef<c10::IValue> args) {
  if (!torch::autograd::AnomalyMode::is_enabled() ||
      op.schema().name() != at::_ops::_local_scalar_dense::name) {
    return false;
  }
  const TracedTensor* traced = as_traced(args[0].toTensor());
  const ir::Graph& graph = recording.graph();
  if (!traced || graph.value(traced->value()).is_input()) return false;
  const ir::Node& producer = graph.node(graph.value(traced->value()).producer());
  return producer.kind() == ir::NodeKind::Op &&
         producer.op().schema().name() == at::_ops::_is_any_true::name;
}

/// Functionalization takes a written view back to its base by the inverse of each view op. In eager
/// the memory is written where it is; the value that stands for it may be laid out otherwise, and
/// `view` would raise.
void allow_view(Recording& recording, torch::jit::Stack& stack) {
  if (!recording.is_writing()) return;
  const at::Tensor& tensor = stack[stack.size() - 2].toTensor();
  const std::vector<int64_t> sizes = stack.back().toIntVector();
  if (as_traced(tensor) == nullptr || tensor.numel() == 0 ||
      at::detail::computeStride(tensor.sizes(), tensor.strides(),
                                at::infer_size_dv(sizes, tensor.numel()))) {
    return;
  }
  stack[stack.size() - 2] = tensor.contiguous();
}

/// A gradient of zeros that autograd made without memory, times a real number: the same zeros.
/// libtorch's kernel for them would take the number for a tensor, whose dtype wins if there are no
/// dimensions; what is recorded after it expects the dtype that eager's engine casts it to.
bool is_scaled_zero(const Recording& recording, c10::ArrayRef<c10::IValue> args) {
  const TracedTensor* traced = as_traced(args[0].toTensor());
  const bool by_number = args[1].isDouble() || args[1].isInt() ||
                         (args[1].isTensor() && as_traced(args[1].toTensor()) == nullptr &&
                          args[1].toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
                          !args[1].toTensor().is_complex());
  const ir::Graph& graph = recording.graph();
  if (!traced || !by_number || !at::isFloatingType(traced->meta().type->dtype) ||
      graph.value(traced->value()).is_input())
    return false;
  const ir::Node& producer = graph.node(graph.value(traced->value()).producer());
  return producer.kind() == ir::NodeKind::Op &&
         producer.op().operator_name().name == "aten::_efficientzerotensor";
}

/// Nodes of the operands: values of traced tensors; real tensors become constants of the graph.
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
  if (node.phase() == ir::Phase::Backward && ops::info(op).must_happen())
    recording.note_effect({node.id(), torch::autograd::get_current_node().get()});
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

}  // namespace

void record(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const OpFacts& facts = facts_of(op);
  const ops::OpInfo& info = ops::info(op);
  if (facts.composite && !info.marked) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  Recording* recording = current_recording();
  if (facts.views && recording) allow_view(*recording, *stack);
  const size_t arity = op.schema().arguments().size();
  const auto args = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arity, arity);

  bool any_tensor = false, any_traced = false;
  for (const c10::IValue& arg : args) {
    for_each_tensor(arg, [&](const at::Tensor& tensor) {
      any_tensor = true;
      TracedTensor* traced = as_traced(tensor);
      if (!traced) return;
      any_traced = true;
      TANDEM_REQUIRE(
          recording && traced->recording_id() == recording->id(), "trace", ir::op_text(op),
          " was given a tensor that belongs to a trace which is over",
          "\n  operand: ", tensor_text(tensor),
          "\n  remedy:  do not keep tensors that the compiled function made or received in "
          "variables that outlive it; return them instead");
    });
  }
  c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKeySet{libtorch::kRecordKey} |
                                           c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  // Functionalization asks libtorch's Meta kernels for shapes on plain meta tensors: not part of
  // the program.
  const bool on_meta = facts.device_argument >= 0 && args[facts.device_argument].isDevice() &&
                       args[facts.device_argument].toDevice().is_meta();
  if (!recording || on_meta || (any_tensor && !any_traced)) {
    op.callBoxed(*stack);
    return;
  }

  if (is_anomaly_check(*recording, op, args)) {
    stack->back() = at::Scalar(false);
    return;
  }
  if (info.writes_arguments) {
    TANDEM_UNSUPPORTED(
        "trace", ir::op_text(op), " writes its arguments and has no functional form",
        "\n  operands: ", operands_text(args),
        "\n  remedy:   register a functional variant of the op, or call it outside the "
        "compiled function");
  }
  if (facts.compares) {
    const std::vector<ir::Operand> sides = operands_of(*recording, op, args);
    if (const std::optional<bool> answer = answer_equal(*recording, *sides[0].get_if<ir::ValueId>(),
                                                        *sides[1].get_if<ir::ValueId>())) {
      torch::jit::drop(*stack, arity);
      stack->emplace_back(*answer);
      return;
    }
  }
  if (facts.casts_inside && autocast_is_on(args)) {
    TANDEM_UNSUPPORTED("trace", "autocast reaches into the kernel of ", ir::op_text(op),
                       ", where a graph cannot follow it", "\n  operands: ", operands_text(args),
                       "\n  remedy:   switch autocast off around the call");
  }
  if (facts.scales && is_scaled_zero(*recording, args)) {
    const TracedTensor& zero = *as_traced(args[0].toTensor());
    at::Tensor same = recording->wrap(zero.value(), zero.meta());
    torch::jit::drop(*stack, arity);
    stack->emplace_back(std::move(same));
    return;
  }
  const c10::OperatorHandle& recorded =
      facts.bernoulli ? bernoulli_to_record(op, args[0].toTensor()) : op;
  const std::vector<ops::MetaResult>& results =
      recording->metadata().propagate(recorded, {args.data(), args.size()}, meta_of_operand);
  std::vector<ir::Operand> operands = operands_of(*recording, recorded, args);
  stack->resize(stack->size() - arity);
  add_node(*recording, recorded, std::move(operands), results, stack);
}

}  // namespace tandem::tracing
