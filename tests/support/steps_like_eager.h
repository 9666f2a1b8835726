#pragma once

#include "support/same_bits.h"
#include "support/wide_run.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::test {

/// Where bits are promised, all steps together end with the same ones. Rounding grows from step to
/// step, until it is luck which of two runs is nearer to float64: where bits are not promised, each
/// step begins where eager's begins, and is judged by itself.
///
/// `eager` and `compiled` run the steps [begin, end) and return what is compared; `take_over` gives
/// the compiled side eager's state.
template <class TakeOver, class Eager, class Compiled, class Compare>
void expect_steps_like_eager(int steps, const TakeOver& take_over, const Eager& eager,
                             const Compiled& compiled, const Compare& compare) {
  const int stride = backend_rounds() ? 1 : steps;
  for (int begin = 0; begin < steps; begin += stride) {
    SCOPED_TRACE("from step " + std::to_string(begin));
    if (begin > 0) take_over();
    WideRun wide_run;
    const auto expected = [&] {
      const WideRun::Scope scope(wide_run);
      return eager(begin, begin + stride);
    }();
    compare(expected, compiled(begin, begin + stride));
  }
}

}  // namespace tandem::test
