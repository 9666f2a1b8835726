#pragma once

#include "shapes/size_samples.h"
#include "tandem/ir/graph.h"
#include "tracing/lines/stack_walk.h"

#include <ATen/core/ivalue.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::tracing {

class SourceLines;

/// Sizes that depend on data, in one run of the function.
///
/// A trace has no data, so it draws a number for each such size and goes on with that. Several runs
/// draw other numbers, and what was recorded in all of them tells which sizes and integers of the
/// graph follow from which drawn ones. That is only right if nobody but libtorch has looked at
/// them: what the user's code reads, this notes.
class DataSizes {
 public:
  /// Which numbers: 0 for those of the graph, from then on others.
  explicit DataSizes(size_t run, SourceLines& lines);

  /// What decides a size: two such calls on the same value give the same one.
  struct Decider {
    std::string_view what{};
    ir::ValueId value = ir::kNoValue;
    friend bool operator==(const Decider&, const Decider&) = default;
  };
  struct Drawn {
    Decider decider;
    int64_t min = 0;
    std::optional<int64_t> max{};
    int64_t value = 0;
  };
  int64_t draw(Decider decider, int64_t min, std::optional<int64_t> max);
  const std::vector<Drawn>& drawn() const { return drawn_; }
  /// Before the first one nothing can depend on it.
  bool any() const { return !drawn_.empty(); }
  /// Some number is at the end of its range, where libtorch may take another way.
  bool at_an_end() const;

  /// Something that the user's code has read, of the sizes of a value.
  struct Read {
    ir::ValueId value = ir::kNoValue;
    ir::Location line{};
  };
  const std::vector<Read>& reads() const { return reads_; }
  /// If the user's code asks.
  void note_read(ir::ValueId value, const EntryFrame& by);
  void note_reads(const std::vector<ir::ValueId>& values, const EntryFrame& by);
  /// By an op that answers with a number.
  void note_read_by_op(ir::ValueId value);
  /// Whether the user's code asks: it is running, outside of ops.
  bool is_asked(const EntryFrame& by) const;
  /// Whether it asks by the op that is under way, and was entered at this frame.
  bool is_asked_by_op(const EntryFrame& by) const;

  /// The user's function, or autograd on its behalf, runs while it lives.
  class UsersCode {
   public:
    explicit UsersCode(DataSizes* sizes) : sizes_(sizes) {
      if (sizes_ != nullptr) ++sizes_->running_;
    }
    ~UsersCode() {
      if (sizes_ != nullptr) --sizes_->running_;
    }
    UsersCode(const UsersCode&) = delete;
    UsersCode& operator=(const UsersCode&) = delete;

   private:
    DataSizes* sizes_;
  };
  /// An op is under way while it lives: what asks for sizes is a part of it.
  class WithinOp {
   public:
    explicit WithinOp(DataSizes* sizes) : sizes_(sizes) {
      if (sizes_ != nullptr) ++sizes_->ops_;
    }
    ~WithinOp() {
      if (sizes_ != nullptr) --sizes_->ops_;
    }
    WithinOp(const WithinOp&) = delete;
    WithinOp& operator=(const WithinOp&) = delete;

   private:
    DataSizes* sizes_;
  };

 private:
  const size_t run_;
  SourceLines& lines_;
  std::vector<Drawn> drawn_;
  std::vector<Read> reads_;
  int running_ = 0, ops_ = 0;
};

/// What the user's code gets for a size: it can compute with it and hand it to ops. Where it wants
/// to know the number, that is noted.
c10::SymInt size_for_user(std::shared_ptr<DataSizes> sizes, ir::ValueId value, int64_t number);
/// Such sizes among the operands become numbers.
void take_numbers(c10::IValue& operand);

}  // namespace tandem::tracing
