#pragma once

#include "tandem/function.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tandem::runtime {

class EntryState;

/// For backwards with create_graph: per autograd node of a call and set of defined tangents, the
/// gradients as a compiled function of the call's inputs and tangents. Made when they are first
/// asked for.
class GradientFunctions {
 public:
  using Make = std::function<std::shared_ptr<detail::CompiledFunction>(
      const EntryState& entry, size_t part, const std::vector<bool>& defined)>;

  GradientFunctions() = default;
  explicit GradientFunctions(Make make) : make_(std::move(make)) {}

  /// False where nobody knows the function that was traced: a graph that was lowered by itself.
  bool can_make() const { return static_cast<bool>(make_); }
  std::shared_ptr<detail::CompiledFunction> get(const EntryState& entry, size_t part,
                                                const std::vector<bool>& defined) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<detail::CompiledFunction>& function = functions_[{part, defined}];
    if (!function) function = make_(entry, part, defined);
    return function;
  }

 private:
  Make make_;
  std::mutex mutex_;
  std::map<std::pair<size_t, std::vector<bool>>, std::shared_ptr<detail::CompiledFunction>>
      functions_;
};

}  // namespace tandem::runtime
