#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tandem/stages.h"

#include <cstdint>
#include <vector>

namespace tandem::partition {

/// How a value gets to the backward.
enum class Keep : uint8_t {
  AsItIs,       // memory of the call's own, or a result whose version eager checks too
  ByReference,  // an argument that eager keeps as well, with eager's version check
  ForFree,      // the same of a tensor that lives longer than the call in any case
  AsCopy,       // somebody else may write the memory, and eager would not mind
  NotAtAll,     // the same, of memory that a copy would lay out in another way
};

/// Whose memory the values of a joint graph show, and whether eager would notice a write to it
/// between forward and backward.
class MemoryOwners {
 public:
  MemoryOwners(const ir::Graph& joint, const ir::Signature& signature);

  /// Of a tensor that does not depend on a tangent.
  Keep how_to_keep(ir::ValueId value) const;
  /// The recorded backward reads its memory: eager keeps it.
  bool is_read_directly(ir::ValueId value) const { return read_[root(value)]; }
  /// The caller has its memory, before the call or after it.
  bool is_visible(ir::ValueId value) const { return visible_[root(value)]; }

 private:
  size_t root(ir::ValueId value) const {
    return static_cast<size_t>(roots_[static_cast<size_t>(value)]);
  }

  const ir::Graph& joint_;
  const std::vector<ir::ValueId> roots_;
  std::vector<bool> read_;     // by value that owns memory: the recorded backward reads it
  std::vector<bool> visible_;  // the caller has it, before the call or after it
  std::vector<bool> lasting_;  // a parameter, or a tensor that the function closes over
  std::vector<bool> parameter_;
};

}  // namespace tandem::partition
