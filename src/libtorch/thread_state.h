#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::libtorch {

/// Which devices autocast is on for, and what it casts to there: all that a backward asks of the
/// state of a thread.
struct AutocastState {
  bool cpu = false, cuda = false;
  // Of a device that it is off for: left at these values.
  c10::ScalarType cpu_dtype = c10::ScalarType::Undefined;
  c10::ScalarType cuda_dtype = c10::ScalarType::Undefined;

  static AutocastState now();
  bool any() const { return cpu || cuda; }
  friend auto operator<=>(const AutocastState&, const AutocastState&) = default;
};

/// What of a thread, and of the process, decides which ops a function runs and what they compute.
/// Guards compare it, a trace checks that the function leaves it as it was, and what is traced
/// later on behalf of an earlier call runs in the state of that call. A new switch of libtorch's is
/// a member and a line in `for_each_switch`.
struct ThreadState {
  struct DispatchKeys {
    uint64_t included = 0, excluded = 0;
    friend bool operator==(const DispatchKeys&, const DispatchKeys&) = default;
  };

  bool grad_mode = false;
  bool inference_mode = false;
  DispatchKeys keys{};  // autocast on or off, inference mode, dispatch modes
  bool deterministic = false;
  bool onednn = false;
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  c10::ScalarType cpu_autocast_dtype = c10::ScalarType::BFloat16;
  c10::ScalarType cuda_autocast_dtype = c10::ScalarType::Half;
  bool autocast_cache = false;
  bool flash_attention = false, math_attention = false, efficient_attention = false;
  int threads = 0;  // a 1x1 convolution picks its backend by it

  static ThreadState now();
  friend bool operator==(const ThreadState&, const ThreadState&) = default;
  /// Nothing if they are equal, else the first difference with both values.
  std::optional<std::string> difference(const ThreadState& other) const;
  std::string to_string() const;

  AutocastState autocast() const;
  /// The same thread in another autocast state.
  ThreadState with_autocast(const AutocastState& state) const;

  /// Calls visit(words, member) for every member, those that say most about a difference first.
  template <class Visit>
  static void for_each_switch(Visit&& visit) {
    visit("grad mode", &ThreadState::grad_mode);
    visit("dispatch state (autocast, inference mode)", &ThreadState::keys);
    visit("inference mode", &ThreadState::inference_mode);
    visit("deterministic mode", &ThreadState::deterministic);
    visit("oneDNN", &ThreadState::onednn);
    visit("default dtype", &ThreadState::default_dtype);
    visit("CPU autocast dtype", &ThreadState::cpu_autocast_dtype);
    visit("CUDA autocast dtype", &ThreadState::cuda_autocast_dtype);
    visit("autocast cache", &ThreadState::autocast_cache);
    visit("flash attention", &ThreadState::flash_attention);
    visit("math attention", &ThreadState::math_attention);
    visit("efficient attention", &ThreadState::efficient_attention);
    visit("number of threads", &ThreadState::threads);
  }

  /// Puts the thread into the grad mode and the autocast of this state: what a program switches by
  /// a call. (Inference mode is switched by a scope only, which puts it back itself.)
  void apply() const;
};

/// Puts the thread into another grad mode and autocast for a scope.
class ThreadStateScope {
 public:
  explicit ThreadStateScope(const ThreadState& state) : before_(ThreadState::now()) {
    state.apply();
  }
  ~ThreadStateScope() { before_.apply(); }
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;

 private:
  const ThreadState before_;
};

}  // namespace tandem::libtorch
