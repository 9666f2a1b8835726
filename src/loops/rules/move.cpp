#include "loops/rules/rule.h"

#include <algorithm>
#include <array>
#include <vector>

// Ops that pick elements or make them of nothing: loads at other places than the result's index,
// under masks, or through an index.

namespace tandem::loops {
namespace {

using c10::ScalarType;

int64_t size_of(const ir::TensorType& type, size_t dim) { return type.sizes[dim].value(); }

std::optional<size_t> dim_at(const Call& call, size_t operand, int64_t rank) {
  const auto dim = call.integer(operand);
  if (!dim.has_value()) return std::nullopt;
  return static_cast<size_t>(*dim < 0 ? *dim + rank : *dim);
}

std::vector<DimIndex> same_dims(const ir::TensorType& type) {
  std::vector<DimIndex> dims(type.sizes.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[i].result_dim = static_cast<int32_t>(i);
  return dims;
}

Val integer(Emitter& e, int64_t value) {
  return e.body.constant(ScalarType::Long, Number::of(value));
}

/// low <= index < high, leaving out what always holds.
Val within(Emitter& e, Val index, int64_t low, int64_t high, int64_t size) {
  Val mask;
  if (low > 0) mask = e.body.compare(LoopOp::Ge, index, integer(e, low));
  if (high < size) {
    const Val below = e.body.compare(LoopOp::Lt, index, integer(e, high));
    mask = mask.defined() ? e.body.binary(LoopOp::And, mask, below) : below;
  }
  return mask;
}

Val both(Emitter& e, Val a, Val b) {
  if (!a.defined()) return b;
  return b.defined() ? e.body.binary(LoopOp::And, a, b) : a;
}

// ---- concatenation ----

constexpr size_t kMostParts = 8;

bool cat_applies(const Call& call) {
  const auto* parts = call.values(0);
  if (parts == nullptr || parts->empty() || parts->size() > kMostParts) return false;
  for (ir::ValueId part : *parts) {
    if (part == ir::kNoValue) return false;
    const ir::TensorType& type = *call.graph().value(part).tensor_type();
    if (type.dtype != call.result().dtype || type.rank() != call.result().rank()) return false;
  }
  return call.integer(1).has_value();
}

Val cat(Emitter& e) {
  const ir::TensorType& out = e.call.result();
  const size_t dim = *dim_at(e.call, 1, out.rank());
  const Val index = e.dim_index(dim);
  int64_t begin = size_of(out, dim);
  Val value;
  // From the last part on: what is not of a later part and not of this one is of an earlier one.
  const std::vector<ir::ValueId>& parts = *e.call.values(0);
  for (size_t i = parts.size(); i-- > 0;) {
    const ir::TensorType& type = *e.call.graph().value(parts[i]).tensor_type();
    const int64_t end = begin;
    begin -= size_of(type, dim);
    Emitter::Read read{.value = parts[i], .dims = same_dims(type)};
    read.dims[dim].shift = -begin;
    read.mask = within(e, index, begin, end, size_of(out, dim));
    const Val part = e.read(read);
    value =
        value.defined()
            ? Val{e.body.select(e.body.compare(LoopOp::Lt, index, integer(e, end)), part, value).id,
                  out.dtype}
            : part;
  }
  return value;
}

// ---- padding and its kin ----

bool pad_applies(const Call& call) {
  return call.integers(1).has_value() && call.number(2).has_value();
}

Val pad(Emitter& e) {
  const ir::TensorType& in = *e.call.tensor(0);
  const ir::TensorType& out = e.call.result();
  const std::vector<int64_t> pads = *e.call.integers(1);  // last dim first: before, after
  Emitter::Read read{.value = e.call.value(0), .dims = same_dims(in)};
  for (size_t i = 0; 2 * i < pads.size(); ++i) {
    const size_t dim = in.sizes.size() - 1 - i;
    const int64_t before = pads[2 * i];
    read.dims[dim].shift = -before;
    read.mask =
        both(e, read.mask,
             within(e, e.dim_index(dim), before, before + size_of(in, dim), size_of(out, dim)));
  }
  const Val inside = e.read(read);
  if (!read.mask.defined()) return inside;
  const Val fill = e.body.wide(e.number(*e.call.number(2), out.dtype));
  return {e.body.select(read.mask, e.body.wide(inside), fill).id, out.dtype};
}

bool slice_backward_applies(const Call& call) {
  return call.integer(2) && call.integer(3) && call.integer(4) && call.integer(5) == 1;
}

Val slice_backward(Emitter& e) {
  const ir::TensorType& grad = *e.call.tensor(0);
  const ir::TensorType& out = e.call.result();
  const size_t dim = *dim_at(e.call, 2, out.rank());
  int64_t start = *e.call.integer(3);
  if (start < 0) start += size_of(out, dim);
  start = std::clamp<int64_t>(start, 0, size_of(out, dim));
  Emitter::Read read{.value = e.call.value(0), .dims = same_dims(grad)};
  read.dims[dim].shift = -start;
  read.mask = within(e, e.dim_index(dim), start, start + size_of(grad, dim), size_of(out, dim));
  return e.read(read);  // zero where the mask is false
}

bool select_backward_applies(const Call& call) { return call.integer(2) && call.integer(3); }

Val select_backward(Emitter& e) {
  const ir::TensorType& out = e.call.result();
  const size_t dim = *dim_at(e.call, 2, out.rank());
  int64_t index = *e.call.integer(3);
  if (index < 0) index += size_of(out, dim);
  Emitter::Read read{.value = e.call.value(0), .dims = {}};
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    if (i != dim) read.dims.push_back({.result_dim = static_cast<int32_t>(i)});
  }
  read.mask = e.body.compare(LoopOp::Eq, e.dim_index(dim), integer(e, index));
  return e.read(read);
}

bool flip_applies(const Call& call) { return call.integers(1).has_value(); }

Val flip(Emitter& e) {
  const ir::TensorType& in = *e.call.tensor(0);
  Emitter::Read read{.value = e.call.value(0), .dims = same_dims(in)};
  const std::vector<int64_t> dims = *e.call.integers(1);
  for (int64_t dim : dims)
    read.dims[static_cast<size_t>(dim < 0 ? dim + in.rank() : dim)].reversed = true;
  return e.read(read);
}

// ---- triangles ----

bool triangle_applies(const Call& call) {
  return call.integer(1).has_value() && call.result().rank() >= 2;
}

template <LoopOp keep>
Val triangle(Emitter& e) {
  const ir::TensorType& out = e.call.result();
  const size_t rank = out.sizes.size();
  const Val row = e.dim_index(rank - 2), column = e.dim_index(rank - 1);
  const Val kept =
      e.body.compare(keep, e.body.binary(LoopOp::Sub, column, row), integer(e, *e.call.integer(1)));
  const Val x = e.body.wide(e.operand(0));
  return {e.body.select(kept, x, e.number(0.0, x.dtype)).id, out.dtype};
}

// ---- through an index ----

bool is_index(ScalarType dtype) { return dtype == ScalarType::Long || dtype == ScalarType::Int; }

Val as_index(Emitter& e, Val value) { return e.body.to(value, ScalarType::Long); }

bool embedding_applies(const Call& call) {
  return is_index(call.tensor(1)->dtype) && call.tensor(0)->rank() == 2;
}

Val embedding(Emitter& e) {
  const ir::TensorType& table = *e.call.tensor(0);
  const ir::TensorType& places = *e.call.tensor(1);
  std::vector<int32_t> dims(places.sizes.size());
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int32_t>(i);
  const Val row = e.body.check_index(as_index(e, e.operand_at(1, dims)), size_of(table, 0));
  return e.read({.value = e.call.value(0),
                 .dims = {{}, {.result_dim = static_cast<int32_t>(dims.size())}},
                 .indirect = row,
                 .indirect_dim = 0});
}

bool index_select_applies(const Call& call) {
  return call.integer(1) && is_index(call.tensor(2)->dtype) && call.tensor(0)->rank() > 0;
}

Val index_select(Emitter& e) {
  const ir::TensorType& in = *e.call.tensor(0);
  const size_t dim = *dim_at(e.call, 1, in.rank());
  const int32_t at[] = {static_cast<int32_t>(dim)};
  const size_t index_rank = e.call.tensor(2)->sizes.size();
  const Val place = e.body.check_index(
      as_index(e, e.operand_at(2, std::span(at).first(index_rank))), size_of(in, dim));
  Emitter::Read read{.value = e.call.value(0), .dims = same_dims(in)};
  read.dims[dim] = {};
  read.indirect = place;
  read.indirect_dim = static_cast<int64_t>(dim);
  return e.read(read);
}

bool gather_applies(const Call& call) {
  return call.integer(1) && is_index(call.tensor(2)->dtype) && call.tensor(0)->rank() > 0 &&
         call.tensor(2)->rank() == call.tensor(0)->rank();
}

Val gather(Emitter& e) {
  const ir::TensorType& in = *e.call.tensor(0);
  const size_t dim = *dim_at(e.call, 1, in.rank());
  Emitter::Read read{.value = e.call.value(0), .dims = same_dims(in)};
  read.dims[dim] = {};
  read.indirect = e.body.check_index(as_index(e, e.operand(2)), size_of(in, dim));
  read.indirect_dim = static_cast<int64_t>(dim);
  return e.read(read);
}

/// Neighbouring index tensors, at least one; no masks.
bool index_applies(const Call& call) {
  const auto* indices = call.values(1);
  if (indices == nullptr) return false;
  int runs = 0;
  bool inside = false;
  for (ir::ValueId id : *indices) {
    const bool present = id != ir::kNoValue;
    if (present && !inside) ++runs;
    inside = present;
    if (present && !is_index(call.graph().value(id).tensor_type()->dtype)) return false;
  }
  return runs == 1;
}

Val index(Emitter& e) {
  const ir::TensorType& in = *e.call.tensor(0);
  const std::vector<ir::ValueId>& indices = *e.call.values(1);
  size_t first = 0, count = 0, index_rank = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == ir::kNoValue) continue;
    if (count++ == 0) first = i;
    index_rank = std::max(index_rank, e.call.graph().value(indices[i]).tensor_type()->sizes.size());
  }
  Emitter::Read read{.value = e.call.value(0), .dims = same_dims(in)};
  for (size_t i = first + count; i < in.sizes.size(); ++i)
    read.dims[i].result_dim = static_cast<int32_t>(i - count + index_rank);
  // One number of elements stands for all indexed dims.
  for (size_t i = first; i < first + count; ++i) {
    read.dims[i] = {};
    const ir::TensorType& type = *e.call.graph().value(indices[i]).tensor_type();
    Emitter::Read place{.value = indices[i], .dims = {}};
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      const size_t result_dim = first + index_rank - type.sizes.size() + d;
      place.dims.push_back(
          {.result_dim = size_of(type, d) == 1 ? -1 : static_cast<int32_t>(result_dim)});
    }
    Val at = as_index(e, e.read(place));
    const Val from_end = e.body.binary(LoopOp::Add, at, integer(e, size_of(in, i)));
    at = e.body.select(e.body.compare(LoopOp::Lt, at, integer(e, 0)), from_end, at);
    at = e.body.check_index(at, size_of(in, i));
    at = e.body.binary(LoopOp::Mul, at, integer(e, in.strides[i].value()));
    read.indirect = read.indirect.defined() ? e.body.binary(LoopOp::Add, read.indirect, at) : at;
  }
  read.indirect_stride = 1;
  return e.read(read);
}

