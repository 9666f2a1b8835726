#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What a fused kernel computes, as plain loops over plain memory: the language between fusion and
// code generation. No device, no vectors, no threads: those are the code generator's.
//
//   kernel softmax {
//     in x: f32[4096]
//     out y: f32[4096]
//     kept i: 32
//     reduced j: 128
//     inner {
//       v0: f32 = load x[128*i + j]
//       v1: f32 = reduce_max v0
//     }
//     inner {
//       v2: f32 = load x[128*i + j]
//       v3: f32 = sub v2, v1
//       v4: f32 = exp v3
//       v5: f32 = reduce_sum v4
//     }
//     inner {
//       v6: f32 = load x[128*i + j]
//       ...
//       store y[128*i + j], v9
//     }
//   }
//
// Meaning: for every index of the kept dims, in any order and in parallel: run the phases one after
// the other. An `outer` phase runs once, an `inner` phase for every index of the reduced dims, in
// any order. A pointwise kernel has no reduced dims and one outer phase. A column reduction is a
// kernel whose kept dims have the small strides; a full reduction has no kept dims. How such a nest
// is walked (which dim is the vector's, which are shared among threads) is the generator's choice.

namespace tandem::loops {

/// What an instruction does. Operands are `a`, `b`, `c` of the instruction.
///
/// Values have the dtypes bool, u8, i8, i16, i32, i64, f32, f64. The 16-bit floats exist in memory
/// only: a load widens them to f32, a store rounds to nearest even. Arithmetic is IEEE without
/// contraction; integers wrap.
enum class LoopOp : uint8_t {
  // ---- sources ----
  Constant,  // `number`, or `integer` for an integer or bool dtype
  Index,     // i64: the index of loop dim `slot`
  Load,      // access `slot`; a: value of its indirect term or none; b: bool mask or none.
             // Where the mask is false nothing is read and the result is zero.
  // ---- effects: no value ----
  Store,  // access `slot`, a: the value, of the dtype that the buffer's elements compute in
  // ---- i64 in, i64 out ----
  CheckIndex,  // a, if 0 <= a < `integer`; otherwise the kernel fails and the value is 0
  // ---- conversions ----
  Cast,       // a to `dtype`, as C++ does; float to integer truncates, by way of i32, of u8 and i64
              // by way of i64 (beyond: the smallest one there); to bool: a != 0
  RoundBF16,  // f32 -> f32: to the nearest bf16, ties to even
  RoundF16,   // f32 -> f32: to the nearest f16, ties to even
  // ---- one operand ----
  Neg,
  Abs,
  Sign,  // -1, 0, 1; NaN gives 0 as libtorch's does
  Floor,
  Ceil,
  Trunc,
  Round,  // half to even
  Sqrt,
  Rsqrt,       // 1 / sqrt(a), both rounded
  Reciprocal,  // 1 / a
  Exp,
  Exp2,
  Expm1,
  Log,
  Log1p,
  Log2,
  Log10,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Tanh,
  Asinh,
  Acosh,
  Atanh,
  Erf,
  Erfc,
  Lgamma,
  Sigmoid,    // 1 / (1 + exp(-a))
  NormalCdf,  // of the standard normal distribution; good to an absolute error of f32
  Not,        // bool: negation; integer: complement
  IsNan,      // bool
  // ---- two operands of one dtype, and of the result's unless said otherwise ----
  Add,
  Sub,
  Mul,
  Div,        // floats; integers: towards zero
  FloorDiv,   // towards minus infinity, with libtorch's treatment of floats
  Remainder,  // with the sign of the divisor
  Fmod,       // with the sign of the dividend
  Pow,
  Atan2,
  Hypot,
  Copysign,
  Max,   // a NaN wins; of equal operands b, which tells zeros apart
  Min,   // the same
  Fmax,  // a NaN loses; of equal operands a
  Fmin,  // the same
  And,   // bitwise; bool: logical
  Or,
  Xor,
  ShiftLeft,
  ShiftRight,  // arithmetic
  RandomBits,  // i64: random bits number a of the stream b (base/philox.h)
  // ---- comparisons: bool; false with a NaN, except Ne ----
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  // ---- three operands ----
  Select,  // a (bool) ? b : c
  Fma,     // a * b + c, rounded once
  // ---- reductions, in inner phases: one value per index of the kept dims, from the next phase on.
  // ---- `dtype` is the accumulator's, and a's. ----
  ReduceSum,
  ReduceProd,
  ReduceMax,     // a NaN wins
  ReduceMin,     // a NaN wins
  ReduceAny,     // bool
  ReduceAll,     // bool
  ReduceArgmax,  // i64: the b (i64) that came with the largest a; the smallest b among equals; a
                 // NaN is larger than all
  ReduceArgmin,
};

inline constexpr int32_t kNone = -1;

/// One line of the body. Its value is named by its place in `Kernel::body`.
struct Instruction {
  LoopOp op = LoopOp::Constant;
  c10::ScalarType dtype = c10::ScalarType::Float;  // of the value; of a Store: of operand a
  int32_t a = kNone, b = kNone, c = kNone;         // places in the body
  int32_t slot = kNone;                            // Load, Store: the access; Index: the dim
  double number = 0;                               // Constant of a float dtype
  int64_t integer = 0;                             // Constant of another dtype; CheckIndex: bound

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

/// A loop. Another extent is another kernel; whether both run the same code is the generator's
/// business.
struct Dim {
  std::string name;
  int64_t extent = 1;
};

enum class BufferRole : uint8_t {
  In,
  Out,      // written for every index of the nest that stores to it; overlaps no other buffer
  Scratch,  // a row of its own per index of the kept dims: made by the generated code, no argument
};

/// Memory that the kernel reads or writes; an argument of it unless scratch.
struct Buffer {
  std::string name;
  BufferRole role = BufferRole::In;
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t elements = 0;  // that may be touched from the pointer on
};

/// A place in a buffer: offset + sum over dims of stride * index [+ indirect_stride * value a of
/// the load], in elements.
struct Access {
  int32_t buffer = 0;
  int64_t offset = 0;
  std::vector<int64_t> strides{};  // one per dim
  int64_t indirect_stride = 0;     // used if the load has an `a`

