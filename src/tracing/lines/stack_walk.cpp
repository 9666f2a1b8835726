#include "tracing/lines/stack_walk.h"

#include <unwind.h>

#include <limits>
#include <mutex>

namespace tandem::tracing {
namespace {

/// More frames than that are met only in a recursion that went wrong.
constexpr size_t kMostFrames = 400;
constexpr int32_t kVaries = -1;

/// Where the return address lies is a matter of the architecture.
#if defined(__x86_64__)
constexpr bool kKnowsFrames = true;
#else
constexpr bool kKnowsFrames = false;
#endif

/// The word below a frame's part of the stack: where the function that it called returns to.
__attribute__((no_sanitize("address"))) uintptr_t return_address_below(uintptr_t stack) {
  return *reinterpret_cast<const uintptr_t*>(stack - sizeof(uintptr_t));
}

}  // namespace

/// What the process keeps from one walk to the next. Return addresses mean something among the
/// objects that they were learnt with, so it holds for those only.
struct StackWalk::Learnt {
  std::mutex mutex;
  std::shared_ptr<const LoadedObjects> objects;
  Steps steps;

  static Learnt& of_process() {
    static auto& learnt = *new Learnt;  // never destroyed: a handle may be called at exit
    return learnt;
  }
};

StackWalk::StackWalk(std::shared_ptr<const LoadedObjects> objects) : objects_(std::move(objects)) {
  if (!objects_) return;
  Learnt& learnt = Learnt::of_process();
  std::lock_guard lock(learnt.mutex);
  if (learnt.objects == objects_) steps_.swap(learnt.steps);
}

StackWalk::~StackWalk() {
  if (!objects_) return;
  Learnt& learnt = Learnt::of_process();
  std::lock_guard lock(learnt.mutex);
  if (learnt.objects == objects_ && learnt.steps.size() >= steps_.size()) return;
  learnt.objects = objects_;
  learnt.steps.swap(steps_);
}

/// One run of libgcc's unwinder.
struct StackWalk::Unwinding {
  StackWalk& walk;
  uintptr_t inner;  // frames inside this one are Tandem's
  bool complete = false;
};

void StackWalk::set_outermost(const void* frame) {
  outermost_ = reinterpret_cast<uintptr_t>(frame);
  end_ = {};
}

StackWalk::Step& StackWalk::step(uintptr_t address) {
  auto [it, is_new] = steps_.emplace(address, Step{});
  if (is_new) {
    const LoadedObject* object = objects_->find(address - 1);
    it->second.users = object != nullptr && !object->platform;
  }
  return it->second;
}

bool StackWalk::walk(Frame at, std::vector<Frame>& frames) {
  if (!kKnowsFrames || end_ == Frame{}) return false;
  const size_t before = frames.size();
  while (at != end_) {
    const auto known = steps_.find(at.address);
    if (known == steps_.end() || known->second.size <= 0 ||
        at.stack + static_cast<uintptr_t>(known->second.size) > end_.stack) {
      frames.resize(before);
      return false;
    }
    frames.push_back(at);
    at.stack += static_cast<uintptr_t>(known->second.size);
    at.address = return_address_below(at.stack);
  }
  return true;
}

int StackWalk::visit(_Unwind_Context* context, void* data) {
  Unwinding& unwinding = *static_cast<Unwinding*>(data);
  StackWalk& self = unwinding.walk;
  ++self.unwound_;
  Frame frame{.stack = _Unwind_GetCFA(context)};
  if (frame.stack <= unwinding.inner) return _URC_NO_REASON;
  if (frame.stack > self.outermost_) {
    // The frame before is the one that set_outermost named.
    if (!self.frames_.empty()) {
      self.end_ = self.frames_.back();
      unwinding.complete = true;
    }
    return _URC_END_OF_STACK;
  }
  int before_instruction = 0;
  frame.address = _Unwind_GetIPInfo(context, &before_instruction);
  if (frame.address == 0 || before_instruction || self.frames_.size() == kMostFrames) {
    return _URC_END_OF_STACK;
  }
  const size_t count = self.frames_.size();
  if (count > 0 && self.walk(frame, self.frames_)) {
    // The frames further out are known. Those that were unwound were not, so they must be learnt.
    self.frames_.push_back(self.end_);
    unwinding.complete = true;
    return _URC_END_OF_STACK;
  }
  self.frames_.push_back(frame);
  return _URC_NO_REASON;
}

void StackWalk::unwind(const EntryFrame& entry) {
  Unwinding unwinding{.walk = *this, .inner = reinterpret_cast<uintptr_t>(entry.frame)};
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        return static_cast<_Unwind_Reason_Code>(visit(context, data));
      },
      &unwinding);
  if (!unwinding.complete) return;
  for (size_t i = 0; i + 1 < frames_.size(); ++i) {
    const uintptr_t size = frames_[i + 1].stack - frames_[i].stack;
    int32_t& known = step(frames_[i].address).size;
    const bool fits = size > 0 && size <= std::numeric_limits<int32_t>::max();
    if (known == 0 && fits) known = static_cast<int32_t>(size);
    // A function that takes stack as it goes, or aligns its frame.
    if (!fits || known != static_cast<int32_t>(size)) known = kVaries;
  }
  frames_.pop_back();  // Tandem's own
}

size_t StackWalk::take(const EntryFrame& entry, std::span<uintptr_t> chain) {
  frames_.clear();
  // The frame of a function that asked for its address: saved pointer, return address, caller.
  const Frame caller{
      .stack = reinterpret_cast<uintptr_t>(entry.frame) + 2 * sizeof(uintptr_t),
      .address = reinterpret_cast<uintptr_t>(entry.return_address),
  };
  if (!walk(caller, frames_)) unwind(entry);
  size_t count = 0;
  for (const Frame& frame : frames_) {
    if (count == chain.size()) break;
    // A return address is that of the next instruction, which may belong to another line.
    if (step(frame.address).users) chain[count++] = frame.address - 1;
  }
  return count;
}

}  // namespace tandem::tracing
