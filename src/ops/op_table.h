#pragma once

#include "ops/metadata/metadata.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::ops {

/// What a call computes, seen from the graph. What a backend makes of it, and whether it fuses it,
/// the backend alone knows.
enum class Work : uint8_t {
  Other,
  Pointwise,  // one kernel over one output, element by element, that draws nothing
  Sweep,      // one pass over its operands, or over nothing: plain reductions, lookups, factories
};

/// Everything Tandem knows about one operator overload. What libtorch's schema and tags hold is
/// read from there; the table adds what they do not say or say wrongly.
struct OpInfo {
  uint64_t name_hash = 0;  // the same in every process
  // from schema and tags
  bool is_view = false;  // a result shares memory with argument 0 (declared, or an undeclared alias
                         // of the table)
  bool writes_arguments = false;  // the schema declares a write
  bool hidden_writes = false;     // writes that the schema does not declare
  bool random = false;            // may draw from a generator
  bool has_effect = false;  // must be kept, in order and number, though nobody reads its results
  bool marked = false;      // by mark_effectful: recorded as one call, never looked into
  bool data_dependent_shape = false;
  bool reads_data = false;          // returns a C++ value computed from data: item, equal
  bool raises = false;              // may refuse what its operands hold: an index out of range
  bool raises_on_integers = false;  // refuses a divisor of zero, where the result is integral
  int32_t raises_if = -1;           // the argument that, true, makes it refuse what fails
  Work work = Work::Other;          // of a view: nothing, so Other

  /// Changes the data of an argument, declared or not.
  bool writes() const { return writes_arguments || hidden_writes; }
  /// May be dropped when nobody reads its results (draws and effects may not).
  bool removable() const { return !random && !has_effect && !writes(); }
  /// Happens as often as eager does it, and in eager's order.
  bool must_happen() const { return random || has_effect; }
  /// Two calls with equal operands give equal results.
  bool mergeable() const { return removable() && !data_dependent_shape; }
};

/// Looked up once per overload and kept. A few nanoseconds; any thread.
const OpInfo& info(const c10::OperatorHandle& op);

/// Whether this call draws from a generator: `random` overstates for attention without dropout and
/// the like.
bool draws(const c10::OperatorHandle& op, std::span<const c10::IValue> args);

/// Our own metadata rule: fills the results, or nullopt if it does not apply to this call.
using MetadataRule = std::optional<std::vector<MetaResult>> (*)(const MetaCall& call);
MetadataRule metadata_rule(const c10::OperatorHandle& op);

/// The overload that writes its result into argument 0 (`add.Tensor` -> `add_.Tensor`), if there is
/// one that gives a result of this dtype the same bits.
std::optional<c10::OperatorHandle> inplace_overload(const c10::OperatorHandle& op,
                                                    c10::ScalarType dtype);

/// Gives libtorch the Meta kernels that its functionalization and composites miss in a process
/// without Python, made of our rules. Does nothing where libtorch has one, where Python is present,
/// or the second time.
void register_missing_meta_kernels();

}  // namespace tandem::ops
