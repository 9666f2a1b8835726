#include "base/error.h"
#include "base/of_thread.h"
#include "ir/text/op_names.h"
#include "libtorch/node_names.h"
#include "ops/op_row.h"
#include "ops/op_table.h"
#include "ops/own/as_size.h"
#include "ops/own/bernoulli_like.h"
#include "tracing/hooks/determinant.h"
#include "tracing/hooks/equality.h"
#include "tracing/hooks/inference_views.h"
#include "tracing/hooks/interception.h"
#include "tracing/hooks/kept_strides.h"
#include "tracing/hooks/lazy_memory.h"
#include "tracing/hooks/outside_tensors.h"
#include "tracing/hooks/products_in_place.h"
#include "tracing/hooks/strided_views.h"
#include "tracing/hooks/users_op.h"
#include "tracing/hooks/view_inverses.h"
#include "tracing/hooks/write_checks.h"
#include "tracing/inputs/inputs.h"
#include "tracing/inputs/lost_history.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/recorder.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/_is_any_true_ops.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/_native_batch_norm_legit_no_training.h>
#include <ATen/ops/contiguous.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/unsqueeze.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>

namespace tandem::tracing {
namespace {

// What rows do that is too little for a file of its own, in the order of the table.

bool is_any(const c10::OperatorHandle&) { return true; }
bool is_mutable(const c10::OperatorHandle& op) { return op.schema().is_mutable(); }

bool is_forward(const BoxedCall& call) { return call.recording->phase() == ir::Phase::Forward; }

/// libtorch's body reads the smallest and the largest class. What it does with them is a check.
bool one_hot(BoxedCall& call) {
  const at::Tensor classes = call.operand(0).toTensor();
  const int64_t count = call.operand(1).toInt();
  // It raises, or makes an empty tensor, without reading anything.
  if (classes.scalar_type() != at::kLong || classes.numel() == 0 || count == -1) return false;
  const auto require = [](const at::Tensor& holds, const char* text) {
    at::_assert_async(holds, text);
  };
  if (classes.is_cuda()) {
    TORCH_CHECK(count >= 1, "num_classes should be positive");
  } else {
    require(classes.min() >= 0, "Class values must be non-negative.");
    require(classes.max() < count, "Class values must be smaller than num_classes.");
  }
  std::vector<int64_t> sizes = classes.sizes().vec();
  sizes.push_back(std::max<int64_t>(count, 0));
  call.answer(at::zeros(sizes, classes.options()).scatter(-1, classes.unsqueeze(-1), 1));
  return true;
}

std::any refuse_unknown_classes(BoxedCall& call) {
  const at::Tensor& classes = call.operand(0).toTensor();
  if (call.operand(1).toInt() != -1 || classes.scalar_type() != at::kLong || classes.numel() == 0)
    return {};
  TANDEM_UNSUPPORTED("trace", "one_hot without num_classes has a result whose size depends on data",
                     "\n  operand: ", tensor_text(classes), "\n  remedy:  give num_classes");
}

std::any renew_histories(BoxedCall& call) {
  if (is_forward(call)) call.recording->inputs().renew_histories();
  return {};
}

/// Only what the user's code asks itself: how libtorch goes on with a number, nobody sees.
bool hand_on_number(BoxedCall& call) {
  const std::shared_ptr<DataSizes>& sizes = call.recording->data_sizes();
  const at::Tensor number = call.operand(0).toTensor();
  if (!sizes || !is_traced(number) || number.numel() != 1 || !number.is_cpu() ||
      !c10::isIntegralType(number.scalar_type(), /*includeBool=*/false) ||
      !sizes->is_asked_by_op(call.recording->lines().entry())) {
    return false;
  }
  torch::jit::Stack stack{number};
  ops::kAsSize.handle().callBoxed(stack);
  const at::Tensor sized = stack[0].toTensor();
  const TracedTensor& traced =
      *as_traced(at::functionalization::impl::from_functional_tensor(sized));
  call.answer(
      c10::IValue(size_for_user(sizes, traced.value(), traced.meta().type->sizes[0].value())));
  return true;
}

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

bool may_give_views(const c10::OperatorHandle& op) {
  return ops::info(op).is_view || is_composite(op);
}

void keep_views_without_base(BoxedCall& call, std::any&) {
  for (const c10::IValue& result : call.operands()) {
    for_each_tensor(result, [](const at::Tensor& tensor) {
      if (tensor.defined()) keep_view_without_base(tensor);
    });
  }
}

bool give_back(BoxedCall&) { return true; }

std::any draw_in_order(BoxedCall& call) {
  call.operand(0) = call.operand(0).toTensor().contiguous();
  return {};
}

void note_write(BoxedCall& call, std::any&) {
  if (is_forward(call)) call.recording->inputs().note_write();
}

bool fill_diagonal(BoxedCall& call) {
  const at::Tensor matrix = call.operand(0).toTensor();
  const bool raises = matrix.is_leaf() && matrix.requires_grad() && c10::GradMode::is_enabled();
  if (matrix.dim() != 2 || call.operand(2).toBool() || raises) return false;
  matrix.diagonal().fill_(call.operand(1).toScalar());
  call.answer(matrix);
  return true;
}

bool batch_norm(BoxedCall& call) {
  const auto tensor = [&](size_t i) { return call.operand(i).toOptional<at::Tensor>(); };
  const at::Tensor input = call.operand(0).toTensor();
  const auto weight = tensor(1), bias = tensor(2), mean = tensor(3), var = tensor(4);
  const bool training = call.operand(5).toBool();
  const double momentum = call.operand(6).toDouble(), eps = call.operand(7).toDouble();
  call.drop();
  const auto give = [&](const auto& results) {
    const auto& [result, saved_mean, saved_scale] = results;
    torch::jit::push(call.stack, result, saved_mean, saved_scale);
  };
  // We come from below autograd; Functionalize stays on.
  const at::AutoDispatchBelowADInplaceOrView below;
  if (!training) {
    give(at::_native_batch_norm_legit_no_training(input, weight, bias, *mean, *var, momentum, eps));
  } else if (mean && mean->defined()) {
    at::Tensor written_mean = *mean, written_var = *var;
    give(at::_native_batch_norm_legit(input, weight, bias, written_mean, written_var, training,
                                      momentum, eps));
  } else {
    give(at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps));
  }
  return true;
}

std::any allow_view(BoxedCall& call) {
  if (call.recording == nullptr || !call.recording->is_writing()) return {};
  const at::Tensor& tensor = call.operand(0).toTensor();
  const std::vector<int64_t> sizes = call.operand(1).toIntVector();
  if (as_traced(tensor) != nullptr && tensor.numel() > 0 &&
      !at::detail::computeStride(tensor.sizes(), tensor.strides(),
                                 at::infer_size_dv(sizes, tensor.numel()))) {
    call.operand(0) = tensor.contiguous();
  }
  return {};
}

bool call_outside(BoxedCall& call) {
  const Recording* recording = call.recording;
  bool any_tensor = false, any_traced = false;
  for (const c10::IValue& operand : call.operands()) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      any_tensor = true;
      const TracedTensor* traced = as_traced(tensor);
      if (traced == nullptr) return;
      any_traced = true;
      TANDEM_REQUIRE(
          recording && traced->recording_id() == recording->id(), "trace", ir::op_text(call.op),
          " was given a tensor that belongs to a trace which is over",
          "\n  operand: ", tensor_text(tensor),
          "\n  remedy:  do not keep tensors that the compiled function made or received in "
          "variables that outlive it; return them instead");
    });
  }
  if (recording != nullptr && (any_traced || !any_tensor)) return false;
  call.op.callBoxed(call.stack);
  return true;
}

