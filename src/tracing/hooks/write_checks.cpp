#include "tracing/hooks/write_checks.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/memory/shares_memory.h"
#include "ops/metadata/meta_tensor.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace tandem::tracing {
namespace {

bool has_tag(const c10::OperatorHandle& op, at::Tag tag) {
  const auto tags = op.getTags();
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

/// Of the value: what an input says of itself counts from the memory that came in, what views of it
/// say from the memory that they show now.
int64_t offset_of(const at::Tensor& tensor) {
  return at::functionalization::impl::isFunctionalTensor(tensor)
             ? at::functionalization::impl::from_functional_tensor(tensor).storage_offset()
             : tensor.storage_offset();
}

shapes::StridedView place_of(const at::Tensor& tensor) {
  shapes::StridedView place = ops::place_of(tensor);
  place.offset = offset_of(tensor);
  return place;
}

bool is_same_view(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || offset_of(a) != offset_of(b) || a.dtype() != b.dtype())
    return false;
  // Of a dimension with one element the stride means nothing, and a trace may have another.
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

/// What was written lies in new memory in a trace, and views of it say where they lie when they are
/// made again: only then can two of them be compared.
void catch_up(const at::Tensor& tensor) {
  if (is_traced(tensor)) current_value(tensor);
}

/// Where eager's own check is sure, and says so: both are dense, and they share a part.
bool overlaps_in_part(const at::Tensor& written, const at::Tensor& read) {
  if (written.is_same(read) || !written.storage().is_alias_of(read.storage())) return false;
  if (!written.is_non_overlapping_and_dense() || !read.is_non_overlapping_and_dense()) return false;
  return !is_same_view(written, read) && shapes::may_overlap(place_of(written), place_of(read));
}

/// The same for an op that does not even read what it writes, element by element.
bool overlaps(const at::Tensor& written, const at::Tensor& read) {
  if (written.is_same(read) || overlaps_in_part(written, read)) return true;
  return written.storage().is_alias_of(read.storage()) && is_same_view(written, read) &&
         written.is_non_overlapping_and_dense();
}

void require_apart(bool overlap) {
  TORCH_CHECK(!overlap,
              "unsupported operation: some elements of the input tensor and the written-to "
              "tensor refer to a single memory location. Please clone() the tensor before "
              "performing the operation.");
}

void check_overlap(const at::Tensor& written, const BoxedCall& call) {
  for (const c10::IValue& operand : call.operands().slice(1)) {
    if (!operand.isTensor()) continue;
    const at::Tensor& read = operand.toTensor();
    if (!read.defined() || !is_traced(read)) continue;
    catch_up(read);
    require_apart(overlaps_in_part(written, read));
  }
}

bool fills_out(const c10::OperatorHandle& op) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  return !arguments.empty() && arguments.back().is_out();
}

/// What comes of it if an op that does not work element by element writes what it reads.
enum class Effect {
  Raises,        // eager's kernel looks at the memory, and raises
  RaisesInPart,  // only if the two are not the same elements
  Unknown,       // it reads what it has written already: the result depends on the kernel
};

std::optional<Effect> effect_of_overlap(const c10::OperatorHandle& op) {
  struct Row {
    std::string_view ops;  // in place, or with an out argument
    Effect effect;
  };
  static constexpr Row kRows[] = {
      {" cat gather index_add_ index_add index_copy_ index_copy index_put_ index_reduce_ "
       "index_reduce index_select put_ scatter_ scatter scatter_add_ scatter_add scatter_reduce_ "
       "scatter_reduce take ",
       Effect::Raises},
      {" addr_ addr ", Effect::RaisesInPart},
      {" addbmm_ addbmm addmm_ addmm addmv_ addmv baddbmm_ baddbmm bmm linalg_matmul "
       "masked_scatter_ matmul mm mv ",
       Effect::Unknown},
  };
  constexpr std::string_view kOwner = "aten::";
  const std::string& name = op.schema().name();
  if (!name.starts_with(kOwner) || !(is_in_place(op) || fills_out(op))) return std::nullopt;
  const std::string word = ' ' + name.substr(kOwner.size()) + ' ';
  for (const Row& row : kRows) {
    if (row.ops.find(word) != std::string_view::npos) return row.effect;
  }
  return std::nullopt;
}

void check_operand(const BoxedCall& call, const at::Tensor& written, const at::Tensor& read,
                   Effect effect) {
  catch_up(read);
  if (effect == Effect::Raises) return require_apart(overlaps(written, read));
  if (effect == Effect::RaisesInPart) return require_apart(overlaps_in_part(written, read));
  if (!written.storage().is_alias_of(read.storage()) ||
      !shapes::may_overlap(place_of(written), place_of(read)))
    return;
  TANDEM_UNSUPPORTED("trace", ir::op_text(call.op),
                     " writes into one of its operands, and its kernel would read what it has "
                     "written already",
                     "\n  operand: ", tensor_text(read),
                     "\n  remedy:  write into another tensor, or clone() the operand");
}

/// In a trace, autograd follows a write through a view by taking the view of the base again.
void check_base(const at::Tensor& written) {
  if (!written.is_view()) return;
  const at::Tensor base(written._base());
  if (!is_traced(base) || !(written.requires_grad() || base.requires_grad())) return;
  if (!at::functionalization::impl::unsafeGetFunctionalWrapper(base)->has_metadata_mutation())
    return;
  bool same = false;
  try {
    const auto& info = torch::autograd::impl::get_view_autograd_meta(written)->get_backward_view();
    same = info.has_view_fn() && is_same_view(info.view_fn()(base), written);
  } catch (const c10::Error&) {
    // The base has no such view any more.
  }
  if (same) return;
  TANDEM_UNSUPPORTED("trace",
                     "a view is written whose base was reshaped in place (t_, squeeze_, ...) after "
                     "the view was taken",
                     "\n  value:  ", tensor_text(written),
                     "\n  remedy: take the view again after the base was reshaped, or use the "
                     "out-of-place form");
}

bool will_require_grad(const BoxedCall& call) {
  return std::ranges::any_of(call.operands(), [](const c10::IValue& operand) {
    return operand.isTensor() && operand.toTensor().defined() && operand.toTensor().requires_grad();
  });
}

/// It is no input of the graph, which counts as the number that it holds.
void refuse_wrapped_number(const at::Tensor& written) {
  if (!written.defined() || written.is_meta()) return;
  Recording* recording = current_recording();
  const bool shows_number = is_traced(written) && recording != nullptr && recording->has_inputs() &&
                            recording->inputs().host_memory().is_of_number(written);
  if (!written.unsafeGetTensorImpl()->is_wrapped_number() && !shows_number) return;
  TANDEM_UNSUPPORTED("trace",
                     "a wrapped number (a tensor that gives way to the dtype of others, as a "
                     "number does) is written in place",
                     "\n  remedy: write a tensor that is none (clone()), or use the out-of-place "
                     "form");
}

at::Tensor like_on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor made(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

}  // namespace

bool is_in_place(const c10::OperatorHandle& op) {
  return op.schema().name().ends_with('_') && op.schema().is_mutable();
}

std::any check_write(BoxedCall& call) {
  if (!call.operand(0).isTensor()) return {};
  const at::Tensor& written = call.operand(0).toTensor();
  if (!is_traced(written)) return {};
  if (c10::GradMode::is_enabled()) {
    Inputs& inputs = call.recording->inputs();
    const at::Tensor* real = inputs.real_of(written);
    // If the trace has given the real tensor its history, its first write was looked at before
    // that.
    if (real && real->is_view() && !inputs.histories().is_mirrored(*real))
      torch::autograd::check_inplace(*real, will_require_grad(call));
  }
  check_base(written);
  if (has_tag(call.op, at::Tag::pointwise) || call.op.schema().name() == "aten::copy_") {
    at::assert_no_internal_overlap(written);
    catch_up(written);
    check_overlap(written, call);
  }
  return {};
}

std::any refuse_written_numbers(BoxedCall& call) {
  const std::vector<c10::Argument>& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite())
      for_each_tensor(call.operand(i), refuse_wrapped_number);
  }
  return {};
}

