#pragma once

#include "tandem/backend.h"
#include "tandem/decomposition.h"
#include "tandem/export.h"
#include "tandem/stages.h"

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tandem {

/// Whether an entry serves other sizes than the first. automatic: kernels for any size are made
/// when a size changes; always: at once; never: each set of sizes is an entry of its own.
enum class Dynamic { automatic, never, always };
enum class IntegerSizes { checked, inferred, strict };
enum class Mutations { in_graph, epilogue };  // where write-back to arguments happens
enum class OnOverflow { eager, error };       // more than max_entries entries
enum class OnUnsupported { error, eager };  // eager: the whole call runs eagerly, with one warning

/// Progress of a compile; `done` is 0..1 of the whole.
struct Event {
  std::string stage;
  double done = 0;
};

/// A backend by name or by object; of none, the one that is taken if nobody says which.
class TANDEM_API BackendRef {
 public:
  BackendRef();
  BackendRef(const char* name) : ref_(std::string(name)) {}  // NOLINT: a name is a backend
  BackendRef(std::string name) : ref_(std::move(name)) {}    // NOLINT
  template <std::derived_from<Backend> B>
  BackendRef(std::shared_ptr<B> backend)  // NOLINT
      : ref_(std::shared_ptr<Backend>(std::move(backend))) {}

  std::string name() const;
  /// Looks the name up; a UserError lists the known ones.
  std::shared_ptr<Backend> resolve() const;

 private:
  std::variant<std::string, std::shared_ptr<Backend>> ref_;
};

/// A value to guard on: a nullary callable that returns bool, an integer, an enum, a double or a
/// string.
class GuardFn {
 public:
  using Value = std::variant<bool, int64_t, double, std::string>;
  GuardFn() = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, GuardFn> && std::invocable<F&>)
  GuardFn(F fn)  // NOLINT: a callable is a guard
      : fn_([fn = std::move(fn)]() mutable { return to_value(fn()); }) {}

  explicit operator bool() const { return static_cast<bool>(fn_); }
  Value operator()() const { return fn_(); }

 private:
  template <class T>
  static Value to_value(T value) {
    using U = std::remove_cvref_t<T>;
    if constexpr (std::same_as<U, bool>) {
      return value;
    } else if constexpr (std::is_enum_v<U> || std::integral<U>) {
      return static_cast<int64_t>(value);
    } else if constexpr (std::floating_point<U>) {
      return static_cast<double>(value);
    } else {
      static_assert(std::convertible_to<U, std::string>,
                    "guard_on must return bool, an integer, an enum, a double or a string");
      return std::string(std::move(value));
    }
  }
  std::function<Value()> fn_;
};

/// Of Options::verify_every: a function checks itself at the 2nd, 4th, 8th, ... call of an entry,
/// more rarely at each of its sizes, and when its calls change between entries.
inline constexpr int64_t automatic = -1;

/// Every field has a default that works. What is not built yet raises an UnsupportedError when it
/// is set to anything but its default; docs/reference/options.md has the list.
struct Options {
  BackendRef backend{};
  Partitioner partitioner = min_cut;
  Dynamic dynamic = Dynamic::automatic;
  IntegerSizes integer_sizes = IntegerSizes::checked;
  Rounding rounding = Rounding::eager;
  Random random = Random::eager;
  Decompositions decompositions{};  // override the backend's choice, op by op
  Mutations mutations = Mutations::in_graph;
  std::optional<double> memory_budget{};
  std::optional<int64_t> peak_limit_bytes{};
  int64_t max_entries = 16;
  OnOverflow on_overflow = OnOverflow::eager;
  OnUnsupported on_unsupported = OnUnsupported::error;
  bool higher_order = true;
  std::vector<std::shared_ptr<torch::nn::Module>> modules{};
  std::vector<const at::Tensor*> closes_over{};
  GuardFn guard_on{};
  int64_t verify_every = automatic;
  std::string name{};
  std::vector<torch::optim::Optimizer*> optimizers{};
  bool cuda_graphs = false;
  std::filesystem::path cache_dir{}, dump_dir{};
  std::function<bool(const Event&)> on_event{};
};

}  // namespace tandem
