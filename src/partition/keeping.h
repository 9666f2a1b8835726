#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"
#include "tandem/stages.h"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tandem::partition {

/// Decides how a value is kept for the backward, and so whether it is copied: whose memory it
/// shows, who may write to that before the backward reads it, and whether eager would notice.
class Keeping {
 public:
  /// Of a joint graph, or of a forward that returns what is saved.
  Keeping(const ir::Graph& graph, const ir::Signature& signature);

  /// Of a tensor that does not depend on a tangent. Nothing: it must be a copy, and that would have
  /// other strides.
  std::optional<Saved::How> how(ir::ValueId value) const;
  /// What to keep so that the backward has a value: the value itself, or the input that it is a
  /// view of, if eager keeps that: a hidden view of it would not notice that somebody writes to it.
  ir::ValueId value_to_keep(ir::ValueId value) const {
    return is_kept_by_eager(root(value)) ? memory(value) : value;
  }
  /// The value whose memory it shows: an input, a constant, or what a node has made.
  ir::ValueId memory(ir::ValueId value) const { return static_cast<ir::ValueId>(root(value)); }
  /// A tensor that lives longer than the call in any case, or shows one.
  bool is_lasting(ir::ValueId value) const { return lasting_[root(value)]; }
  /// The recorded backward reads its memory: eager keeps it.
  bool is_read_directly(ir::ValueId value) const { return read_[root(value)]; }
  /// The caller has its memory, before the call or after it.
  bool is_visible(ir::ValueId value) const { return visible_[root(value)]; }
  /// The call writes to its memory, an input's, when the kernels have run.
  bool is_overwritten(ir::ValueId value) const { return written_[root(value)]; }

 private:
  size_t root(ir::ValueId value) const {
    return static_cast<size_t>(roots_[static_cast<size_t>(value)]);
  }
  const ir::InputFacts& facts(int64_t input) const;
  bool is_kept_by_eager(size_t memory) const;
  bool changes_geometry(int64_t input) const;
  Saved::How how_in_memory_of_input(ir::ValueId value) const;
  Saved::How how_in_memory_of_call(ir::ValueId value) const;

  const ir::Graph& graph_;
  const ir::Signature& signature_;
  const std::vector<ir::ValueId> roots_;
  // By value that owns memory.
  std::vector<bool> read_;     // the recorded backward reads it
  std::vector<bool> visible_;  // the caller has it, before the call or after it
  std::vector<bool> lasting_;  // a parameter, or a tensor that the function closes over
  std::vector<bool> parameter_;
  std::vector<bool> written_;                                 // an input that the call writes
  std::unordered_map<ir::ValueId, int64_t> input_;            // inputs by position
  std::unordered_map<ir::ValueId, int64_t> new_data_;         // value -> input that it is for
  std::unordered_map<ir::ValueId, int64_t> memory_new_data_;  // memory -> the same
  std::unordered_map<ir::ValueId, Saved::How> owner_;         // memory -> result or base, if any
  std::unordered_map<ir::ValueId, Saved::How> returned_;      // value -> result or base
};

/// How a call keeps an input as it found it, for gradients that are differentiated in turn.
struct KeptPrimal {
  enum class As : uint8_t {
    Unread,    // no gradient depends on it: a tensor of the same kind will do
    Held,      // an argument that the call does not write
    Lifted,    // a closed-over tensor that the call does not write: the entry owns it
    Copied,    // the call writes it
    Reshaped,  // the call changes its sizes or strides and leaves the data alone
    InGroup,   // a view of memory that the call writes through some input: a copy of that
  };
  As as = As::Unread;
  bool is_read = false;  // some gradient depends on it
};

/// Decides that, one per input. For a call whose gradients nobody differentiates none of it counts.
std::vector<KeptPrimal> kept_primals(const ir::Graph& joint, const ir::Signature& signature);

}  // namespace tandem::partition
