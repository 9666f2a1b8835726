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

/// What running an op costs, seen from the graph.
enum class CostClass : uint8_t {
  Free,
  Pointwise,
  Reduction,
  Copy,
  MatrixProduct,
  Convolution,
  Attention,
  Other
};

/// How an op can be part of a fused kernel. A backend's question; the eager one uses Pointwise for
/// memory reuse.
enum class FusionKind : uint8_t { None, Pointwise, Reduction, View };

/// Everything Tandem knows about one operator overload. What libtorch's schema and tags hold is
/// read from there; the table adds what they do not say or say wrongly.
struct OpInfo {
  // from schema and tags
  bool is_view = false;  // a result shares memory with argument 0 (declared, or an undeclared alias
                         // of the table)
  bool aliases_undeclared =
      false;  // `_unsafe_view` and kin: shares memory though the schema denies it
  bool writes_arguments = false;  // the schema declares a write
  bool hidden_writes = false;     // writes that the schema does not declare
  bool random = false;            // may draw from a generator
  int draw_switch = -1;           // index of the argument that, zero or false, means: draws nothing
  bool has_effect = false;  // must be kept, in order and number, though nobody reads its results
  bool marked = false;      // by mark_effectful: recorded as one call, never looked into
  bool data_dependent_shape = false;
  bool reads_data = false;  // returns a C++ value computed from data: item, equal
  CostClass cost = CostClass::Other;
  FusionKind fusion = FusionKind::None;
  bool cheap = false;     // a view, a pointwise op or its like: computed twice rather than kept
  bool has_rule = false;  // our own metadata rule answers

  /// May be dropped when nobody reads its results (draws and effects may not).
  bool removable() const { return !random && !has_effect && !writes_arguments && !hidden_writes; }
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
/// one.
std::optional<c10::OperatorHandle> inplace_overload(const c10::OperatorHandle& op);

/// Gives libtorch the Meta kernels that its functionalization and composites miss in a process
/// without Python, made of our rules. Does nothing where libtorch has one, where Python is present,
/// or the second time.
void register_missing_meta_kernels();

}  // namespace tandem::ops
