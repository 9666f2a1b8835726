#pragma once

#include "tracing/lines/loaded_objects.h"

#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

struct _Unwind_Context;

namespace tandem::tracing {

/// Where an op was called: the frame of the fallback that libtorch entered, and where it returns
/// to.
struct EntryFrame {
  const void* frame = nullptr;
  const void* return_address = nullptr;
};

/// Finds the call sites of the user's code between an op and the frame that called the user's
/// function.
///
/// libgcc's unwinder needs a tenth of a microsecond or two per frame, too much for every op. A
/// function's frame has the same size every time it stands at the same call, so the walk learns
/// the sizes from the unwinder and goes by them from then on. A walk by learnt sizes counts only if
/// it ends exactly where the unwinder ended; otherwise the unwinder is asked again.
class StackWalk {
 public:
  /// Begins with what earlier walks of the process have learnt, unless another one uses it now.
  explicit StackWalk(std::shared_ptr<const LoadedObjects> objects);
  ~StackWalk();
  StackWalk(const StackWalk&) = delete;
  StackWalk& operator=(const StackWalk&) = delete;

  /// The frame of the function that calls the user's: nothing beyond it is looked at.
  void set_outermost(const void* frame);

  /// Writes the addresses of call sites to `chain`, innermost first, those in libtorch, Tandem and
  /// the language's runtime left out. Returns how many; the outer ones are dropped if it is full.
  size_t take(const EntryFrame& entry, std::span<uintptr_t> chain);

  /// How many frames the unwinder has been asked for.
  int64_t unwound() const { return unwound_; }

 private:
  /// A function under way: where its callee's part of the stack ends, and where it will go on.
  struct Frame {
    uintptr_t stack = 0, address = 0;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  /// What is known of a return address.
  struct Step {
    int32_t size = 0;  // of the frame; 0: not known, negative: it varies
    bool users = false;
  };
  using Steps = ska::flat_hash_map<uintptr_t, Step>;  // by return address
  struct Learnt;
  struct Unwinding;

  Step& step(uintptr_t address);
  /// Frames from `at` on, to the outermost; false if some size is not known or does not fit.
  bool walk(Frame at, std::vector<Frame>& frames);
  void unwind(const EntryFrame& entry);
  static int visit(_Unwind_Context* context, void* data);

  const std::shared_ptr<const LoadedObjects> objects_;
  uintptr_t outermost_ = UINTPTR_MAX;
  Frame end_;  // Tandem's own frame around the user's function, once it has been seen
  Steps steps_;
  std::vector<Frame> frames_;  // of the walk under way; kept for its memory
  int64_t unwound_ = 0;
};

}  // namespace tandem::tracing
