#include "ops/metadata/meta_tensor.h"
#include "ops/rules/rules.h"

#include <ATen/ops/softmax.h>

namespace tandem::ops::rules {
namespace {

/// `[B, H, L, E]` over memory in the order `[B, L, H, E]`.
TensorType heads_inside(const TensorType& type) {
  TensorType result =
      contiguous(type, {type.sizes[0], type.sizes[2], type.sizes[1], type.sizes[3]});
  std::swap(result.sizes[1], result.sizes[2]);
  std::swap(result.strides[1], result.strides[2]);
  return result;
}

bool is_batch_of_heads(const TensorType* type) { return type && type->rank() == 4; }

}  // namespace

Results flash_attention_for_cpu(const MetaCall& call) {
  Args args(call);
  const TensorType *query = args.tensor("query"), *key = args.tensor("key"),
                   *value = args.tensor("value");
  bool fits = is_batch_of_heads(query) && is_batch_of_heads(key) && is_batch_of_heads(value) &&
              query->sizes[3] == key->sizes[3] && key->sizes[3] == value->sizes[3];
  if (!fits) return std::nullopt;
  bool narrow = query->dtype == ScalarType::Half || query->dtype == ScalarType::BFloat16;
  TensorType logsumexp = contiguous(*query, {query->sizes[0], query->sizes[2], query->sizes[1]},
                                    narrow ? ScalarType::Float : query->dtype);
  std::swap(logsumexp.sizes[1], logsumexp.sizes[2]);
  std::swap(logsumexp.strides[1], logsumexp.strides[2]);
  return answer(like_preserved(*query), logsumexp);
}

Results flash_attention_for_cpu_backward(const MetaCall& call) {
  Args args(call);
  const TensorType *query = args.tensor("query"), *key = args.tensor("key"),
                   *value = args.tensor("value");
  if (!is_batch_of_heads(query) || !is_batch_of_heads(key) || !is_batch_of_heads(value)) {
    return std::nullopt;
  }
  // The kernel of no gradient gives none.
  if (!args.tensor("grad_out"))
    return answer(undefined_result(), undefined_result(), undefined_result());
  return answer(heads_inside(*query), heads_inside(*key), heads_inside(*value));
}

// Softmax, and zeros for rows that are masked throughout: where(all(self == -inf), 0, softmax).
Results safe_softmax(const MetaCall& call) {
  Args args(call);
  const TensorType* self = args.tensor("self");
  at::Tensor softmax =
      at::softmax(to_meta_tensor(args.meta("self")), args.integer("dim"), args.dtype("dtype"));
  TensorMeta result{std::make_shared<const TensorType>(type_on(softmax, self->device))};
  Sizes rows = self->sizes;
  if (!rows.empty()) rows[static_cast<size_t>(wrapped(args.integer("dim"), self->rank()))] = 1;
  TensorMeta masked{std::make_shared<const TensorType>(contiguous(*self, rows, ScalarType::Bool))};
  return answer(iterated(args, {&masked, &result}, result.type->dtype));
}

}  // namespace tandem::ops::rules
