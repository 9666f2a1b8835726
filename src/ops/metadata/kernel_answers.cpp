#include "ops/metadata/kernel_answers.h"

#include "base/error.h"
#include "ir/text/op_names.h"
#include "ops/metadata/meta_tensor.h"
#include "ops/op_row.h"
#include "shapes/reach.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

#include <mutex>

namespace tandem::ops {
namespace {

constexpr int64_t kZerosLimitBytes = int64_t{256} << 20;

using TensorFrom = at::Tensor (*)(const TensorMeta&);

/// The tensors of an argument as an IValue that the schema accepts; absent optionals stay absent.
c10::IValue tensor_argument(const MetaArg& arg, const c10::Argument& argument, TensorFrom make) {
  if (arg.kind == MetaArg::Kind::Tensor) {
    const TensorMeta& meta = arg.tensors[0];
    if (!meta.type && argument.type()->kind() == c10::TypeKind::OptionalType) return {};
    return make(meta);
  }
  c10::TypePtr list = argument.type();
  if (auto optional = list->cast<c10::OptionalType>()) list = optional->getElementType();
  c10::TypePtr element = list->expectRef<c10::ListType>().getElementType();
  bool optional_elements = element->kind() == c10::TypeKind::OptionalType;
  c10::impl::GenericList values(element);
  for (const TensorMeta& meta : arg.tensors) {
    values.push_back(!meta.type && optional_elements ? c10::IValue() : c10::IValue(make(meta)));
  }
  return values;
}

/// A tensor comes back with the device that it has in the traced program, not the one it was asked
/// on.
MetaResult to_result(const c10::IValue& value, c10::Device device) {
  MetaResult result;
  auto meta = [&](const c10::IValue& element) {
    TensorMeta tensor_meta;
    if (!element.isTensor() || !element.toTensor().defined()) return tensor_meta;
    const at::Tensor& tensor = element.toTensor();
    tensor_meta.type = std::make_shared<const ir::TensorType>(type_on(tensor, device));
    tensor_meta.offset = tensor.storage_offset();
    tensor_meta.conjugate = tensor.is_conj();
    tensor_meta.negative = tensor.is_neg();
    return tensor_meta;
  };
  if (value.isTensor()) {
    result.kind = MetaResult::Kind::Tensor;
    result.tensors.push_back(meta(value));
  } else if (value.isTensorList()) {
    result.kind = MetaResult::Kind::TensorList;
    for (const c10::IValue& element : value.toListRef()) result.tensors.push_back(meta(element));
  } else {
    result.other = value;
  }
  return result;
}

std::vector<MetaResult> run(const MetaCall& call, torch::jit::Stack stack, c10::Device device) {
  call.op.callBoxed(stack);
  std::vector<MetaResult> results;
  results.reserve(stack.size());
  for (const c10::IValue& value : stack) results.push_back(to_result(value, device));
  return results;
}

int64_t operand_bytes(const MetaCall& call) {
  int64_t bytes = 0;
  for (const MetaArg& arg : call.args) {
    for (const TensorMeta& tensor : arg.tensors) {
      if (!tensor.type) continue;
      const int64_t elements =
          tensor.offset +
          std::max<int64_t>(
              shapes::reach(tensor.type->static_sizes(), tensor.type->static_strides()), 1);
      bytes += elements * static_cast<int64_t>(c10::elementSize(tensor.type->dtype));
    }
  }
  return bytes;
}

/// Keeps the default generator of a device where it was, whatever a kernel draws meanwhile.
class KeepGenerator {
 public:
  explicit KeepGenerator(c10::Device device)
      : generator_(at::globalContext().defaultGenerator(device)) {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeepGenerator() {
    std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeepGenerator(const KeepGenerator&) = delete;
  KeepGenerator& operator=(const KeepGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

[[noreturn]] void refuse(const MetaCall& call, const std::string& why,
                         const char* remedy = "call it outside the compiled function") {
  TANDEM_UNSUPPORTED("trace", ir::op_text(call.op), " has no metadata rule, and ", why,
                     "\n  operands: ", operand_types(call), "\n  remedy:   ", remedy);
}

}  // namespace

std::optional<std::vector<MetaResult>> ask_meta_kernel(const MetaCall& call) {
  const OpInfo& facts = info(call.op);
  if (facts.has_effect && call.op.schema().returns().empty()) return std::vector<MetaResult>{};
  // Any other kernel that answers for Meta is the one that has the effect.
  if (facts.marked && !call.op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  const auto& arguments = call.op.schema().arguments();
  torch::jit::Stack stack;
  stack.reserve(call.args.size());
  for (size_t i = 0; i < call.args.size(); ++i) {
    const MetaArg& arg = call.args[i];
    if (arg.kind != MetaArg::Kind::Other) {
      stack.push_back(tensor_argument(arg, arguments[i], to_meta_tensor));
    } else if (arg.other.isDevice() || (arg.other.isNone() && arguments[i].name() == "device")) {
      stack.emplace_back(c10::Device(c10::DeviceType::Meta));
    } else if (arg.other.isGenerator() || arguments[i].name() == "pin_memory") {
      stack.emplace_back();  // neither exists on the Meta device
    } else {
      stack.push_back(arg.other);
    }
  }
  try {
    return run(call, std::move(stack), result_device(call));
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
}

std::vector<MetaResult> ask_kernel_on_zeros(const MetaCall& call) {
  const OpInfo& facts = info(call.op);
  const OpRow* row = find_row(call.op);
  if (facts.has_effect || facts.writes_arguments) {
    refuse(call, "it is not a pure function that could be tried on zeros",
           "register a Meta kernel for it (TORCH_LIBRARY_IMPL), or call it outside the compiled "
           "function");
  }
  if (row && (row->facts & Fact::NeverOnZeros)) {
    refuse(call, "what its kernel does with zeros says nothing about other data");
  }
  if (int64_t bytes = operand_bytes(call); bytes > kZerosLimitBytes) {
    refuse(call, base::str("its operands are too large to run its kernel on zeros: ", bytes,
                           " bytes, at most ", kZerosLimitBytes));
  }
  return run_on_zeros(call);
}

std::vector<MetaResult> try_on_zeros(const MetaCall& call) {
  c10::Device device = result_device(call);
  std::optional<KeepGenerator> keep_generator;
  if (info(call.op).random) keep_generator.emplace(device);
  const auto& arguments = call.op.schema().arguments();
  torch::jit::Stack stack;
  stack.reserve(call.args.size());
  for (size_t i = 0; i < call.args.size(); ++i) {
    const MetaArg& arg = call.args[i];
    if (arg.kind != MetaArg::Kind::Other) {
      stack.push_back(tensor_argument(arg, arguments[i], to_zeros));
    } else if (arg.other.isGenerator()) {
      stack.emplace_back();  // the default one, which is put back
    } else {
      stack.push_back(arg.other);
    }
  }
  return run(call, std::move(stack), device);
}

std::vector<MetaResult> run_on_zeros(const MetaCall& call) {
  try {
    return try_on_zeros(call);
  } catch (const c10::NotImplementedError&) {
    refuse(call, base::str("libtorch has no kernel for it on ", result_device(call).str()));
  }
}

}  // namespace tandem::ops
