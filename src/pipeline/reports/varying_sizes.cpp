#include "pipeline/reports/varying_sizes.h"

#include "base/error.h"
#include "runtime/guards/sizes_key.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tandem::pipeline {
namespace {

using ir::Size;

class Symbols {
 public:
  Symbols(std::span<const runtime::EntryState* const> variants,
          std::vector<VaryingSizes::Symbol>& symbols)
      : variants_(variants), symbols_(symbols) {}

  /// What stands for a number that each variant has: `of` gives it.
  template <class Of>
  Size of(Of&& of) {
    std::vector<int64_t> values;
    for (const runtime::EntryState* variant : variants_) values.push_back(of(*variant));
    if (std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end())
      return Size(values.front());
    auto known = std::ranges::find(symbols_, values, &VaryingSizes::Symbol::values);
    if (known == symbols_.end()) {
      symbols_.push_back({base::str("s", symbols_.size()), std::move(values)});
      known = symbols_.end() - 1;
    }
    return Size::symbol(known->name);
  }

  /// The type of a tensor that every variant has; `of` gives it.
  template <class Of>
  ir::TypePtr type(const ir::TypePtr& shown, Of&& of) {
    if (!shown) return shown;
    ir::TensorType type = *shown;
    bool differs = false;
    for (const runtime::EntryState* variant : variants_) {
      const ir::TypePtr other = of(*variant);
      // Results of one rank only; they may differ in anything where a trace depends on numbers.
      if (!other || other->rank() != shown->rank()) return shown;
      // What depends on data has symbols of its own.
      if (!other->is_static()) return shown;
      differs = differs || other->sizes != shown->sizes || other->strides != shown->strides;
    }
    if (!differs) return shown;
    for (size_t i = 0; i < type.sizes.size(); ++i)
      type.sizes[i] = this->of([&](const auto& variant) { return of(variant)->sizes[i].value(); });
    type.strides = strides(*shown, type.sizes, of);
    return std::make_shared<const ir::TensorType>(std::move(type));
  }

 private:
  /// Those of a dense tensor, if each variant is one in the same order of dimensions.
  template <class Of>
  std::vector<Size> strides(const ir::TensorType& shown, const std::vector<Size>& sizes, Of&& of) {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](size_t i) { return shown.strides[i].value(); });
    const auto dense = [&](const std::vector<Size>& of_sizes) {
      std::vector<Size> result(of_sizes.size());
      Size stride = 1;
      for (size_t k = order.size(); k-- > 0;) {
        result[order[k]] = stride;
        if (of_sizes[order[k]].maybe_value() != 0) stride = stride * of_sizes[order[k]];
      }
      return result;
    };
    const bool all_dense = std::ranges::all_of(variants_, [&](const runtime::EntryState* variant) {
      const ir::TypePtr type = of(*variant);
      return type->strides == dense(type->sizes);
    });
    if (all_dense) return dense(sizes);
    std::vector<Size> result(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i)
      result[i] = this->of([&](const auto& variant) { return of(variant)->strides[i].value(); });
    return result;
  }

  std::span<const runtime::EntryState* const> variants_;
  std::vector<VaryingSizes::Symbol>& symbols_;
};

void name_constants(VaryingSizes& varying, Symbols& symbols,
                    std::span<const runtime::EntryState* const> variants,
                    const runtime::EntryState& shown) {
  const auto& constants = shown.argument_constants();
  varying.words.constants.resize(constants.size());
  for (size_t i = 0; i < constants.size(); ++i) {
    if (std::holds_alternative<int64_t>(constants[i])) {
      const Size size = symbols.of([&](const runtime::EntryState& variant) {
        return std::get<int64_t>(variant.argument_constants()[i]);
      });
      if (!size.is_constant()) varying.words.constants[i] = size.to_string();
    } else if (const auto* number = std::get_if<double>(&constants[i])) {
      const bool differs = std::ranges::any_of(variants, [&](const runtime::EntryState* variant) {
        return std::get<double>(variant->argument_constants()[i]) != *number;
      });
      if (differs) varying.words.constants[i] = "a number that varies";
    }
  }
}

}  // namespace

std::vector<std::string> VaryingSizes::legend() const {
  std::vector<std::string> lines;
  for (const Symbol& symbol : symbols) {
    const auto [least, most] = std::ranges::minmax(symbol.values);
    lines.push_back(base::str(symbol.name, ": ", least, " to ", most));
  }
  return lines;
}

VaryingSizes varying_sizes(std::span<const runtime::EntryState* const> variants,
                           const runtime::EntryState& shown) {
  VaryingSizes varying{.signature = shown.signature()};
  if (variants.size() < 2) return varying;
  Symbols symbols(variants, varying.symbols);
  const std::vector<runtime::TensorGuard>& arguments = shown.guards().arguments();
  varying.words.argument_types.resize(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) continue;
    const auto type_of = [&](const runtime::EntryState& variant) {
      return std::make_shared<const ir::TensorType>(variant.guards().arguments()[i].type());
    };
    const ir::TypePtr type = symbols.type(type_of(shown), type_of);
    if (!type->is_static()) varying.words.argument_types[i] = ir::to_string(*type);
  }
  name_constants(varying, symbols, variants, shown);
  ir::Signature& signature = varying.signature;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    ir::TypePtr& type = signature.inputs[i].type;
    type =
        symbols.type(type, [&](const auto& variant) { return variant.signature().inputs[i].type; });
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    ir::TypePtr& type = signature.outputs[i].type;
    type = symbols.type(type,
                        [&](const auto& variant) { return variant.signature().outputs[i].type; });
  }
  return varying;
}

}  // namespace tandem::pipeline
