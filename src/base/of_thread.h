#pragma once

#include <utility>

namespace tandem::base {

/// What this thread kept for itself is gone, ours and libtorch's: only destructors of globals run.
inline thread_local bool thread_has_ended = false;

/// A value of each thread, made when it is first asked for; `Tag` tells several of one type apart.
///
/// It goes with its thread. In the main thread that is before globals go, and their destructors may
/// still call compiled functions: then there is a new one, which stays.
template <class T, class Tag = T>
T& of_thread() {
  thread_local T* value = nullptr;  // without a destructor: it can be asked at any time
  struct Owner {
    ~Owner() {
      delete std::exchange(value, nullptr);
      thread_has_ended = true;
    }
  };
  if (value == nullptr) [[unlikely]] {
    thread_local const Owner owner;
    static_cast<void>(&owner);
    value = new T();
  }
  return *value;
}

}  // namespace tandem::base