// ---- out of nothing ----

Val filled(Emitter& e, const Number& number) { return e.number(number, e.call.result().dtype); }
Val zeros(Emitter& e) { return filled(e, Number::of(int64_t{0})); }
Val ones(Emitter& e) { return filled(e, Number::of(int64_t{1})); }
template <size_t operand>
Val full(Emitter& e) {
  return filled(e, *e.call.number(operand));
}
template <size_t operand>
bool has_number(const Call& call) {
  return call.number(operand).has_value();
}

bool arange_applies(const Call& call) {
  return call.integer(0) && call.integer(1) && call.integer(2) && is_index(call.result().dtype);
}
Val arange(Emitter& e) {
  const ScalarType dtype = e.call.result().dtype;
  const Val step = e.body.binary(LoopOp::Mul, e.dim_index(0), integer(e, *e.call.integer(2)));
  return e.body.to(e.body.binary(LoopOp::Add, step, integer(e, *e.call.integer(0))), dtype);
}

/// Computed from the index, or in place of its operand.
constexpr Rule light_move(std::string_view op, Val (*emit)(Emitter&),
                          bool (*applies)(const Call&)) {
  return {.op = op, .kind = RuleKind::Move, .pays_alone = false, .emit = emit, .applies = applies};
}
/// Picks few elements of what lies in memory.
constexpr Rule lookup(std::string_view op, Val (*emit)(Emitter&), bool (*applies)(const Call&),
                      uint32_t memory_operands) {
  return {.op = op,
          .kind = RuleKind::Move,
          .pays_alone = false,
          .emit = emit,
          .applies = applies,
          .memory_operands = memory_operands};
}
/// Reads as much memory as it makes.
constexpr Rule pass(std::string_view op, Val (*emit)(Emitter&), bool (*applies)(const Call&),
                    uint32_t memory_operands) {
  return {.op = op,
          .kind = RuleKind::Move,
          .weight = Weight::Pass,
          .pays_alone = false,
          .emit = emit,
          .applies = applies,
          .memory_operands = memory_operands};
}
constexpr Rule source(std::string_view op, Val (*emit)(Emitter&),
                      bool (*applies)(const Call&) = nullptr) {
  return {.op = op, .kind = RuleKind::Source, .emit = emit, .applies = applies};
}

