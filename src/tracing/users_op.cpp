#include "tracing/users_op.h"

#include "base/error.h"
#include "ir/functional_form.h"
#include "ir/text/op_names.h"
#include "ops/op_table.h"
#include "tracing/operand_text.h"
#include "tracing/recording.h"
#include "tracing/tensors_of.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace tandem::tracing {
namespace {

namespace functionalization = at::functionalization::impl;

bool is_libtorchs(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  for (const char* prefix : {"aten::", "prim::", "prims::", "tandem::", "tandem_functional::"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

/// No kernel but a body of other ops.
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
    if (!tensor.defined() || !functionalization::isFunctionalTensor(tensor)) return tensor;
    functionalization::sync(tensor);
    return functionalization::from_functional_tensor(tensor);
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
    return tensor.defined() ? functionalization::to_functional_tensor(tensor) : tensor;
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
  functionalization::replace_(tensor, data);
  functionalization::commit_update(tensor);
  functionalization::sync(tensor);
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

/// Kernel on the functionalization key for ops that write arguments.
void functionalize(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const ir::FunctionalForm* form = ir::functional_form(op);
  TORCH_CHECK(current_recording() && form,
              "We only support functionalizing operators whose outputs do not have alias "
              "information: ",
              op.schema());
  const size_t arity = op.schema().arguments().size();
  const auto args = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arity, arity);
  check_apart(*form, args);
  if (autograd_looks_in(args)) {
    TANDEM_UNSUPPORTED(
        "trace", ir::op_text(op),
        " writes an argument, in grad mode and with an operand that "
        "requires grad, and has no autograd kernel",
        "\n  operands: ", operands_text(args),
        "\n  remedy:   call it without grad (torch::NoGradGuard), or register an autograd kernel "
        "for it");
  }
  torch::jit::Stack inner;
  for (const c10::IValue& arg : args) inner.push_back(unwrapped(arg));
  {
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::DispatchKeySet{c10::DispatchKey::Functionalize} |
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    form->form.callBoxed(inner);
  }
  const size_t first_written = inner.size() - form->written.size();
  for (size_t i = 0; i < form->written.size(); ++i)
    write(args[form->written[i]], inner[first_written + i]);
  torch::jit::Stack results;
  size_t next = 0;
  for (int64_t argument : form->returned) {
    results.push_back(argument < 0 ? wrapped(inner[next++]) : args[static_cast<size_t>(argument)]);
  }
  torch::jit::drop(*stack, arity);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

/// What lifting asks about an op of another library, looked up once per thread.
struct UserFacts {
  bool only_a_body = false;
  bool writes = false;
};

const UserFacts& facts_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorName, UserFacts> known;
  auto [it, inserted] = known.try_emplace(op.operator_name());
  if (inserted) it->second = {has_only_a_body(op), ops::info(op).writes_arguments};
  return it->second;
}

}  // namespace

bool is_users_composite(const c10::OperatorHandle& op) {
  return !is_libtorchs(op) && !ops::info(op).marked && facts_of(op).only_a_body;
}

bool is_whole(const c10::OperatorHandle& op) {
  return ops::info(op).marked && facts_of(op).only_a_body;
}

void call_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t arity = op.schema().arguments().size();
  const auto args = c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arity, arity);
  if (ops::info(op).writes_arguments) {
    functionalize(op, {}, stack);
    return;
  }
  if (!op.schema().returns().empty() && autograd_looks_in(args)) {
    TANDEM_UNSUPPORTED(
        "trace", ir::op_text(op),
        " is marked as effectful and has an operand that requires grad, "
        "but its gradient is that of the ops in its body",
        "\n  operands: ", operands_text(args),
        "\n  remedy:   register a kernel for its device and an autograd kernel, or call it "
        "without grad");
  }
  torch::jit::Stack inner;
  for (const c10::IValue& arg : args) inner.push_back(unwrapped(arg));
  {
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::DispatchKeySet{c10::DispatchKey::Functionalize} |
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    op.callBoxed(inner);
  }
  torch::jit::drop(*stack, arity);
  for (const c10::IValue& result : inner) stack->push_back(wrapped(result));
}

void follow_writes(const c10::OperatorHandle& op) {
  if (is_libtorchs(op) || !facts_of(op).writes) return;
  static auto* const mutex = new std::mutex;
  static auto* const kept =
      new std::unordered_map<c10::OperatorName, std::unique_ptr<torch::Library>>;
  const std::lock_guard lock(*mutex);
  if (kept->contains(op.operator_name()) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::Functionalize) || !ir::functional_form(op)) {
    return;
  }
  const std::string& name = op.operator_name().name;
  const size_t colons = name.find("::");
  std::string key = name.substr(colons + 2);
  if (!op.operator_name().overload_name.empty()) key += "." + op.operator_name().overload_name;
  auto library =
      std::make_unique<torch::Library>(torch::Library::IMPL, name.substr(0, colons),
                                       c10::DispatchKey::Functionalize, __FILE__, __LINE__);
  library->impl(key.c_str(), torch::CppFunction::makeFromBoxedFunction<&functionalize>());
  kept->emplace(op.operator_name(), std::move(library));
}

}  // namespace tandem::tracing
