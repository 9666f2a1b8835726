#include "ops/rules/rules.h"

#include <c10/core/DefaultDtype.h>

namespace tandem::ops::rules {
namespace {

bool is_floating(ScalarType dtype) { return c10::isFloatingType(dtype); }

ScalarType float_of(ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/true) ? c10::get_default_dtype_as_scalartype()
                                                          : dtype;
}

/// Two operands, computed in `common` and stored in `dtype`.
Results combined(const Args& args, const TensorMeta& first, const TensorMeta& second,
                 ScalarType common, ScalarType dtype) {
  TensorMeta a = converted(first, common), b = converted(second, common);
  return answer(iterated(args, {&a, &b}, dtype));
}

Results one_operand(const Args& args, const TensorMeta& operand, ScalarType dtype) {
  TensorMeta self = converted(operand, dtype);
  return answer(iterated(args, {&self}, dtype));
}

}  // namespace

Results like_argument(const MetaCall& call, int argument, Like layout) {
  const TensorType* type = Args(call).tensor(argument);
  if (!type) return std::nullopt;
  switch (layout) {
    case Like::Contiguous:
      return answer(like_contiguous(*type));
    case Like::Suggested:
      return answer(like_suggested(*type));
    case Like::Preserved:
      return answer(like_preserved(*type));
  }
  return std::nullopt;
}

Results unary(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  if (self.type->dtype == ScalarType::Bool) return std::nullopt;
  return answer(iterated(args, {&self}, self.type->dtype));
}

Results unary_any(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  return answer(iterated(args, {&self}, self.type->dtype));
}

Results unary_floating(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  if (!is_floating(self.type->dtype)) return std::nullopt;
  return answer(iterated(args, {&self}, self.type->dtype));
}

Results unary_bool(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  return answer(iterated(args, {&self}, ScalarType::Bool));
}

Results unary_to_float(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  return one_operand(args, self, float_of(self.type->dtype));
}

Results absolute(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  if (self.type->dtype == ScalarType::Bool) return std::nullopt;
  return answer(iterated(args, {&self}, c10::toRealValueType(self.type->dtype)));
}

Results angle(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  ScalarType dtype = float_of(c10::toRealValueType(self.type->dtype));
  // Eager computes a complex result of which it copies the real part into a fresh tensor.
  if (c10::isComplexType(self.type->dtype)) {
    return answer(with_dtype(like_contiguous(*self.type), dtype));
  }
  return answer(iterated(args, {&self}, dtype));
}

Results binary(const MetaCall& call) {
  Args args(call);
  const TensorMeta &self = args.meta(0), &other = args.meta(1);
  ScalarType dtype = promoted({&self, &other});
  return combined(args, self, other, dtype, dtype);
}

Results binary_scalar(const MetaCall& call) {
  Args args(call);
  const TensorMeta& self = args.meta(0);
  return one_operand(args, self, promoted(self, args.value(1)));
}

// `rsub` is `sub` with its operands swapped.
Results binary_reversed(const MetaCall& call) {
  Args args(call);
  const TensorMeta &self = args.meta(0), &other = args.meta(1);
  ScalarType dtype = promoted({&self, &other});
  if (self.type->dtype == ScalarType::Bool || other.type->dtype == ScalarType::Bool)
    return std::nullopt;
  return combined(args, other, self, dtype, dtype);
}

Results binary_scalar_first(const MetaCall& call) {
  Args args(call);
  const TensorMeta& other = args.meta(1);
  return one_operand(args, other, promoted(other, args.value(0)));
}

Results binary_bool(const MetaCall& call) {
  Args args(call);
  const TensorMeta &self = args.meta(0), &other = args.meta(1);
  return combined(args, self, other, promoted({&self, &other}), ScalarType::Bool);
}

Results to_complex(const MetaCall& call) {
  Args args(call);
  const TensorMeta &real = args.meta(0), &imaginary = args.meta(1);
  ScalarType dtype = real.type->dtype;
  bool legal =
      dtype == imaginary.type->dtype && (dtype == ScalarType::Float || dtype == ScalarType::Double);
  if (!legal) return std::nullopt;
  return answer(iterated(args, {&real, &imaginary}, c10::toComplexType(dtype)));
}

Results where(const MetaCall& call) {
  Args args(call);
  const TensorMeta &condition = args.meta(0), &self = args.meta(1), &other = args.meta(2);
  ScalarType mask = condition.type->dtype;
  if (mask != ScalarType::Bool && mask != ScalarType::Byte) return std::nullopt;
  ScalarType dtype = promoted({&self, &other});
  TensorMeta a = converted(self, dtype), b = converted(other, dtype);
  return answer(iterated(args, {&condition, &a, &b}, dtype));
}

Results prelu(const MetaCall& call) {
  Args args(call);
  const TensorMeta &self = args.meta(0), &weight = args.meta(1);
  if (self.type->dtype != weight.type->dtype) return std::nullopt;
  return answer(iterated(args, {&self, &weight}, self.type->dtype));
}

Results prelu_backward(const MetaCall& call) {
  Args args(call);
  const TensorMeta &grad = args.meta(0), &self = args.meta(1), &weight = args.meta(2);
  if (self.type->dtype != weight.type->dtype) return std::nullopt;
  TensorType type = iterated(args, {&self, &weight, &grad}, self.type->dtype);
  return answer(type, type);
}

Results frexp(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (!is_floating(self->dtype)) return std::nullopt;
  TensorType mantissa = like_preserved(*self);
  return answer(mantissa, with_dtype(mantissa, ScalarType::Int));
}

// The second result is scratch space that only the CPU kernel needs.
Results log_sigmoid_forward(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (!is_floating(self->dtype)) return std::nullopt;
  if (!self->device.is_cpu()) return answer(like_contiguous(*self), contiguous(*self, {0}));
  return answer(like_contiguous(*self), like_contiguous(*self));
}

}  // namespace tandem::ops::rules
