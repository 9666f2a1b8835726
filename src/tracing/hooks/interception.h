#pragma once

#include "tracing/recording/boxed_call.h"

#include <c10/util/SmallVector.h>

#include <any>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::tracing {

/// Where a call can be intercepted, in the order in which it comes by.
enum class Stop : uint8_t {
  FirstSight,         // above autograd. What a row calls comes by here again
  Lifting,            // above autograd, once: what a row calls goes on downwards
  Functionalization,  // in place of libtorch's way to follow writes
  BeforeRecording,    // below functionalization. What a row calls is traced like any other op
  Recording,          // the same; what a row calls is no part of the program
};
inline constexpr size_t kStops = 5;

/// One reason why a call of an op does not simply go its way.
struct Interception {
  std::string_view name{};  // of the row
  Stop stop{};
  /// Names with overload, between blanks: `aten::add.Tensor aten::view`. With `fits`: words.
  std::string_view ops{};
  /// Asked once per op and thread; null: the op is one of `ops`.
  bool (*fits)(const c10::OperatorHandle& op) = nullptr;
  /// Does what the call would have done, and says so: no row below sees the call.
  bool (*instead)(BoxedCall& call) = nullptr;
  /// What it returns is handed to `after`.
  std::any (*before)(BoxedCall& call) = nullptr;
  /// When the call is through, from the last row to the first.
  void (*after)(BoxedCall& call, std::any& left) = nullptr;
  std::string_view why{};
};

/// Every row there is, in the order in which a call meets them.
std::span<const Interception> interceptions();

/// The ops that a row names.
std::vector<std::string_view> op_names(const Interception& row);

/// The rows of one op.
class OpRows {
 public:
  explicit OpRows(const c10::OperatorHandle& op);
  std::span<const Interception* const> at(Stop stop) const {
    return rows_[static_cast<size_t>(stop)];
  }

 private:
  std::array<std::vector<const Interception*>, kStops> rows_;
};
const OpRows& rows_of(const c10::OperatorHandle& op);

/// Takes a call past its rows at a stop; `go_on` is what it does if none takes its place.
template <class GoOn>
void pass(std::span<const Interception* const> rows, BoxedCall& call, GoOn&& go_on) {
  c10::SmallVector<std::pair<const Interception*, std::any>, 4> open;
  bool answered = false;
  for (const Interception* row : rows) {
    if (row->instead != nullptr && row->instead(call)) {
      answered = true;
      break;
    }
    std::any left = row->before != nullptr ? row->before(call) : std::any();
    if (row->after != nullptr) open.emplace_back(row, std::move(left));
  }
  if (!answered) go_on(call);
  for (; !open.empty(); open.pop_back()) open.back().first->after(call, open.back().second);
}

}  // namespace tandem::tracing