bool has_device_argument(const c10::OperatorHandle& op) {
  return op.schema().argumentIndexWithName("device").has_value();
}

bool make_on_meta(BoxedCall& call) {
  const c10::IValue& device =
      call.operand(static_cast<size_t>(*call.op.schema().argumentIndexWithName("device")));
  if (!device.isDevice() || !device.toDevice().is_meta()) return false;
  call.op.callBoxed(call.stack);
  return true;
}

/// The node that made the value of a traced operand, if it is a call of this op.
const ir::Node* made_by(const BoxedCall& call, size_t operand, std::string_view op) {
  const ir::Graph& graph = call.recording->graph();
  const TracedTensor* traced = as_traced(call.operand(operand).toTensor());
  if (traced == nullptr || graph.value(traced->value()).is_input()) return nullptr;
  const ir::Node& node = graph.node(graph.value(traced->value()).producer());
  const bool same = node.kind() == ir::NodeKind::Op && node.op().operator_name().name == op;
  return same ? &node : nullptr;
}

bool answer_anomaly_check(BoxedCall& call) {
  if (!torch::autograd::AnomalyMode::is_enabled() ||
      made_by(call, 0, at::_ops::_is_any_true::name) == nullptr) {
    return false;
  }
  call.answer(at::Scalar(false));
  return true;
}

