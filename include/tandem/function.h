#pragma once

#include "tandem/entry.h"
#include "tandem/export.h"
#include "tandem/options.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <complex>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

/// The border between the typed handles of compile.h and the library: arguments and results as flat
/// lists.
namespace tandem::detail {

/// A guarded constant: everything in the arguments that is not a tensor. Lengths of vectors and
/// presence of optionals are constants too, so the list also fixes the structure. Enums, dtypes
/// come as int64_t.
using Constant =
    std::variant<bool, int64_t, double, std::complex<double>, std::string, at::Generator>;

/// Arguments or results of a call, flattened in declaration order.
struct Flat {
  c10::SmallVector<at::Tensor, 8> tensors;  // undefined ones are legal values
  c10::SmallVector<Constant, 4> constants;
};

/// The user's function on flat values. Copyable; owns what it closes over.
class FlatFunction {
 public:
  /// What to call each tensor of an argument list in messages: `argument 1.layers[0].bias`.
  using TensorNames = std::vector<std::string> (*)(const Flat& arguments);

  template <std::invocable<const Flat&> F>
    requires(!std::same_as<std::remove_cvref_t<F>, FlatFunction>)
  FlatFunction(F fn, TensorNames names = nullptr)  // NOLINT: such a callable is a flat function
      : fn_(std::move(fn)), names_(names) {}

  Flat operator()(const Flat& arguments) const { return fn_(arguments); }
  /// By position if nobody knows better: `argument 0`, `argument 1`.
  TANDEM_API std::vector<std::string> tensor_names(const Flat& arguments) const;

 private:
  std::function<Flat(const Flat&)> fn_;
  TensorNames names_;
};

/// The state behind `Compiled`: the user's function, options, entries and counters. Thread-safe.
class TANDEM_API CompiledFunction {
 public:
  static std::shared_ptr<CompiledFunction> create(FlatFunction function, Options options);

  virtual ~CompiledFunction() = default;
  virtual Flat call(const Flat& arguments) = 0;
  virtual void prepare(const Flat& arguments) = 0;
  virtual std::string explain(const Flat& arguments) = 0;
  virtual std::string report() const = 0;
  virtual Stats stats() const = 0;
  virtual std::vector<Entry> entries() const = 0;
  virtual void reset() = 0;
  virtual void release_cached_memory() = 0;
};

TANDEM_API Joint export_joint(const FlatFunction& function, const Flat& arguments,
                              const Options& options);

}  // namespace tandem::detail
