#pragma once

#include "tandem/ir/graph.h"
#include "tandem/ir/location.h"
#include "tracing/lines/loaded_objects.h"
#include "tracing/lines/stack_walk.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace tandem::tracing {

/// Whether traces of this process note where ops come from (TANDEM_SOURCE_LINES, read by every
/// compile); on until someone sets it.
bool source_lines();
void set_source_lines(bool on);

/// Notes, for each op that the user's code calls, where it was called. For the backward it finds
/// the op of the forward that an autograd node belongs to.
class SourceLines {
 public:
  SourceLines();

  /// The frame of the function that calls the user's: nothing beyond it is looked at. Null: no code
  /// of the user is running.
  void set_outermost(const void* frame) { stack_.set_outermost(frame); }

  /// How the stack was read, for tests.
  const StackWalk& stack() const { return stack_; }

  /// Where the op that is being recorded comes from; not noted outside of ops.
  ir::Location current() const { return ir::Location(current_); }
  /// Where the op that began last was entered.
  const EntryFrame& entry() const { return entry_; }
  /// Of the op that began last, whether or not it is over.
  ir::Location last() const { return ir::Location(last_); }
  /// Of a call that is no op.
  ir::Location line_of_call(const EntryFrame& frame) {
    return on_ ? ir::Location(place_of_call(frame, nullptr)) : ir::Location();
  }
  /// Whether the last op ended by throwing.
  bool last_threw() const { return last_threw_; }

 private:
  friend class OpLine;
  using PlacePtr = std::shared_ptr<const ir::LineSource>;

  /// An op of the forward, and the autograd nodes that it made: those with sequence numbers from
  /// `first` to before `end`.
  struct Op {
    uint64_t first, end;
    PlacePtr place;
  };

  PlacePtr place_of_call(const EntryFrame& frame, PlacePtr otherwise);
  PlacePtr place_in_backward(const EntryFrame& frame);
  PlacePtr forward_place(uint64_t sequence) const;

  const bool on_;
  std::shared_ptr<const LoadedObjects> objects_;
  StackWalk stack_;
  std::unordered_map<uint64_t, PlacePtr> places_;  // by hash of the addresses
  std::vector<Op> forward_;                        // in order
  PlacePtr current_, last_;
  EntryFrame entry_;
  bool last_threw_ = false;
};

/// The scope of one op that the user's code, or autograd on its behalf, calls.
class OpLine {
 public:
  OpLine(SourceLines& lines, const EntryFrame& frame, ir::Phase phase);
  ~OpLine();
  OpLine(const OpLine&) = delete;
  OpLine& operator=(const OpLine&) = delete;

 private:
  SourceLines& lines_;
  std::shared_ptr<const ir::LineSource> outer_;
  const int exceptions_;
  size_t op_ = SIZE_MAX;  // in forward_
};

}  // namespace tandem::tracing
