#pragma once

#include <memory>

namespace tandem::base {

/// A list, or several, that few of its owners ever fill: until then it takes the room of a pointer.
template <class T>
class Seldom {
 public:
  /// An empty one where nothing was made.
  const T& operator*() const { return made_ ? *made_ : empty(); }
  const T* operator->() const { return &**this; }
  /// To be filled.
  T& make() {
    if (!made_) made_ = std::make_unique<T>();
    return *made_;
  }
  void reset() { made_.reset(); }

 private:
  static const T& empty() {
    static const T none{};
    return none;
  }
  std::unique_ptr<T> made_;
};

}  // namespace tandem::base
