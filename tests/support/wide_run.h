#pragma once

#include "support/same_bits.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <optional>
#include <string>

namespace tandem::test {

/// The judge of rounding: an eager run of which every op is done once more in float64, with the
/// same draws, the same integers and the same decisions.
///
/// Beside the memory of each floating tensor lies the same in float64, and once more in float32. An
/// op that the run makes is done on those too: forward, backward, in place and through views alike.
/// The run itself is not changed by a bit. What float64 rounds has no wider judge: how far rounding
/// carries is then read off the run in float32 and scaled down by the ratio of the eps.
///
/// While it lives, same_bits() on this thread asks it about tensors of the run.
class WideRun : public RoundingJudge {
 public:
  WideRun();
  ~WideRun() override;
  WideRun(const WideRun&) = delete;
  WideRun& operator=(const WideRun&) = delete;

  /// Ops of this thread belong to the run; on a backend that promises bits, only if `always`.
  class Scope {
   public:
    explicit Scope(WideRun& run, bool always = false);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::optional<c10::impl::IncludeDispatchKeyGuard> include_{};
  };

  /// What the tensor holds in float64; undefined if it is none of the run.
  at::Tensor wide(const at::Tensor& tensor) const;
  /// The same in float32.
  at::Tensor narrow(const at::Tensor& tensor) const;

  /// Empty if `compiled` is within the bounds; otherwise distances and bound. The largest
  /// value is that of all that ops of the run have given: a sum of zero may come from large
  /// numbers.
  std::optional<std::string> beyond(const at::Tensor& eager,
                                    const at::Tensor& compiled) const override;

  /// The largest number that an op of the run has given, and the coarsest eps.
  double largest() const;
  double eps() const;

  struct Memory;

 private:
  std::unique_ptr<Memory> memory_;
  const RoundingJudge* before_;
};

}  // namespace tandem::test