bool minds_overlap(const c10::OperatorHandle& op) { return effect_of_overlap(op).has_value(); }

std::any check_operands(BoxedCall& call) {
  const c10::IValue& operand = fills_out(call.op) ? call.stack.back() : call.operand(0);
  if (!operand.isTensor() || !is_traced(operand.toTensor())) return {};
  const at::Tensor written = operand.toTensor();
  catch_up(written);
  const size_t count = call.operands().size() - 1;
  const auto operands = call.operands().slice(fills_out(call.op) ? 0 : 1, count);
  for (const c10::IValue& one : operands) {
    for_each_tensor(one, [&](const at::Tensor& read) {
      if (read.defined() && is_traced(read))
        check_operand(call, written, read, *effect_of_overlap(call.op));
    });
  }
  return {};
}

std::any check_mask(BoxedCall& call) {
  at::infer_size(call.operand(0).toTensor().sizes(), call.operand(1).toTensor().sizes());
  return {};
}

/// A view that is resized leaves its base behind, which a trace would write with the new sizes.
void refuse_resized_view(const at::Tensor& filled) {
  if (!at::functionalization::impl::isFunctionalTensor(filled) ||
      at::functionalization::impl::unsafeGetFunctionalWrapper(filled)->view_metas().empty()) {
    return;
  }
  TANDEM_UNSUPPORTED("trace", "an op resizes what it fills, and a view or alias shows its memory",
                     "\n  value:  ", tensor_text(filled),
                     "\n  remedy: give it a tensor of the right sizes, or take the result that it "
                     "returns without an out argument");
}

