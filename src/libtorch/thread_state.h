#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

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
/// a member and a line in `fields`.
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

  /// Puts the thread into the grad mode and the autocast of this state: what a program switches by
  /// a call. (Inference mode is switched by a scope only, which puts it back itself.)
  void apply() const;
};

/// A member: its name in records (ir/text/records.h), and the words for it in texts.
template <class Struct, class T>
struct Switch {
  const char* name;
  T Struct::* member;
  const char* words = name;
};
template <class Struct, class T, class... Words>
Switch(const char*, T Struct::*, Words...) -> Switch<Struct, T>;

constexpr auto fields(const AutocastState*) {
  using F = AutocastState;
  return std::tuple(Switch{"cpu", &F::cpu}, Switch{"cuda", &F::cuda},
                    Switch{"cpu_dtype", &F::cpu_dtype}, Switch{"cuda_dtype", &F::cuda_dtype});
}
constexpr auto fields(const ThreadState::DispatchKeys*) {
  using F = ThreadState::DispatchKeys;
  return std::tuple(Switch{"included", &F::included}, Switch{"excluded", &F::excluded});
}

/// All members, those that say most about a difference first.
constexpr auto fields(const ThreadState*) {
  using F = ThreadState;
  return std::tuple(Switch{"grad_mode", &F::grad_mode, "grad mode"},
                    Switch{"keys", &F::keys, "dispatch keys"},
                    Switch{"inference_mode", &F::inference_mode, "inference mode"},
                    Switch{"deterministic", &F::deterministic, "deterministic mode"},
                    Switch{"onednn", &F::onednn, "oneDNN"},
                    Switch{"default_dtype", &F::default_dtype, "default dtype"},
                    Switch{"cpu_autocast_dtype", &F::cpu_autocast_dtype, "CPU autocast dtype"},
                    Switch{"cuda_autocast_dtype", &F::cuda_autocast_dtype, "CUDA autocast dtype"},
                    Switch{"autocast_cache", &F::autocast_cache, "autocast cache"},
                    Switch{"flash_attention", &F::flash_attention, "flash attention"},
                    Switch{"math_attention", &F::math_attention, "math attention"},
                    Switch{"efficient_attention", &F::efficient_attention, "efficient attention"},
                    Switch{"threads", &F::threads, "number of threads"});
}

/// Those that the metadata of an op's results can depend on, packed into one word: asked for at
/// every recorded call.
uint64_t metadata_switches();

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
