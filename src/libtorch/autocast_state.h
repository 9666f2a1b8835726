#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <compare>

namespace tandem::libtorch {

/// Which devices autocast is on for in a thread, and what it casts to there.
struct AutocastState {
  bool cpu = false, cuda = false;
  // Of a device that it is off for: left at these values.
  c10::ScalarType cpu_dtype = c10::ScalarType::Undefined;
  c10::ScalarType cuda_dtype = c10::ScalarType::Undefined;

  static AutocastState now();
  bool any() const { return cpu || cuda; }
  friend auto operator<=>(const AutocastState&, const AutocastState&) = default;
};

/// Puts a thread into a state for a scope. Casts of weights are not cached meanwhile.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastState before_;
  c10::ScalarType cpu_dtype_, cuda_dtype_;
  bool cache_;
};

}  // namespace tandem::libtorch
