#include "ir/ivalue.h"

#include "base/error.h"
#include "ir/schema_kind.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <optional>

namespace tandem::ir {
namespace {

using ValueOfRef = c10::function_ref<ValueId(const at::Tensor&)>;
using TensorOfRef = c10::function_ref<at::Tensor(ValueId)>;

[[noreturn]] void raise_unsupported(const c10::IValue& value, const c10::Type& type) {
  TANDEM_UNSUPPORTED("trace", "an argument of type ", type.str(), " with a value of kind ",
                     value.tagKind(), " cannot be part of a graph");
}

/// A size that libtorch hands out as an integer or as a SymInt that holds one.
Size to_size(const c10::IValue& value, const c10::Type& type) {
  if (value.isInt()) return value.toInt();
  if (value.isSymInt()) {
    if (auto number = value.toSymInt().maybe_as_int()) return *number;
  }
  raise_unsupported(value, type);
}

double to_double(const c10::IValue& value, const c10::Type& type) {
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isSymFloat() && !value.toSymFloat().is_symbolic())
    return value.toSymFloat().expect_float();
  raise_unsupported(value, type);
}

bool to_bool(const c10::IValue& value, const c10::Type& type) {
  if (value.isBool()) return value.toBool();
  if (value.isSymBool()) {
    if (auto known = value.toSymBool().maybe_as_bool()) return *known;
  }
  raise_unsupported(value, type);
}

Operand scalar_operand(const c10::IValue& value, const c10::Type& type) {
  if (value.isBool() || value.isSymBool()) return to_bool(value, type);
  if (value.isInt() || value.isSymInt()) return to_size(value, type);
  if (value.isDouble() || value.isSymFloat()) return to_double(value, type);
  if (value.isComplexDouble()) {
    auto number = value.toComplexDouble();
    return std::complex<double>(number.real(), number.imag());
  }
  raise_unsupported(value, type);
}

/// A Scalar that libtorch has wrapped as a real tensor, as in `x * 2.0`. Nullopt for any other
/// tensor. Reads memory, not `item()`: during a trace that would be recorded.
std::optional<Operand> number_operand(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
      !tensor.unsafeGetTensorImpl()->has_storage() || !tensor.is_cpu()) {
    return std::nullopt;
  }
  // Untyped: libtorch releases do not all export the typed accessors under one name.
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kBool:
      return *static_cast<const bool*>(data);
    case at::kLong:
      return Size(*static_cast<const int64_t*>(data));
    case at::kDouble:
      return *static_cast<const double*>(data);
    case at::kComplexDouble: {
      auto number = *static_cast<const c10::complex<double>*>(data);
      return std::complex<double>(number.real(), number.imag());
    }
    default:
      return std::nullopt;  // no Scalar is wrapped so: its dtype has to stay
  }
}

Operand value_operand(ValueId id) { return id == kNoValue ? Operand() : Operand(id); }

Operand tensor_list_operand(const c10::IValue& value, const c10::Type& type, ValueOfRef value_of) {
  if (!value.isList()) raise_unsupported(value, type);
  auto elements = value.toListRef();
  Operand::Values ids;
  ids.reserve(elements.size());
  for (const c10::IValue& element : elements) {
    ids.push_back(element.isNone() ? kNoValue : value_of(element.toTensor()));
  }
  return ids;
}

Operand size_list_operand(const c10::IValue& value, const c10::Type& type) {
  Operand::Sizes sizes;
  if (value.isList()) {
    auto elements = value.toListRef();
    sizes.reserve(elements.size());
    for (const c10::IValue& element : elements) sizes.push_back(to_size(element, type));
  } else {
    // A schema's default for a list of known length may be one number.
    sizes.push_back(to_size(value, type));
  }
  return sizes;
}

Operand double_list_operand(const c10::IValue& value, const c10::Type& type) {
  if (!value.isList()) raise_unsupported(value, type);
  std::vector<double> numbers;
  for (const c10::IValue& element : value.toListRef()) numbers.push_back(to_double(element, type));
  return numbers;
}

