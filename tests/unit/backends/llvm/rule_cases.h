#pragma once

#include <span>

namespace tandem::loops {

/// What is promised of a result beside eager's (docs/reference/differences.md).
enum class Promise {
  Bits,  // the same bits
  Zero,  // the same bits, but a zero may have the other sign
  Near,  // at most 2 units in the last place further from float64 than eager
  Sum,   // at most twice eager's distance from float64, and some eps
};

/// The dtypes that a case runs with. Wide: f32 and f64. Signed: all but u8.
enum class Of { All, Signed, Floats, Wide, Integers };

struct RuleCase {
  /// Operands, 8 x 64 if nothing else is said: %x, %y of the dtype; %z the same with NaN and
  /// infinities; %u the same near 1, all positive; %v the same in (0, 1); %m bool; %i i64 and %r
  /// i64[6], both in [0, 8); %s f32[]; %k i64[]. DTYPE stands for the dtype.
  const char* call;
  Of of = Of::All;
  Promise promise = Promise::Bits;
  const char* result = "DTYPE[8, 64]";
};

/// At least one for each row of the rules.
std::span<const RuleCase> rule_cases();

}  // namespace tandem::loops
