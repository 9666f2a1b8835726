#include "backends/llvm_cpu/code/runtime_functions.h"

#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tandem::backends::llvm_cpu {
namespace {

// Generated code is C: no references, no classes, no exceptions.
float half_to_float(uint16_t bits) {
  return static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
}
uint16_t float_to_half(float value) { return c10::Half(value).x; }

// lgamma writes a global, signgam; this form does not.
double lgamma_of(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}
float lgamma_of_float(float x) {
  int sign = 0;
  return lgammaf_r(x, &sign);
}

using Unary = double (*)(double);
using UnaryFloat = float (*)(float);
using Binary = double (*)(double, double);
using BinaryFloat = float (*)(float, float);

template <class Fn>
void* pointer(Fn* fn) {
  return reinterpret_cast<void*>(fn);
}

#define TANDEM_UNARY(name)                                  \
  {#name, pointer(static_cast<Unary>(&::name))}, {          \
    #name "f", pointer(static_cast<UnaryFloat>(&::name##f)) \
  }
#define TANDEM_BINARY(name)                                  \
  {#name, pointer(static_cast<Binary>(&::name))}, {          \
    #name "f", pointer(static_cast<BinaryFloat>(&::name##f)) \
  }

const RuntimeFunction kFunctions[] = {
    TANDEM_UNARY(acos),
    TANDEM_UNARY(acosh),
    TANDEM_UNARY(asin),
    TANDEM_UNARY(asinh),
    TANDEM_UNARY(atan),
    TANDEM_BINARY(atan2),
    TANDEM_UNARY(atanh),
    TANDEM_UNARY(ceil),
    TANDEM_UNARY(cos),
    TANDEM_UNARY(cosh),
    TANDEM_UNARY(erf),
    TANDEM_UNARY(erfc),
    TANDEM_UNARY(expm1),
    TANDEM_UNARY(floor),
    {"fma", pointer(static_cast<double (*)(double, double, double)>(&::fma))},
    {"fmaf", pointer(static_cast<float (*)(float, float, float)>(&::fmaf))},
    TANDEM_BINARY(fmod),
    TANDEM_BINARY(hypot),
    TANDEM_UNARY(log),
    TANDEM_UNARY(log10),
    TANDEM_UNARY(log1p),
    TANDEM_UNARY(log2),
    TANDEM_UNARY(nearbyint),
    TANDEM_BINARY(pow),
    TANDEM_UNARY(sin),
    TANDEM_UNARY(sinh),
    TANDEM_UNARY(tan),
    TANDEM_UNARY(tanh),
    TANDEM_UNARY(trunc),
    {"memcpy", pointer(&::memcpy)},
    {"memmove", pointer(&::memmove)},
    {"memset", pointer(&::memset)},
    {"tandem_float_to_half", pointer(&float_to_half)},
    {"tandem_half_to_float", pointer(&half_to_float)},
    {"tandem_lgamma", pointer(&lgamma_of)},
    {"tandem_lgammaf", pointer(&lgamma_of_float)},
};

#undef TANDEM_UNARY
#undef TANDEM_BINARY

}  // namespace

std::span<const RuntimeFunction> runtime_functions() { return kFunctions; }

}  // namespace tandem::backends::llvm_cpu