Operand bool_list_operand(const c10::IValue& value, const c10::Type& type) {
  if (!value.isList()) raise_unsupported(value, type);
  std::vector<bool> flags;
  for (const c10::IValue& element : value.toListRef()) flags.push_back(to_bool(element, type));
  return flags;
}

/// Numbers of one kind only: that is what an operand can hold.
Operand scalar_list_operand(const c10::IValue& value, const c10::Type& type) {
  if (!value.isList()) raise_unsupported(value, type);
  auto elements = value.toListRef();
  auto all = [&](auto is) { return std::all_of(elements.begin(), elements.end(), is); };
  if (all([](const c10::IValue& e) { return e.isInt() || e.isSymInt(); })) {
    return size_list_operand(value, type);
  }
  if (all([](const c10::IValue& e) { return e.isDouble(); }))
    return double_list_operand(value, type);
  if (all([](const c10::IValue& e) { return e.isBool(); })) return bool_list_operand(value, type);
  raise_unsupported(value, type);
}

template <class T>
const T& held(const Operand& operand, SchemaKind kind) {
  const T* data = operand.get_if<T>();
  TANDEM_CHECK(data, "ir", "expected ", describe(kind.kind), ", got an operand of another kind");
  return *data;
}

c10::IValue tensor_list_ivalue(const Operand::Values& ids, bool optional_elements,
                               TensorOfRef tensor_of) {
  if (optional_elements) {
    c10::List<std::optional<at::Tensor>> tensors;
    tensors.reserve(ids.size());
    for (ValueId id : ids) {
      tensors.push_back(id == kNoValue ? std::nullopt : std::optional<at::Tensor>(tensor_of(id)));
    }
    return tensors;
  }
  c10::List<at::Tensor> tensors;
  tensors.reserve(ids.size());
  for (ValueId id : ids) tensors.push_back(id == kNoValue ? at::Tensor() : tensor_of(id));
  return tensors;
}

c10::IValue int_list_ivalue(const Operand::Sizes& sizes) {
  c10::List<int64_t> numbers;
  numbers.reserve(sizes.size());
  for (const Size& size : sizes) numbers.push_back(size.value());
  return numbers;
}

c10::IValue bool_list_ivalue(const std::vector<bool>& flags) {
  c10::List<bool> list;
  list.reserve(flags.size());
  for (bool flag : flags) list.push_back(flag);
  return list;
}

c10::IValue scalar_ivalue(const Operand& operand, SchemaKind kind) {
  if (auto* flag = operand.get_if<bool>()) return *flag;
  if (auto* size = operand.get_if<Size>()) return size->value();
  if (auto* number = operand.get_if<double>()) return *number;
  const auto& number = held<std::complex<double>>(operand, kind);
  return c10::complex<double>(number.real(), number.imag());
}

c10::IValue scalar_list_ivalue(const Operand& operand, SchemaKind kind) {
  c10::List<at::Scalar> list;
  if (auto* sizes = operand.get_if<Operand::Sizes>()) {
    for (const Size& size : *sizes) list.push_back(at::Scalar(size.value()));
  } else if (auto* numbers = operand.get_if<std::vector<double>>()) {
    for (double number : *numbers) list.push_back(at::Scalar(number));
  } else {
    for (bool flag : held<std::vector<bool>>(operand, kind)) list.push_back(at::Scalar(flag));
  }
  return list;
}

c10::IValue generator_ivalue(const Graph& graph, GeneratorRef ref) {
  const auto& table = graph.generators();
  bool bound = ref.index < static_cast<int64_t>(table.size()) &&
               table[static_cast<size_t>(ref.index)].defined();
  TANDEM_REQUIRE(bound, "lower", "generator ", ref.index, " of graph ", graph.name(),
                 " is not bound\n  remedy: call Graph::bind_generator on a graph that was parsed");
  return table[static_cast<size_t>(ref.index)];
}

}  // namespace

