#pragma once

#include "runtime/guards/guards.h"
#include "runtime/guards/memory_pattern.h"

#include <c10/core/UndefinedTensorImpl.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace tandem::pipeline {

/// The compiles of one function that are under way, and those that failed. Threads that need the
/// same entry wait for the one that makes it; threads that need different entries do not meet.
///
/// No lock is held while guards are compared: they may run the user's guard_on.
class CompileRegistry {
  struct UnderWay;

 public:
  /// The right to compile for one kind of call, until it dies.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(CompileRegistry* registry, std::shared_ptr<UnderWay> record)
        : registry_(registry), record_(std::move(record)) {}
    Ticket(Ticket&& other) noexcept = default;
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket();

    explicit operator bool() const { return record_ != nullptr; }
    /// Of the call, as they are before its trace.
    const runtime::Guards& key() const { return record_->key; }
    /// Calls that this compile would have served get `error` from now on; not so after a forget().
    /// What was closed over when it failed counts: the refusal may come from the memory that
    /// arguments share with it, or with each other.
    void fail(std::exception_ptr error, const detail::Flat& arguments,
              std::span<const at::Tensor> closed_over);

   private:
    CompileRegistry* registry_ = nullptr;
    std::shared_ptr<UnderWay> record_;
  };

  /// A ticket for a compile. It is empty if another thread has just finished a compile for such a
  /// call: look for its entry. `key` are the guards of this call, as they are before a trace.
  Ticket begin(const libtorch::ThreadState& thread, const detail::Flat& arguments,
               runtime::Guards key);

  /// What a compile for such a call failed with, or null.
  std::exception_ptr failure(const libtorch::ThreadState& thread,
                             const detail::Flat& arguments) const;
  /// Every failure, also of what is under way.
  void forget();

 private:
  struct UnderWay {
    runtime::Guards key;
    std::thread::id owner;
    uint64_t generation;
    bool done = false;
  };
  struct Failure {
    runtime::Guards key;
    std::exception_ptr error;
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> closed_over{};
    runtime::MemoryPattern memory{};

    bool concerns(const libtorch::ThreadState& thread, const detail::Flat& arguments) const;
  };

  mutable std::mutex mutex_;
  std::condition_variable finished_;
  std::vector<std::shared_ptr<UnderWay>> under_way_;
  std::vector<std::shared_ptr<const Failure>> failures_;
  std::atomic<bool> has_failures_{false};  // read by every call that runs eagerly
  uint64_t additions_ = 0;                 // to under_way_
  uint64_t generation_ = 0;                // counts forget()
};

}  // namespace tandem::pipeline
