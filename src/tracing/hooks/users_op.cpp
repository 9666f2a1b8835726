#include "tracing/hooks/users_op.h"

#include "base/error.h"
#include "ir/functional_form.h"
#include "ir/text/op_names.h"
#include "ops/op_table.h"
#include "tracing/hooks/hooks.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/tensors_of.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tandem::tracing {
namespace {

namespace functional = at::functionalization::impl;

bool is_libtorchs(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  for (const char* prefix : {"aten::", "prim::", "prims::", "tandem::", "tandem_functional::"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

/// Autograd would see the ops inside the op's kernel: grad mode, an operand with gradient, and
/// nobody above who has taken over.
bool autograd_looks_in(c10::ArrayRef<c10::IValue> args) {
  if (!c10::GradMode::is_enabled() ||
      c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradCPU)) {
    return false;
  }
  bool any = false;
  for (const c10::IValue& arg : args)
    for_each_tensor(arg, [&](const at::Tensor& tensor) { any = any || tensor.requires_grad(); });
  return any;
}

c10::IValue unwrapped(const c10::IValue& value) {
  const auto inner = [](const at::Tensor& tensor) {
    if (!tensor.defined() || !functional::isFunctionalTensor(tensor)) return tensor;
    functional::sync(tensor);
    return functional::from_functional_tensor(tensor);
  };
  if (value.isTensor()) return inner(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(inner(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(inner(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

c10::IValue wrapped(const c10::IValue& value) {
  const auto outer = [](const at::Tensor& tensor) {
    return tensor.defined() ? functional::to_functional_tensor(tensor) : tensor;
  };
  if (value.isTensor()) return outer(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(outer(tensor));
    return list;
  }
  return value;
}

/// What the op has written becomes the content of the tensor that it was given.
void write(const at::Tensor& tensor, const at::Tensor& data) {
  if (!tensor.defined()) return;
  functional::replace_(tensor, data);
  functional::commit_update(tensor);
  functional::sync(tensor);
  // In eager the ops inside count their writes, if nobody above has switched that off.
  if (!tensor.is_inference() &&
      !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView)) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void write(const c10::IValue& argument, const c10::IValue& data) {
  if (argument.isTensor()) {
    write(argument.toTensor(), data.toTensor());
  } else if (argument.isTensorList()) {
    const std::vector<at::Tensor> tensors = argument.toTensorVector(), news = data.toTensorVector();
    for (size_t i = 0; i < tensors.size(); ++i) write(tensors[i], news[i]);
  }
}

/// The copy that a form writes is not seen by the other operands.
void check_apart(const ir::FunctionalForm& form, c10::ArrayRef<c10::IValue> args) {
  for (size_t i : form.written) {
    for_each_tensor(args[i], [&](const at::Tensor& written) {
      int64_t mentions = 0;
      for (const c10::IValue& arg : args) {
        for_each_tensor(arg, [&](const at::Tensor& other) {
          mentions += other.storage().is_alias_of(written.storage()) ? 1 : 0;
        });
      }
      if (mentions == 1) return;
      TANDEM_UNSUPPORTED("trace", ir::op_text(form.original),
                         " writes an argument that shares memory with another one",
                         "\n  operands: ", operands_text(args),
                         "\n  remedy:   pass a clone() of one of them");
    });
  }
}

/// The operands without their functional wrappers, for a call below functionalization.
torch::jit::Stack unwrapped(const BoxedCall& call) {
  torch::jit::Stack inner;
  for (const c10::IValue& operand : call.operands()) inner.push_back(unwrapped(operand));
  return inner;
}

void call_below(const c10::OperatorHandle& op, torch::jit::Stack& inner) {
  const c10::impl::ExcludeDispatchKeyGuard below(
      c10::DispatchKeySet{c10::DispatchKey::Functionalize} |
      c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  op.callBoxed(inner);
}

}  // namespace

bool has_only_a_body(const c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  for (c10::DispatchKey key :
       {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::Autograd,
        c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA,
        c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA,
        c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::Functionalize}) {
    if (op.hasKernelForDispatchKey(key)) return false;
  }
  return true;
}

bool is_users_composite(const c10::OperatorHandle& op) {
  return !is_libtorchs(op) && has_only_a_body(op);
}

bool run_body(BoxedCall& call) {
  if (ops::info(call.op).marked) return false;
  call.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, call.stack);
  return true;
}

bool call_whole(BoxedCall& call) {
  const ops::OpInfo& info = ops::info(call.op);
  if (!info.marked) return false;
  if (info.writes_arguments) return call_functional_form(call);
  if (!call.op.schema().returns().empty() && autograd_looks_in(call.operands())) {
    TANDEM_UNSUPPORTED(
        "trace", ir::op_text(call.op),
        " is marked as effectful and has an operand that requires grad, "
        "but its gradient is that of the ops in its body",
        "\n  operands: ", operands_text(call.operands()),
        "\n  remedy:   register a kernel for its device and an autograd kernel, or call it "
        "without grad");
  }
  torch::jit::Stack inner = unwrapped(call);
  call_below(call.op, inner);
  call.drop();
  for (const c10::IValue& result : inner) call.stack.push_back(wrapped(result));
  return true;
}

bool writes_users_arguments(const c10::OperatorHandle& op) {
  return !is_libtorchs(op) && ops::info(op).writes_arguments;
}

std::any follow_writes(BoxedCall& call) {
  if (!call.op.hasKernelForDispatchKey(c10::DispatchKey::Functionalize) &&
      ir::functional_form(call.op)) {
    functionalize_op(c10::toString(call.op.operator_name()));
  }
  return {};
}

bool call_functional_form(BoxedCall& call) {
  const ir::FunctionalForm* form = ir::functional_form(call.op);
  if (call.recording == nullptr || form == nullptr) return false;
  const c10::ArrayRef<c10::IValue> args = call.operands();
  check_apart(*form, args);
  if (autograd_looks_in(args)) {
    TANDEM_UNSUPPORTED(
        "trace", ir::op_text(call.op),
        " writes an argument, in grad mode and with an operand that "
        "requires grad, and has no autograd kernel",
        "\n  operands: ", operands_text(args),
        "\n  remedy:   call it without grad (torch::NoGradGuard), or register an autograd kernel "
        "for it");
  }
  torch::jit::Stack inner = unwrapped(call);
  call_below(form->form, inner);
  const size_t first_written = inner.size() - form->written.size();
  for (size_t i = 0; i < form->written.size(); ++i)
    write(args[form->written[i]], inner[first_written + i]);
  torch::jit::Stack results;
  size_t next = 0;
  for (int64_t argument : form->returned) {
    results.push_back(argument < 0 ? wrapped(inner[next++]) : args[static_cast<size_t>(argument)]);
  }
  call.drop();
  for (c10::IValue& result : results) call.stack.push_back(std::move(result));
  return true;
}

}  // namespace tandem::tracing
