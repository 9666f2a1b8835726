#include "ops/metadata/refusals.h"

#include "libtorch/error_texts.h"
#include "ops/metadata/kernel_answers.h"
#include "ops/numbers_fit.h"
#include "ops/op_row.h"
#include "shapes/stable_hash.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <unordered_set>

namespace tandem::ops {
namespace {

/// Zeros of larger operands would make a trace slow.
constexpr int64_t kTriedElements = int64_t{1} << 18;

template <class Look>
bool any_operand(const MetaCall& call, const Look& look) {
  return std::ranges::any_of(call.args, [&](const MetaArg& arg) {
    return std::ranges::any_of(arg.tensors, [&](const TensorMeta& tensor) {
      return tensor.type != nullptr && look(*tensor.type);
    });
  });
}

int64_t elements_of(const ir::TensorType& type) {
  int64_t elements = 1;
  for (int64_t size : type.static_sizes()) elements *= size;
  return elements;
}

bool can_be_tried(const MetaCall& call) {
  const OpInfo& facts = info(call.op);
  const OpRow* row = find_row(call.op);
  if (!facts.removable() || facts.is_view || facts.reads_data || facts.data_dependent_shape)
    return false;
  if (!call.op.operator_name().name.starts_with("aten::")) return false;
  if (row != nullptr && (row->facts & Fact::NeverOnZeros)) return false;
  return !any_operand(call, [](const ir::TensorType& type) {
    return !type.device.is_cpu() || elements_of(type) > kTriedElements;
  });
}

/// Every kernel knows these.
bool is_common(const ir::TensorType& type) {
  return type.dtype == c10::ScalarType::Float || type.dtype == c10::ScalarType::Double ||
         type.dtype == c10::ScalarType::Long;
}

/// Which ops have taken which dtypes in this process: each is tried once.
class Accepted {
 public:
  bool contains(uint64_t key) {
    const std::lock_guard lock(mutex_);
    return keys_.contains(key);
  }
  void insert(uint64_t key) {
    const std::lock_guard lock(mutex_);
    keys_.insert(key);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<uint64_t> keys_;
};

uint64_t key_of(const MetaCall& call, std::span<const MetaResult> results) {
  shapes::StableHash hash;
  hash.add(info(call.op).name_hash);
  const auto add = [&](const MetaArg& arg) {
    for (const TensorMeta& tensor : arg.tensors)
      hash.add(tensor.type == nullptr ? ~uint64_t{0} : static_cast<uint64_t>(tensor.type->dtype));
  };
  for (const MetaArg& arg : call.args) add(arg);
  for (const MetaResult& result : results) add(result);
  return hash.value();
}

bool is_refusal(std::string_view text) {
  return libtorch::meaning_of(text) == libtorch::ErrorMeaning::KernelRefuses;
}

}  // namespace

void raise_refusal(const MetaCall& call, std::span<const MetaResult> results) {
  static auto* const accepted = new Accepted;
  const bool is_empty =
      any_operand(call, [](const ir::TensorType& type) { return elements_of(type) == 0; });
  const bool is_rare =
      any_operand(call, [](const ir::TensorType& type) { return !is_common(type); });
  const bool of_dtypes = !is_empty && numbers_fit(call, results);
  if ((of_dtypes && !is_rare) || !can_be_tried(call)) return;
  const uint64_t key = key_of(call, results);
  if (of_dtypes && accepted->contains(key)) return;
  try {
    try_on_zeros(call);
  } catch (const c10::Error& error) {
    if (is_refusal(error.what_without_backtrace())) throw;
  } catch (const std::runtime_error& error) {  // of a number
    if (is_refusal(error.what())) throw;
  }
  if (of_dtypes) accepted->insert(key);
}

}  // namespace tandem::ops