constexpr uint32_t kFirst = 1, kFirstAndSecond = 3, kFirstAndThird = 5;

constexpr auto kMoveRules = std::to_array<Rule>({
    {.op = "cat",
     .kind = RuleKind::Move,
     .weight = Weight::Pass,
     .pays_alone = false,
     .emit = cat,
     .applies = cat_applies,
     .list_in_memory = true},
    pass("constant_pad_nd", pad, pad_applies, kFirst),
    pass("slice_backward", slice_backward, slice_backward_applies, kFirst),
    pass("select_backward", select_backward, select_backward_applies, kFirst),
    pass("flip", flip, flip_applies, kFirst),
    light_move("tril", triangle<LoopOp::Le>, triangle_applies),
    light_move("triu", triangle<LoopOp::Ge>, triangle_applies),
    pass("embedding", embedding, embedding_applies, kFirstAndSecond),
    pass("index_select", index_select, index_select_applies, kFirstAndThird),
    lookup("gather", gather, gather_applies, kFirst),
    lookup("index.Tensor", index, index_applies, kFirstAndSecond),
    source("zeros", zeros),
    source("zeros_like", zeros),
    source("new_zeros", zeros),
    source("ones", ones),
    source("ones_like", ones),
    source("new_ones", ones),
    source("full", full<1>, has_number<1>),
    source("full_like", full<1>, has_number<1>),
    source("new_full", full<2>, has_number<2>),
    source("fill.Scalar", full<1>, has_number<1>),
    source("scalar_tensor", full<0>, has_number<0>),
    light_move("arange.start_step", arange, arange_applies),
});

}  // namespace

std::span<const Rule> move_rules() { return kMoveRules; }

}  // namespace tandem::loops