bool fills_out_on_meta(const c10::OperatorHandle& op) {
  return fills_out(op) && op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
}

std::any check_filled(BoxedCall& call) {
  const ops::KernelsOnly kernels_only;
  torch::jit::Stack on_meta;
  for (const c10::IValue& operand : call.operands()) {
    if (operand.isTensor()) {
      on_meta.emplace_back(like_on_meta(operand.toTensor()));
    } else if (operand.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : operand.toTensorVector())
        list.push_back(like_on_meta(tensor));
      on_meta.emplace_back(std::move(list));
    } else {
      on_meta.push_back(operand);
    }
  }
  const at::Tensor filled = on_meta.back().toTensor();
  const std::vector<int64_t> sizes = filled.sizes().vec();
  call.op.callBoxed(on_meta);
  if (filled.sizes() != at::IntArrayRef(sizes)) refuse_resized_view(call.stack.back().toTensor());
  return {};
}

bool writes_list(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name.starts_with("aten::_foreach_") && name.ends_with('_');
}

std::any check_written_once(BoxedCall& call) {
  std::vector<at::Tensor> written = call.operand(0).toTensorVector();
  for (const at::Tensor& tensor : written) catch_up(tensor);
  for (size_t i = 1; i < written.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!is_traced(written[i]) || !is_traced(written[j]) ||
          !written[i].storage().is_alias_of(written[j].storage()) ||
          !shapes::may_overlap(place_of(written[i]), place_of(written[j]))) {
        continue;
      }
      TANDEM_UNSUPPORTED("trace", call.op.schema().name(),
                         " writes the same memory twice: tensors ", j, " and ", i,
                         " of its list overlap", "\n  value:  ", tensor_text(written[i]),
                         "\n  remedy: leave one of them out, or write them one after the other");
    }
  }
  return written;
}

void count_writes(BoxedCall&, std::any& written) {
  for (const at::Tensor& tensor : *std::any_cast<std::vector<at::Tensor>>(&written))
    tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace tandem::tracing
