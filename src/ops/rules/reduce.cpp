#include "libtorch/version.h"
#include "ops/rules/rules.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>

namespace tandem::ops::rules {
namespace {

bool is_empty(const TensorType& type) { return type.numel() == ir::Size(0); }

bool is_integer(ScalarType dtype) { return c10::isIntegralType(dtype, /*includeBool=*/true); }

ScalarType long_if_integer(ScalarType dtype) {
  return is_integer(dtype) ? ScalarType::Long : dtype;
}

/// The sizes after reducing these dimensions, all of them if none is named; nullopt if one is out
/// of range or named twice.
std::optional<Sizes> reduced_sizes(const TensorType& type, const std::vector<int64_t>& dims,
                                   bool keep) {
  std::vector<bool> reduce(std::max<size_t>(type.sizes.size(), 1), dims.empty());
  for (int64_t dim : dims) {
    int64_t at = wrapped(dim, type.rank());
    if (at < 0 || reduce[static_cast<size_t>(at)]) return std::nullopt;
    reduce[static_cast<size_t>(at)] = true;
  }
  Sizes sizes;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (!reduce[i]) {
      sizes.push_back(type.sizes[i]);
    } else if (keep) {
      sizes.emplace_back(1);
    }
  }
  return sizes;
}

std::optional<TensorType> variance_type(const Args& args) {
  const TensorType* self = args.tensor("self");
  bool legal = c10::isFloatingType(self->dtype) || c10::isComplexType(self->dtype);
  auto sizes = reduced_sizes(*self, args.integers("dim"), args.flag("keepdim"));
  if (!legal || !sizes) return std::nullopt;
  return contiguous(*self, std::move(*sizes), c10::toRealValueType(self->dtype));
}

}  // namespace

Results reduce_all(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (is_empty(*self) || c10::isComplexType(self->dtype)) return std::nullopt;
  return answer(contiguous(*self, {}));
}

// `prod`: the product of integers is a long.
Results reduce_all_to_long(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor(0);
  ScalarType dtype = long_if_integer(self->dtype);
  if (call.args.size() > 1) dtype = args.dtype("dtype").value_or(dtype);
  return answer(contiguous(*self, {}, dtype));
}

Results matrix_trace(const MetaCall& call) {
  const TensorType* self = Args(call).tensor(0);
  if (self->rank() != 2) return std::nullopt;
  // In eager's words, also where nobody reads the result and no kernel would run.
  const bool known = !at::isReducedFloatingType(self->dtype) && self->dtype != at::kBool;
  TORCH_CHECK_NOT_IMPLEMENTED(libtorch::kTraceOfEveryDtype || known || !self->device.is_cpu(),
                              "\"trace\" not implemented for '", self->dtype, "'");
  return answer(contiguous(*self, {}, long_if_integer(self->dtype)));
}

Results isin_of_a_number(const MetaCall& call) {
  return answer(contiguous(*Args(call).tensor("test_elements"), {}, ScalarType::Bool));
}

Results dot(const MetaCall& call) {
  Args args(call);
  const TensorType *self = args.tensor(0), *other = args.tensor(1);
  bool fits = self->rank() == 1 && same_sizes(*self, *other) && self->rank() == other->rank() &&
              self->dtype == other->dtype;
  if (!fits) return std::nullopt;
  return answer(contiguous(*self, {}));
}

Results variance(const MetaCall& call) {
  auto type = variance_type(Args(call));
  if (!type) return std::nullopt;
  return answer(*type);
}

Results variance_and_mean(const MetaCall& call) {
  Args args(call);
  auto type = variance_type(args);
  if (!type) return std::nullopt;
  return answer(*type, with_dtype(*type, args.tensor("self")->dtype));
}

Results logsumexp(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  auto sizes = reduced_sizes(*self, args.integers("dim"), args.flag("keepdim"));
  if (!sizes) return std::nullopt;
  ScalarType dtype = is_integer(self->dtype) ? c10::get_default_dtype_as_scalartype() : self->dtype;
  return answer(contiguous(*self, std::move(*sizes), dtype));
}

Results nansum(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  auto sizes = reduced_sizes(*self, args.integers("dim"), args.flag("keepdim"));
  if (!sizes || c10::isComplexType(self->dtype)) return std::nullopt;
  ScalarType dtype = args.dtype("dtype").value_or(long_if_integer(self->dtype));
  return answer(contiguous(*self, std::move(*sizes), dtype));
}

Results count_nonzero(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor(0);
  auto sizes = reduced_sizes(*self, args.integers(1), false);
  if (!sizes) return std::nullopt;
  return answer(contiguous(*self, std::move(*sizes), ScalarType::Long));
}

Results values_and_indices(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  int64_t dim = wrapped(args.integer("dim"), self->rank());
  auto sizes = reduced_sizes(*self, {args.integer("dim")}, args.flag("keepdim"));
  if (!sizes || is_empty(*self)) return std::nullopt;
  bool has_k = call.op.schema().argumentIndexWithName("k").has_value();
  if (has_k && self->rank() > 0) {
    int64_t k = args.integer("k");
    if (k < 1 || k > self->sizes[static_cast<size_t>(dim)].value()) return std::nullopt;
  }
  TensorType values = contiguous(*self, std::move(*sizes));
  return answer(values, with_dtype(values, ScalarType::Long));
}

Results cumulative_values_and_indices(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  if (wrapped(args.integer("dim"), self->rank()) < 0) return std::nullopt;
  return answer(like_contiguous(*self), with_dtype(like_contiguous(*self), ScalarType::Long));
}

}  // namespace tandem::ops::rules
