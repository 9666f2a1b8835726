#include "ir/text/op_names.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/op_row.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <memory>
#include <mutex>

namespace tandem::ops {
namespace {

bool is_among(const at::Tensor& tensor, const torch::jit::Stack& stack, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().is_same(tensor)) return true;
  }
  return false;
}

/// Gives `out` the metadata that writing a result of this type into it would.
void write_into(const at::Tensor& out, const ir::TensorType& type, bool is_operand) {
  std::vector<int64_t> sizes = type.static_sizes();
  TORCH_CHECK(c10::canCast(type.dtype, out.scalar_type()), "result type ", type.dtype,
              " can't be cast to the desired output type ", out.scalar_type());
  TORCH_CHECK(!is_operand || out.sizes().equals(sizes), "output with shape ", out.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(sizes));
  if (at::native::resize_output(out, sizes))
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, type.static_strides());
}

/// A Meta kernel made of our rule for the op: functional, in-place and out overloads.
void kernel_from_rule(const c10::OperatorHandle& op, c10::DispatchKeySet,
                      torch::jit::Stack* stack) {
  KernelsOnly below_tracing;
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  size_t begin = stack->size() - arguments.size();
  std::vector<MetaArg> args;
  args.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    args.push_back(
        to_meta_arg((*stack)[begin + i], arguments[i].type(), [](const at::Tensor& tensor) {
          TensorMeta meta;
          meta.type = std::make_shared<const ir::TensorType>(type_on(tensor, tensor.device()));
          meta.offset = tensor.storage_offset();
          meta.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
          return meta;
        }));
  }
  auto results = metadata_rule(op)(MetaCall{op, args});
  TORCH_CHECK_NOT_IMPLEMENTED(results.has_value(), ir::op_text(op),
                              ": no metadata for these operands");

  // Written arguments come back as they are; fresh results get their rule's metadata.
  torch::jit::Stack returned;
  size_t first_out = arguments.size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const ir::TensorType& type = *(*results)[i].tensors[0].type;
    const c10::AliasInfo* alias = schema.returns()[i].alias_info();
    if (!alias) {
      returned.emplace_back(to_meta_tensor((*results)[i].tensors[0]));
      continue;
    }
    bool in_place = !arguments.back().is_out();
    const at::Tensor& out = (*stack)[begin + (in_place ? 0 : first_out + i)].toTensor();
    write_into(out, type, in_place || is_among(out, *stack, begin, begin + first_out));
    returned.emplace_back(out);
  }
  torch::jit::drop(*stack, arguments.size());
  for (c10::IValue& value : returned) stack->push_back(std::move(value));
}

/// Asked of the loader: libtorch's own question throws, with a slow backtrace, where no Python was
/// linked.
bool python_is_running() {
  using IsInitialized = int (*)();
  auto* is_initialized = reinterpret_cast<IsInitialized>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return is_initialized && is_initialized() != 0;
}

}  // namespace

void register_missing_meta_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    // With Python come its own Meta kernels, which must not meet ours.
    if (python_is_running()) return;
    // Kept for the life of the process: unregistering at exit would race with libtorch's own
    // teardown.
    static auto* const library = new torch::Library(torch::Library::IMPL, "aten",
                                                    c10::DispatchKey::Meta, __FILE__, __LINE__);
    for (const OpRow& row : op_rows()) {
      if (!(row.facts & Fact::RegisterMeta)) continue;
      std::string_view name = row.op.substr(0, row.op.find('.'));
      std::string_view overload = row.op.size() > name.size() ? row.op.substr(name.size() + 1) : "";
      auto op = c10::Dispatcher::singleton().findSchema(
          {"aten::" + std::string(name), std::string(overload)});
      if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) continue;
      library->impl(std::string(row.op).c_str(),
                    torch::CppFunction::makeFromBoxedFunction<&kernel_from_rule>());
    }
  });
}

}  // namespace tandem::ops
