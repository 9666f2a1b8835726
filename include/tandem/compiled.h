#pragma once

#include "tandem/entry.h"
#include "tandem/export.h"
#include "tandem/flatten.h"
#include "tandem/function.h"

#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

namespace detail {

[[noreturn]] TANDEM_API void throw_empty_handle();
/// `Compiled(2 entries, 14 calls)`.
TANDEM_API std::ostream& print_handle(std::ostream& out, const CompiledFunction* function);

}  // namespace detail

template <class Signature>
class Compiled;

/// A compiled function: call it as the function that it was made from.
///
/// A cheap handle on shared state; copies share entries and counters. Safe to call from several
/// threads. An empty one (default-constructed) raises a UserError when it is used.
template <class R, class... Args>
class Compiled<R(Args...)> {
  static_assert(
      (std::is_same_v<Args, std::decay_t<Args>> && ...) && std::is_same_v<R, std::decay_t<R>>,
      "tandem: Compiled names plain types. Remedy: write Compiled<at::Tensor(at::Tensor)>, without "
      "const and &");

 public:
  Compiled() = default;
  explicit Compiled(std::shared_ptr<detail::CompiledFunction> function)
      : function_(std::move(function)) {}

  R operator()(const Args&... args) const {
    if constexpr (std::is_void_v<R>) {
      function().call(detail::flatten(args...));
    } else {
      return detail::unflatten<R>(function().call(detail::flatten(args...)));
    }
  }

  Stats stats() const { return function().stats(); }
  /// A snapshot; later calls do not change it.
  std::vector<Entry> entries() const { return function().entries(); }

  /// What a call with these arguments would do, without doing it.
  std::string explain(const Args&... args) const
    requires(sizeof...(Args) > 0)
  {
    return function().explain(detail::flatten(args...));
  }
  /// Of a function with arguments the same as `report()`: nothing can be forecast without them.
  std::string explain() const {
    if constexpr (sizeof...(Args) == 0) {
      return function().explain(detail::Flat{});
    } else {
      return function().report();
    }
  }
  /// On the entries that exist.
  std::string report() const { return function().report(); }

  /// Compiles for these arguments now, unless an entry serves them. Nothing runs on their data.
  void prepare(const Args&... args) const { function().prepare(detail::flatten(args...)); }
  /// Forgets every entry, every remembered failure and what the function closes over.
  void reset() const { function().reset(); }
  /// Gives back what its entries keep between runs and nobody uses now.
  void release_cached_memory() const { function().release_cached_memory(); }

  /// False if the handle is empty.
  explicit operator bool() const { return function_ != nullptr; }
  friend bool operator==(const Compiled&, const Compiled&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Compiled& compiled) {
    return detail::print_handle(out, compiled.function_.get());
  }

 private:
  detail::CompiledFunction& function() const {
    if (function_ == nullptr) detail::throw_empty_handle();
    return *function_;
  }

  std::shared_ptr<detail::CompiledFunction> function_;
};

}  // namespace tandem
