#pragma once

#include "ops/metadata/metadata.h"
#include "ops/op_table.h"

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

/// What metadata rules are made of. A rule that meets a call it does not understand, or that eager
/// would refuse, returns nullopt: a kernel then answers, or raises eager's own error.
namespace tandem::ops::rules {

using Results = std::optional<std::vector<MetaResult>>;
using Sizes = std::vector<ir::Size>;
using c10::MemoryFormat;
using c10::ScalarType;
using ir::TensorType;

/// Arguments by position or by schema name.
class Args {
 public:
  struct Key {
    Key(int position) : position(position) {}  // NOLINT: both are ways to name an argument
    Key(const char* name) : name(name) {}      // NOLINT
    int position = -1;
    std::string_view name{};
  };

  explicit Args(const MetaCall& call) : call_(call) {}

  bool none(Key key) const;  // absent, or an undefined tensor
  /// Null type if absent.
  const TensorMeta& meta(Key key) const;
  /// Null if absent.
  const TensorType* tensor(Key key) const { return meta(key).type.get(); }
  const std::vector<TensorMeta>& tensors(Key key) const;
  int64_t integer(Key key) const;
  bool flag(Key key) const;
  std::vector<int64_t> integers(Key key) const;  // empty if absent
  std::optional<ScalarType> dtype(Key key) const;
  std::string text(Key key) const;
  const c10::IValue& value(Key key) const;
  c10::Device device() const;
  const MetaCall& call() const { return call_; }

 private:
  const MetaArg& arg(Key key) const;
  const MetaCall& call_;
};

// ---- results ----
MetaResult tensor_result(TensorType type);
MetaResult undefined_result();
MetaResult list_result(std::vector<TensorType> types);

template <class... Types>
Results answer(Types&&... types) {
  std::vector<MetaResult> results;
  results.reserve(sizeof...(types));
  auto add = [&results](auto&& result) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(result)>, MetaResult>) {
      results.push_back(std::forward<decltype(result)>(result));
    } else {
      results.push_back(tensor_result(std::forward<decltype(result)>(result)));
    }
  };
  (add(std::forward<Types>(types)), ...);
  return results;
}

// ---- layouts ----
/// channels_last(3d) if the strides look like it, else contiguous: what eager calls the suggested
/// format.
MemoryFormat suggested_format(const TensorType& type);
/// The format in which nothing lies between the elements, if there is one. Kernels for dense data
/// ask for it; unlike in the suggested format, the strides of dimensions of size 1 do not count.
std::optional<MemoryFormat> dense_format(const TensorType& type);
/// Of this format, which falls back to contiguous where the rank does not fit.
TensorType with_sizes(const TensorType& like, Sizes sizes, MemoryFormat format);
TensorType contiguous(const TensorType& like, Sizes sizes);
TensorType contiguous(const TensorType& like, Sizes sizes, ScalarType dtype);
/// Like `type`, contiguous, suggested, or its own strides (dense in the same order if it has gaps).
TensorType like_contiguous(const TensorType& type);
TensorType like_suggested(const TensorType& type);
TensorType like_preserved(const TensorType& type);
/// Batches in row-major order, each matrix with its columns contiguous.
TensorType column_major(const TensorType& like, Sizes sizes);
TensorType with_dtype(TensorType type, ScalarType dtype);

/// A dimension counted from the front; -1 if it is out of range. A 0-dim tensor counts as having
/// one.
int64_t wrapped(int64_t dim, int64_t rank);
/// Equal as constants.
bool same_sizes(const TensorType& a, const TensorType& b);

// ---- TensorIterator ----
/// The result of a pointwise op on these operands in this order: broadcast sizes and eager's
/// strides.
TensorType iterated(const Args& args, std::initializer_list<const TensorMeta*> operands,
                    ScalarType dtype);
/// The operand as a CPU kernel sees it that computes in this dtype: converted, which also closes
/// gaps.
TensorMeta converted(const TensorMeta& operand, ScalarType dtype);
/// The dtype that eager promotes these operands to.
ScalarType promoted(std::initializer_list<const TensorMeta*> operands);
ScalarType promoted(const TensorMeta& tensor, const c10::IValue& number);

}  // namespace tandem::ops::rules