/// Our own one is recorded as it is.
bool writes_arguments(const c10::OperatorHandle& op) {
  return ops::info(op).writes_arguments && !ops::keeps_its_place(op);
}

/// Whether this is a question for the metadata of an in-place op that has nothing to do.
bool add_nothing(BoxedCall& call) {
  const at::Tensor self = call.operand(0).toTensor();
  const at::Tensor& index = call.operand(2).toTensor();
  if (!self.is_meta() || is_traced(self) || index.numel() > 0) return false;
  call.answer(self);
  return true;
}

std::any refuse_write(BoxedCall& call) {
  TANDEM_UNSUPPORTED("trace", ir::op_text(call.op),
                     " writes its arguments and has no functional form",
                     "\n  operands: ", operands_text(call.operands()),
                     "\n  remedy:   register a functional variant of the op, or call it outside "
                     "the compiled function");
}

bool compare(BoxedCall& call) {
  const std::vector<ir::Operand> sides = operands_of(*call.recording, call.op, call.operands());
  const std::optional<bool> answer = answer_equal(*call.recording, *sides[0].get_if<ir::ValueId>(),
                                                  *sides[1].get_if<ir::ValueId>());
  if (answer) call.answer(*answer);
  return answer.has_value();
}

bool casts_inside(const c10::OperatorHandle& op) {
  const ops::OpRow* row = ops::find_row(op);
  return row != nullptr && (row->facts & ops::Fact::CastsInside);
}

std::any refuse_cast_inside(BoxedCall& call) {
  for (const c10::IValue& operand : call.operands()) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      const auto key =
          at::autocast::get_autocast_dispatch_key_from_device_type(tensor.device().type());
      if (c10::impl::tls_is_dispatch_key_excluded(key)) return;
      TANDEM_UNSUPPORTED("trace", "autocast reaches into the kernel of ", ir::op_text(call.op),
                         ", where a graph cannot follow it",
                         "\n  operands: ", operands_text(call.operands()),
                         "\n  remedy:   switch autocast off around the call");
    });
  }
  return {};
}

bool is_number(const c10::IValue& value) {
  if (!value.isTensor()) return value.isDouble() || value.isInt();
  const at::Tensor& tensor = value.toTensor();
  return as_traced(tensor) == nullptr && tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
         !tensor.is_complex();
}

bool keep_zeros(BoxedCall& call) {
  if (!is_number(call.operand(1)) || made_by(call, 0, "aten::_efficientzerotensor") == nullptr)
    return false;
  const TracedTensor& zeros = *as_traced(call.operand(0).toTensor());
  if (!at::isFloatingType(zeros.meta().type->dtype)) return false;
  call.answer(call.recording->wrap(zeros.value(), zeros.meta()));
  return true;
}

bool fill_in_shares(BoxedCall& call) {
  const auto formula = torch::autograd::get_current_node();
  if (!formula || !libtorch::is_formula_of_shares(*formula)) return false;
  const at::Tensor mask = call.operand(0).toTensor(), share = call.operand(1).toTensor();
  if (mask.scalar_type() != at::kBool || share.dim() > 0) return false;
  call.answer(share.new_zeros(mask.sizes()).masked_fill(mask, share));
  return true;
}

