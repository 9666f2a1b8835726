#include "ir/schema_kind.h"

namespace tandem::ir {
namespace {

ArgumentKind element_kind(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return ArgumentKind::Tensor;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgumentKind::Int;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return ArgumentKind::Float;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return ArgumentKind::Bool;
    case c10::TypeKind::NumberType:
    case c10::TypeKind::ComplexType:
      return ArgumentKind::Scalar;
    case c10::TypeKind::StringType:
      return ArgumentKind::String;
    case c10::TypeKind::ScalarTypeType:
      return ArgumentKind::Dtype;
    case c10::TypeKind::LayoutType:
      return ArgumentKind::Layout;
    case c10::TypeKind::MemoryFormatType:
      return ArgumentKind::MemoryFormat;
    case c10::TypeKind::DeviceObjType:
      return ArgumentKind::Device;
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::Generator;
    default:
      return ArgumentKind::Other;
  }
}

ArgumentKind list_of(ArgumentKind element) {
  switch (element) {
    case ArgumentKind::Tensor:
      return ArgumentKind::TensorList;
    case ArgumentKind::Int:
      return ArgumentKind::IntList;
    case ArgumentKind::Float:
      return ArgumentKind::FloatList;
    case ArgumentKind::Bool:
      return ArgumentKind::BoolList;
    case ArgumentKind::Scalar:
      return ArgumentKind::ScalarList;
    default:
      return ArgumentKind::Other;
  }
}

}  // namespace

SchemaKind schema_kind(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) {
    SchemaKind inner = schema_kind(*type.expectRef<c10::OptionalType>().getElementType());
    inner.optional = true;
    return inner;
  }
  if (type.kind() != c10::TypeKind::ListType) return {.kind = element_kind(type)};
  const c10::Type* element = type.expectRef<c10::ListType>().getElementType().get();
  bool optional_elements = element->kind() == c10::TypeKind::OptionalType;
  if (optional_elements) element = element->expectRef<c10::OptionalType>().getElementType().get();
  ArgumentKind kind = list_of(element_kind(*element));
  // Absent elements make sense to our operands in lists of tensors only.
  if (optional_elements && kind != ArgumentKind::TensorList) kind = ArgumentKind::Other;
  return {.kind = kind, .optional_elements = optional_elements};
}

std::string_view describe(ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::Tensor:
      return "a tensor";
    case ArgumentKind::TensorList:
      return "a list of tensors";
    case ArgumentKind::Int:
      return "an integer";
    case ArgumentKind::IntList:
      return "a list of integers";
    case ArgumentKind::Float:
      return "a float";
    case ArgumentKind::FloatList:
      return "a list of floats";
    case ArgumentKind::Bool:
      return "true or false";
    case ArgumentKind::BoolList:
      return "a list of bools";
    case ArgumentKind::Scalar:
      return "a number";
    case ArgumentKind::ScalarList:
      return "a list of numbers";
    case ArgumentKind::String:
      return "a string";
    case ArgumentKind::Dtype:
      return "a dtype";
    case ArgumentKind::Layout:
      return "a layout";
    case ArgumentKind::MemoryFormat:
      return "a memory format";
    case ArgumentKind::Device:
      return "a device";
    case ArgumentKind::Generator:
      return "a generator";
    case ArgumentKind::Other:
      break;
  }
  return "an argument that has no text";
}

bool accepts(SchemaKind kind, const Operand& operand) {
  if (operand.is_none()) return kind.optional || kind.kind == ArgumentKind::Tensor;
  bool value = operand.get_if<ValueId>() != nullptr;
  bool number = operand.get_if<bool>() || operand.get_if<Size>() || operand.get_if<double>() ||
                operand.get_if<std::complex<double>>();
  switch (kind.kind) {
    case ArgumentKind::Tensor:
      return value || number;
    case ArgumentKind::TensorList:
      return operand.get_if<Operand::Values>() != nullptr;
    case ArgumentKind::Int:
      return value || operand.get_if<Size>();
    case ArgumentKind::IntList:
      return operand.get_if<Operand::Sizes>() != nullptr;
    case ArgumentKind::Float:
      return value || operand.get_if<double>();
    case ArgumentKind::FloatList:
      return operand.get_if<std::vector<double>>() != nullptr;
    case ArgumentKind::Bool:
      return value || operand.get_if<bool>();
    case ArgumentKind::BoolList:
      return operand.get_if<std::vector<bool>>() != nullptr;
    case ArgumentKind::Scalar:
      return value || number;
    case ArgumentKind::ScalarList:
      return operand.get_if<Operand::Sizes>() || operand.get_if<std::vector<double>>() ||
             operand.get_if<std::vector<bool>>();
    case ArgumentKind::String:
      return operand.get_if<std::string>() != nullptr;
    case ArgumentKind::Dtype:
      return operand.get_if<c10::ScalarType>() != nullptr;
    case ArgumentKind::Layout:
      return operand.get_if<c10::Layout>() != nullptr;
    case ArgumentKind::MemoryFormat:
      return operand.get_if<c10::MemoryFormat>() != nullptr;
    case ArgumentKind::Device:
      return operand.get_if<c10::Device>() != nullptr;
    case ArgumentKind::Generator:
      return operand.get_if<GeneratorRef>() != nullptr;
    case ArgumentKind::Other:
      return false;
  }
  return false;
}

}  // namespace tandem::ir
