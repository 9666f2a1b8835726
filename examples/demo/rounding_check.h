#pragma once

#include "corpus.h"
#include "trainer.h"
#include "transformer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace demo {

/// Whether the compiled step rounds as little as docs/reference/differences.md promises: loss and
/// every gradient may be twice as far from the same step in float64 as eager's are, and 16 eps of
/// the largest value more.
///
/// Losses of two whole trainings cannot be compared like this. A difference in the last bit grows
/// with every step, until the two are different trainings of the same network. So a step is taken
/// by itself: from the weights that the compiled training has reached, with the same dropout, once
/// in float32 and once in float64, both eagerly.
class RoundingCheck {
 public:
  explicit RoundingCheck(const Shape& shape);

  /// Before the step.
  void expect(const Trainer& trainer, const Batch& batch, int64_t step);
  /// After it.
  void compare(const Trainer& trainer);

  int64_t steps() const { return steps_; }
  /// The largest part of what is allowed that a loss or gradient has used; above 1: too much.
  double worst() const { return worst_; }
  const std::string& worst_of() const { return worst_of_; }

 private:
  /// Loss and gradients, in float64.
  std::vector<at::Tensor> run(Transformer net, const Trainer& trainer, const Batch& batch,
                              int64_t step) const;

  Transformer narrow_, wide_;  // in float32, in float64
  std::vector<at::Tensor> in_narrow_{}, in_wide_{};
  int64_t steps_ = 0;
  double worst_ = 0;
  std::string worst_of_{};
};

}  // namespace demo