  friend bool operator==(const Access&, const Access&) = default;
};

/// A part of the body. What an inner phase computes is visible in that phase only, its reductions
/// from the next phase on; what an outer phase computes, from there to the end. What a phase
/// stores, a later phase (or a later line) may load at the same index.
struct Phase {
  bool inner = false;
  int32_t begin = 0, end = 0;  // of the body

  friend bool operator==(const Phase&, const Phase&) = default;
};

struct Kernel {
  std::string name;
  std::vector<Buffer> buffers{};
  std::vector<Dim> dims{};  // kept first, each group outermost first: the order of smallest strides
  int32_t kept = 0;         // how many of the dims are kept; the rest is reduced
  std::vector<Access> accesses{};
  std::vector<Instruction> body{};  // the phases one after the other, without gaps
  std::vector<Phase> phases{};

  int64_t kept_count() const;     // indices of the kept dims
  int64_t reduced_count() const;  // indices of the reduced dims
};

/// Whether kernels load and store elements of it.
bool is_kernel_dtype(c10::ScalarType dtype);
/// The dtype that elements of a buffer compute in: f32 for the 16-bit floats, else their own.
c10::ScalarType compute_dtype(c10::ScalarType stored);

// ---- facts about ops ----
std::string_view to_string(LoopOp op);
/// How many of a, b, c are operands; those of a Load are optional.
int operand_count(LoopOp op);
bool is_reduction(LoopOp op);
bool is_comparison(LoopOp op);
bool has_value(LoopOp op);

/// The text shown above; parse(print(k)) prints the same again.
std::string print(const Kernel& kernel);
/// A UserError names line, column, what was expected and what came.
Kernel parse_kernel(std::string_view text);

/// Every broken rule of a well-formed kernel, one line each: operands are defined and visible, of
/// the right dtypes; accesses stay inside their buffers. Empty for a good one.
std::vector<std::string> violations(const Kernel& kernel);
/// Throws an InternalError with the kernel's text if there are any.
void verify(const Kernel& kernel);

/// Equal for kernels that differ in names only: compiled once.
std::string structural_key(const Kernel& kernel);

}  // namespace tandem::loops
