#pragma once

#include "tandem/ir/graph.h"

#include <cstdint>
#include <vector>

namespace tandem::passes {

/// The tensor that an operand is; kNoValue if it is none.
ir::ValueId tensor_at(const ir::Node& node, size_t operand);

/// Whether it shows elements as numbers of another kind. libtorch refuses it for lazy conjugates
/// and negations.
bool reinterprets(const ir::Node& node);

/// Who else sees the memory of the values of a graph. Decides whether a copy may be left out.
class MemoryFacts {
 public:
  explicit MemoryFacts(const ir::Graph& graph);

  /// Whether `copy`, which has memory of its own, may be `source`, which holds the same elements.
  /// It may not if the caller gets the copy, if anybody writes to either, or if an op addresses it
  /// from the start of its storage. Nor if an op shows it as numbers of another kind, since the
  /// source may be a lazy conjugate. Nor if the backward would then read the caller's memory, where
  /// eager reads a copy that the forward made.
  bool may_leave_out(ir::ValueId copy, ir::ValueId source) const;
  /// Whether the caller gets this memory, or somebody writes to it.
  bool is_pinned(ir::ValueId value) const;
  /// To be told when whoever read `gone` reads `kept` instead.
  void replaced(ir::ValueId gone, ir::ValueId kept);

 private:
  enum Flag : uint8_t {
    kInput = 1,
    kReturned = 2,
    kWritten = 4,
    kReadByBackward = 8,
    kAddressed = 16,      // by as_strided, from the start of its storage
    kScattered = 32,      // copied by slice_scatter and its kin, with its storage offset
    kReinterpreted = 64,  // shown as numbers of another kind
  };

  ir::ValueId root(ir::ValueId value) const;
  uint8_t flags(ir::ValueId value) const;
  /// Whether a conjugation or a change of sign may still be to be done: types do not say.
  bool may_be_lazy(ir::ValueId value) const;

  const ir::Graph& graph_;
  std::vector<uint8_t> flags_;  // by the value that owns the memory
};

/// Whether returning `source` instead of `result` would hand out an input, or one value twice. The
/// caller may write to what it receives.
bool would_merge_outputs(const ir::Value& source, const ir::Value& result);

/// Which values depend on a tangent, be it through metadata only. The backward leaves out what
/// depends on undefined tangents, so a rewrite must not cut such a dependence.
class TangentUse {
 public:
  explicit TangentUse(const ir::Graph& graph);
  bool depends(ir::ValueId value) const;

 private:
  std::vector<bool> depends_;
};

}  // namespace tandem::passes