bool draw_in_place(BoxedCall& call) {
  if (call.operand(0).toTensor().is_contiguous()) return false;
  record_call(call, ops::kBernoulliLike.handle());
  return true;
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

std::any index_by_places(BoxedCall& call) {
  if (!call.recording || !call.recording->data_sizes() || !is_traced(call.operand(0).toTensor()))
    return {};
  const at::Tensor self = call.operand(0).toTensor();
  std::vector<at::Tensor> indices;
  for (const c10::IValue& index : call.operand(1).toListRef())
    indices.push_back(index.isTensor() ? index.toTensor() : at::Tensor());
  if (std::ranges::none_of(indices, is_mask)) return {};
  c10::List<std::optional<at::Tensor>> places;
  for (const at::Tensor& index : indices) {
    if (!is_mask(index)) {
      places.push_back(index.defined() ? std::optional(index) : std::nullopt);
      continue;
    }
    const auto first = static_cast<int64_t>(places.size());
    TORCH_CHECK_INDEX(first + index.dim() <= self.dim(),
                      "too many indices for tensor of dimension ", self.dim());
    for (int64_t i = 0; i < index.dim(); ++i) {
      TORCH_CHECK_INDEX(index.size(i) == self.size(first + i), "The shape of the mask ",
                        index.sizes(), " at index ", i,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", first + i);
    }
    // Of a mask without dimensions it is not known where it belongs.
    if (index.dim() == 0) return {};
    const at::Tensor where = at::nonzero(index);
    for (int64_t i = 0; i < index.dim(); ++i) places.push_back(where.select(1, i));
  }
  call.operand(1) = std::move(places);
  return {};
}

constexpr Interception kRows[] = {
    {.name = "open up an op of the user",
     .stop = Stop::FirstSight,
     .ops = "ops of other libraries whose only kernel is a body of other ops",
     .fits = is_users_composite,
     .instead = run_body,
     .why = "The body is the user's code: each op in it is lifted by itself."},

    {.name = "check the classes in the graph",
     .stop = Stop::FirstSight,
     .ops = "aten::one_hot",
     .instead = one_hot,
     .why = "libtorch's body reads the smallest and the largest class, to check them."},

    {.name = "refuse unknown classes",
     .stop = Stop::Lifting,
     .ops = "aten::one_hot",
     .before = refuse_unknown_classes,
     .why = "Without a number of classes the data says how large the result is."},
    {.name = "renew histories of views",
     .stop = Stop::Lifting,
     .ops = "every op",
     .fits = is_any,
     .before = renew_histories,
     .why = "Outside, a view of what was written has a new grad_fn when it is used again."},
    {.name = "hand on a number",
     .stop = Stop::Lifting,
     .ops = "aten::item",
     .instead = hand_on_number,
     .why = "A whole number that the function reads and hands to ops goes through the graph as the "
            "size of an empty tensor."},
    {.name = "memory of the host",
     .stop = Stop::Lifting,
     .ops = "aten::empty.memory_format",
     .instead = make_host_memory,
     .why = "Host code may fill it through a data pointer, which no hook sees."},
    {.name = "give back",
     .stop = Stop::Lifting,
     .ops = "aten::lift",
     .instead = give_back,
     .why = "Functionalization has its own use for the op, and older ones refuse others."},
    {.name = "resize memory of the host",
     .stop = Stop::Lifting,
     .ops = "aten::resize_ aten::resize_as_",
     .before = note_resized,
     .after = resize_host_memory,
     .why = "Autograd looks at the size of the real tensor where a custom function returns it."},
    {.name = "views whose base may give up its gradient",
     .stop = Stop::Lifting,
     .ops = "ops whose result may be a view",
     .fits = may_give_views,
     .after = keep_views_without_base,
     .why = "The function may write a view of a leaf and then switch off the gradient of the leaf. "
            "libtorch cannot make the history of the view anew then, by the op that takes it."},
    {.name = "lift",
     .stop = Stop::Lifting,
     .ops = "every op",
     .fits = is_any,
     .before = lift_operands,
     .why = "Whatever the function closes over becomes an input, before autograd sees it."},
    {.name = "draw in order",
     .stop = Stop::Lifting,
     .ops = "aten::bernoulli.p",
     .before = draw_in_order,
     .why = "Called by the function itself it fills a contiguous result; what functionalization "
            "makes of bernoulli_() does not."},
    {.name = "keep a marked op whole",
     .stop = Stop::Lifting,
     .ops = "ops marked as effectful whose only kernel is a body of other ops",
     .fits = has_only_a_body,
     .instead = call_whole,
     .why = "libtorch would run the body, with its effects, while it is traced."},
    {.name = "keep within the memory",
     .stop = Stop::Lifting,
     .ops = "aten::as_strided",
     .before = check_reach,
     .why = "Nothing below knows how much memory an input has, and a view that nobody reads is "
            "taken by no kernel."},
    {.name = "leave out an offset",
     .stop = Stop::Lifting,
     .ops = "aten::as_strided",
     .before = leave_out_offset,
     .why = "It counts from the beginning of the memory, and what was written since has memory of "
            "its own. Where the view starts with the tensor, it is better left unsaid."},
    {.name = "follow writes of the user's op",
     .stop = Stop::Lifting,
     .ops = "ops of other libraries that write arguments",
     .fits = writes_users_arguments,
     .before = follow_writes,
     .why = "Functionalization refuses them unless somebody says how to follow."},
    {.name = "refuse written numbers",
     .stop = Stop::Lifting,
     .ops = "ops that write arguments",
     .fits = is_mutable,
     .before = refuse_written_numbers,
     .why = "A wrapped number is not lifted: it counts as the number that it holds."},
    {.name = "check what is written",
     .stop = Stop::Lifting,
     .ops = "in-place ops",
     .fits = is_in_place,
     .before = check_write,
     .why = "Kernels look at memory and raise where it overlaps; a traced tensor has none."},
    {.name = "every element in its place",
     .stop = Stop::Lifting,
     .ops = "ops that write arguments",
     .fits = is_mutable,
     .before = keep_places,
     .why = "Functionalization takes a written expanded view back to its base by a sum, and "
            "windows by one that leaves out what lies between them."},
    {.name = "check a mask",
     .stop = Stop::Lifting,
     .ops = "aten::masked_fill_.Scalar aten::masked_fill_.Tensor aten::masked_scatter_",
     .before = check_mask,
     .why =
         "If the mask does not fit, eager's error names the sizes of what is written first; that "
         "of the out-of-place form names those of the mask."},
    {.name = "check what is read and written",
     .stop = Stop::Lifting,
     .ops = "products, and ops with an index, that write in place or out",
     .fits = minds_overlap,
     .before = check_operands,
     .why = "Where eager's kernel writes into its own operands it raises, or computes with what it "
            "has written already. Functionalization computes a new tensor."},
    {.name = "check what is filled",
     .stop = Stop::Lifting,
     .ops = "ops with an out argument and a Meta kernel",
     .fits = fills_out_on_meta,
     .before = check_filled,
     .why = "The op checks dtype and device of what it fills. Functionalization computes a new "
            "tensor and casts it, so that the error would be lost."},
    {.name = "count writes to lists",
     .stop = Stop::Lifting,
     .ops = "aten::_foreach_*_",
     .fits = writes_list,
     .before = check_written_once,
     .after = count_writes,
     .why = "Their kernels count versions, and write one tensor after the other; "
            "functionalization replaces the kernel, and reads all before it writes any."},
    {.name = "written memory stays lazy or not",
     .stop = Stop::Lifting,
     .ops = "ops that write arguments",
     .fits = is_mutable,
     .before = note_lazy_memory,
     .after = keep_memory_as_lazy,
     .why = "Functionalization leaves a lazy conjugate or negation where a lazy view was written."},
    {.name = "note a write",
     .stop = Stop::Lifting,
     .ops = "ops that write arguments",
     .fits = is_mutable,
     .after = note_write,
     .why = "Views get new histories, and real tensors those of their stand-ins, which a custom "
            "function asks."},
    {.name = "keep strides",
     .stop = Stop::Lifting,
     .ops = "ops that write one tensor, in place or out",
     .fits = writes_one_tensor,
     .before = note_strides,
     .after = restore_strides,
     .why = "Eager writes into the memory that is there; functionalization takes the strides of "
            "the out-of-place form, and host code decides by strides."},
    {.name = "both formulas of a determinant",
     .stop = Stop::Lifting,
     .ops = "aten::det aten::linalg_det",
     .before = note_matrix,
     .after = give_both_formulas,
     .why = "libtorch chooses the formula of the derivative by data."},
    {.name = "copies in inference mode",
     .stop = Stop::Lifting,
     .ops = "ops that libtorch makes of others, and that do not say that they give views",
     .fits = meets_lazy_fallbacks,
     .before = resolve_in_inference_mode,
     .why = "Without autograd, lazy conjugates and negations are resolved before the op is made of "
            "others. A trace has autograd on, without grad mode."},
    {.name = "views in inference mode",
     .stop = Stop::Lifting,
     .ops = "every op",
     .fits = is_any,
     .instead = call_in_inference_mode,
     .why = "Inside an inference region functionalization cannot make views of tensors that are "
            "none of the region's."},
    {.name = "views of inference tensors",
     .stop = Stop::Lifting,
     .ops = "ops whose result is a view, but for detach",
     .fits = takes_views,
     .instead = view_inference_tensor,
     .why = "They are inference tensors wherever they are taken, and nobody may write them outside "
            "of a region."},
    {.name = "fill the diagonal as a view",
     .stop = Stop::Lifting,
     .ops = "aten::fill_diagonal_",
     .instead = fill_diagonal,
     .why = "Its kernel reaches the diagonal by strides, which the value of a tensor that has been "
            "written, or that is not contiguous, need not have."},

    {.name = "running statistics",
     .stop = Stop::Functionalization,
     .ops = "aten::native_batch_norm",
     .instead = batch_norm,
     .why = "It writes them without saying so: goes to the op that declares the writes."},
    {.name = "the user's op in its functional form",
     .stop = Stop::Functionalization,
     .ops = "ops of other libraries that write arguments",
     .fits = writes_users_arguments,
     .instead = call_functional_form,
     .why = "The graph has no writes: what the op writes is a result of the form."},

    {.name = "decompose",
     .stop = Stop::BeforeRecording,
     .ops = "ops that libtorch makes of others, without a CPU kernel",
     .fits = is_composite,
     .instead = run_body,
     .why = "As eager does. With a CPU kernel beside the body (silu_backward, mish_backward) the "
            "body would round otherwise."},
    {.name = "a mask as an index",
     .stop = Stop::BeforeRecording,
     .ops = "aten::index.Tensor aten::_unsafe_index.Tensor",
     .before = index_by_places,
     .why =
         "The kernel looks up where the mask is true. Done before, it is known which mask decides "
         "how large the result is."},
    {.name = "a view of what is written",
     .stop = Stop::BeforeRecording,
     .ops = "aten::view",
     .before = allow_view,
     .why = "Functionalization takes a written view back to its base by the inverse of each view "
            "op. The memory is written where it is; the value that stands for it may be laid out "
            "otherwise, and view would raise."},

    {.name = "count from the memory that came in",
     .stop = Stop::BeforeRecording,
     .ops = "aten::as_strided aten::as_strided_scatter",
     .before = count_from_memory,
     .why = "An offset counts from the beginning of the memory of an input. What was written since "
            "has memory of its own, which begins where the input does."},

    {.name = "real and complex numbers within a write",
     .stop = Stop::BeforeRecording,
     .ops = "aten::view_as_real aten::view_as_complex",
     .before = resolve_within_write,
     .why = "Functionalization takes views again while the value of their memory is a lazy "
            "conjugate that it should not be, of which there is no real view; and takes lazily "
            "negated real numbers back to complex ones, whose negation loses the sign of a zero."},

    {.name = "note a product in place",
     .stop = Stop::BeforeRecording,
     .ops = "aten::mul_.Scalar aten::_foreach_mul_.Scalar aten::_foreach_mul_.ScalarList",
     .after = note_product,
     .why = "Functionalization asks the in-place op for metadata, then calls the other one, which "
            "does not know that it was to be in place."},
    {.name = "round the number of a product in place",
     .stop = Stop::BeforeRecording,
     .ops = "aten::mul.Scalar",
     .before = round_number,
     .why = "In place, eager's kernel has the number on the left, and there rounds it to 16 bits "
            "where the tensor has 16."},
    {.name = "round the numbers of products in place",
     .stop = Stop::BeforeRecording,
     .ops = "aten::_foreach_mul.Scalar aten::_foreach_mul.ScalarList",
     .instead = multiply_one_by_one,
     .why = "The same for each tensor of a list, in its own dtype."},
    {.name = "shares of a gradient",
     .stop = Stop::BeforeRecording,
     .ops = "aten::mul.Tensor",
     .instead = fill_in_shares,
     .why =
         "In a trace the derivative of max(), min() and median() multiplies its share by a mask; "
         "eager fills it in. Nothing times an infinite share is no number."},
    {.name = "an index of nothing",
     .stop = Stop::BeforeRecording,
     .ops = "aten::index_add_ aten::index_reduce_",
     .instead = add_nothing,
     .why = "Functionalization asks the in-place op for metadata, and libtorch's Meta kernel then "
            "looks at the first slice of what is added."},
    {.name = "draw into gaps",
     .stop = Stop::BeforeRecording,
     .ops = "aten::normal_functional",
     .instead = draw_into_gaps,
     .why = "Comes from normal_(), which draws 16 numbers at once only where the memory has no "
            "gaps. What functionalization fills never has any."},

    {.name = "no part of the program",
     .stop = Stop::Recording,
     .ops = "every op",
     .fits = is_any,
     .instead = call_outside,
     .why = "Functionalization calls ops on plain tensors, too, to ask for shapes. A tensor of a "
            "trace that is over is an error of the user."},
    {.name = "factories asked for shapes",
     .stop = Stop::Recording,
     .ops = "ops with a device argument",
     .fits = has_device_argument,
     .instead = make_on_meta,
     .why = "What is made on the device meta is such a plain tensor."},
    {.name = "no look for NaN",
     .stop = Stop::Recording,
     .ops = "aten::_local_scalar_dense",
     .instead = answer_anomaly_check,
     .why =
         "The engine asks in anomaly mode whether a gradient holds one. A trace has no data that "
         "could; the gradients that leave a call are checked whenever it runs."},
    {.name = "refuse writes",
     .stop = Stop::Recording,
     .ops = "ops that write arguments",
     .fits = writes_arguments,
     .before = refuse_write,
     .why = "What arrives here has no functional form."},
    {.name = "refuse writes to one place",
     .stop = Stop::Recording,
     .ops = "aten::as_strided_scatter",
     .before = refuse_overlap,
     .why = "By this op a write reaches the memory behind an argument that shares it with others. "
            "Of several elements at one place, those that were not written would win, or the "
            "kernel raises in the call."},
    {.name = "compare",
     .stop = Stop::Recording,
     .ops = "aten::equal",
     .instead = compare,
     .why = "Attention modules of the C++ frontend ask it of their operands; most answers follow "
            "from the graph."},
    {.name = "refuse casts inside",
     .stop = Stop::Recording,
     .ops = "ops whose kernel calls ops that autocast casts for",
     .fits = casts_inside,
     .before = refuse_cast_inside,
     .why = "A graph of one node cannot say what was cast in it."},
    {.name = "zeros stay zeros",
     .stop = Stop::Recording,
     .ops = "aten::mul.Tensor aten::mul.Scalar",
     .instead = keep_zeros,
     .why = "A gradient of zeros that autograd made without memory, times a number: libtorch's "
            "kernel for them takes the number for a tensor, whose dtype wins if there are no "
            "dimensions, and what is recorded after it expects eager's."},
    {.name = "draw in the order of memory",
     .stop = Stop::Recording,
     .ops = "aten::bernoulli.p",
     .instead = draw_in_place,
     .why = "Comes from bernoulli_(), which fills its tensor in the order of memory; on "
            "channels_last data other elements would get the draws."},
};

}  // namespace

std::span<const Interception> interceptions() { return kRows; }

std::vector<std::string_view> op_names(const Interception& row) {
  std::vector<std::string_view> names;
  if (row.fits != nullptr) return names;
  for (std::string_view rest = row.ops; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    names.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

OpRows::OpRows(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  for (const Interception& row : kRows) {
    // Most rows are about other ops: what is not even part of the list is not looked up in it.
    const bool meets = row.fits != nullptr ? row.fits(op)
                                           : row.ops.find(name) != std::string_view::npos &&
                                                 std::ranges::count(op_names(row), name) > 0;
    if (meets) rows_[static_cast<size_t>(row.stop)].push_back(&row);
  }
}

const OpRows& rows_of(const c10::OperatorHandle& op) {
  struct Known {
    c10::OperatorName op;  // a library may go, and another be loaded in its place
    OpRows rows;
  };
  auto& known = base::of_thread<std::unordered_map<const c10::FunctionSchema*, Known>>();
  const auto it = known.find(&op.schema());
  if (it != known.end() && it->second.op == op.operator_name()) return it->second.rows;
  return known.insert_or_assign(&op.schema(), Known{op.operator_name(), OpRows(op)})
      .first->second.rows;
}

}  // namespace tandem::tracing