Operand to_operand(Graph& graph, const c10::IValue& value, const c10::TypePtr& schema_type,
                   ValueOfRef value_of) {
  if (value.isNone()) return {};
  const c10::Type& type = *schema_type;
  switch (schema_kind(type).kind) {
    case ArgumentKind::Tensor:
      if (!value.isTensor()) raise_unsupported(value, type);
      if (auto number = number_operand(value.toTensor())) return *std::move(number);
      return value_operand(value_of(value.toTensor()));
    case ArgumentKind::TensorList:
      return tensor_list_operand(value, type, value_of);
    case ArgumentKind::Int:
      return to_size(value, type);
    case ArgumentKind::IntList:
      return size_list_operand(value, type);
    case ArgumentKind::Float:
      return to_double(value, type);
    case ArgumentKind::FloatList:
      return double_list_operand(value, type);
    case ArgumentKind::Bool:
      return to_bool(value, type);
    case ArgumentKind::BoolList:
      return bool_list_operand(value, type);
    case ArgumentKind::Scalar:
      return scalar_operand(value, type);
    case ArgumentKind::ScalarList:
      return scalar_list_operand(value, type);
    case ArgumentKind::String:
      return value.toStringRef();
    case ArgumentKind::Dtype:
      return value.toScalarType();
    case ArgumentKind::Layout:
      return value.toLayout();
    case ArgumentKind::MemoryFormat:
      return value.toMemoryFormat();
    case ArgumentKind::Device:
      return value.toDevice();
    case ArgumentKind::Generator: {
      const at::Generator& generator = value.toGenerator();
      return generator.defined() ? Operand(graph.add_generator(generator)) : Operand();
    }
    case ArgumentKind::Other:
      break;
  }
  raise_unsupported(value, type);
}

c10::IValue to_ivalue(const Graph& graph, const Operand& operand, const c10::TypePtr& schema_type,
                      TensorOfRef tensor_of) {
  SchemaKind kind = schema_kind(*schema_type);
  if (operand.is_none()) {
    // An undefined tensor where the schema knows no optional.
    return kind.kind == ArgumentKind::Tensor && !kind.optional ? c10::IValue(at::Tensor())
                                                               : c10::IValue();
  }
  if (auto* id = operand.get_if<ValueId>()) {
    if (kind.kind != ArgumentKind::Tensor) {
      TANDEM_UNSUPPORTED("lower", "a number that is computed at run time cannot be ",
                         describe(kind.kind), " yet");
    }
    return tensor_of(*id);
  }
  switch (kind.kind) {
    case ArgumentKind::Tensor:  // none or a value, see above; else a wrapped number
      return at::native::wrapped_scalar_tensor(scalar_ivalue(operand, kind).toScalar());
    case ArgumentKind::TensorList:
      return tensor_list_ivalue(held<Operand::Values>(operand, kind), kind.optional_elements,
                                tensor_of);
    case ArgumentKind::Int:
      return held<Size>(operand, kind).value();
    case ArgumentKind::IntList:
      return int_list_ivalue(held<Operand::Sizes>(operand, kind));
    case ArgumentKind::Float:
      return held<double>(operand, kind);
    case ArgumentKind::FloatList:
      return held<std::vector<double>>(operand, kind);
    case ArgumentKind::Bool:
      return held<bool>(operand, kind);
    case ArgumentKind::BoolList:
      return bool_list_ivalue(held<std::vector<bool>>(operand, kind));
    case ArgumentKind::Scalar:
      return scalar_ivalue(operand, kind);
    case ArgumentKind::ScalarList:
      return scalar_list_ivalue(operand, kind);
    case ArgumentKind::String:
      return held<std::string>(operand, kind);
    case ArgumentKind::Dtype:
      return static_cast<int64_t>(held<c10::ScalarType>(operand, kind));
    case ArgumentKind::Layout:
      return static_cast<int64_t>(held<c10::Layout>(operand, kind));
    case ArgumentKind::MemoryFormat:
      return static_cast<int64_t>(held<c10::MemoryFormat>(operand, kind));
    case ArgumentKind::Device:
      return held<c10::Device>(operand, kind);
    case ArgumentKind::Generator:
      return generator_ivalue(graph, held<GeneratorRef>(operand, kind));
    case ArgumentKind::Other:
      break;
  }
  TANDEM_CHECK(false, "ir", "expected ", describe(kind.kind), ", got an operand of another kind");
}

}  // namespace tandem::ir
