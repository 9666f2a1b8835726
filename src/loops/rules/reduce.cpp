#include "loops/rules/rule.h"

#include <array>
#include <numeric>

namespace tandem::loops {
namespace {

using c10::ScalarType;

// ---- which dims ----

std::vector<int64_t> all_dims(const Call& call) {
  std::vector<int64_t> dims(call.tensor(0)->sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

std::vector<int64_t> listed_dims(const Call& call) {
  std::vector<int64_t> dims;
  if (auto one = call.integer(1)) {
    dims = {*one};
  } else if (auto list = call.integers(1)) {
    dims = *list;
  }
  if (dims.empty()) return all_dims(call);
  for (int64_t& dim : dims) {
    if (dim < 0) dim += call.tensor(0)->rank();
  }
  return dims;
}

int64_t reduced_elements(const Call& call, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (int64_t dim : dims) count *= call.tensor(0)->sizes[static_cast<size_t>(dim)].value();
  return count;
}

/// Something to reduce: over dims of size 1 a reduction is a copy, which libtorch does.
bool reduces_listed(const Call& call) {
  return call.tensor(0)->rank() > 0 && (!call.has(1) || call.integer(1) || call.integers(1)) &&
         reduced_elements(call, listed_dims(call)) > 1;
}
bool reduces_all(const Call& call) {
  return call.tensor(0)->rank() > 0 && reduced_elements(call, all_dims(call)) > 1;
}

// ---- elements and results ----

template <LoopOp op>
Val accumulate(Emitter& e, Val element, size_t result) {
  const ScalarType dtype = e.call.result(result).dtype;
  // With a dtype argument libtorch converts first. 16-bit floats accumulate in f32.
  return e.body.reduce(op, e.body.to(element, dtype));
}

Val round_result(Emitter& e, Val reduced, size_t result) {
  return e.body.to(reduced, e.call.result(result).dtype);
}

Val as_bool(Emitter& e, Val element) { return e.body.to(element, ScalarType::Bool); }
Val reduce_any(Emitter& e, Val element, size_t) {
  return e.body.reduce(LoopOp::ReduceAny, as_bool(e, element));
}
Val reduce_all(Emitter& e, Val element, size_t) {
  return e.body.reduce(LoopOp::ReduceAll, as_bool(e, element));
}

template <LoopOp op>
Val extreme(Emitter& e, Val element, size_t) {
  return e.body.reduce(op, e.body.wide(element));
}

/// Where in row-major order of the reduced dims the element stands.
Val flat_index(Emitter& e, const std::vector<int64_t>& dims) {
  Val flat;
  for (int64_t dim : dims) {
    const int64_t size = e.call.tensor(0)->sizes[static_cast<size_t>(dim)].value();
    const Val index = e.dim_index(static_cast<size_t>(dim));
    flat = !flat.defined()
               ? index
               : e.body.binary(LoopOp::Add,
                               e.body.binary(LoopOp::Mul, flat,
                                             e.body.constant(ScalarType::Long, Number::of(size))),
                               index);
  }
  return flat;
}

template <LoopOp op>
Val arg(Emitter& e, Val element, size_t) {
  return e.body.reduce(op, e.body.wide(element), flat_index(e, listed_dims(e.call)));
}

template <LoopOp value_op, LoopOp index_op>
Val extreme_with_place(Emitter& e, Val element, size_t result) {
  return result == 0 ? extreme<value_op>(e, element, 0) : arg<index_op>(e, element, 1);
}

Val mean_listed(Emitter& e, Val reduced, size_t result) {
  const auto count = static_cast<double>(reduced_elements(e.call, listed_dims(e.call)));
  return e.body.to(e.body.binary(LoopOp::Div, reduced, e.number(count, reduced.dtype)),
                   e.call.result(result).dtype);
}
Val mean_all(Emitter& e, Val reduced, size_t result) {
  const auto count = static_cast<double>(reduced_elements(e.call, all_dims(e.call)));
  return e.body.to(e.body.binary(LoopOp::Div, reduced, e.number(count, reduced.dtype)),
                   e.call.result(result).dtype);
}

bool reduces_numbers(const Call& call) { return call.tensor(0)->dtype != ScalarType::Bool; }
bool numbers_listed(const Call& call) { return reduces_numbers(call) && reduces_listed(call); }
bool numbers_all(const Call& call) { return reduces_numbers(call) && reduces_all(call); }
/// An index of several dims at once is of the flat tensor.
bool arg_applies(const Call& call) { return numbers_listed(call); }
bool truth_listed(const Call& call) {
  return reduces_listed(call) && call.result().dtype == ScalarType::Bool;
}
bool truth_all(const Call& call) {
  return reduces_all(call) && call.result().dtype == ScalarType::Bool;
}

Rule reduction(std::string_view op, bool (*applies)(const Call&),
               std::vector<int64_t> (*dims)(const Call&), Val (*reduce)(Emitter&, Val, size_t),
               Val (*finish)(Emitter&, Val, size_t) = round_result) {
  return {.op = op,
          .kind = RuleKind::Reduction,
          .applies = applies,
          .dims = dims,
          .reduce = reduce,
          .finish = finish};
}

std::span<const Rule> table() {
  static const auto* rules = new std::vector<Rule>{
      reduction("sum", reduces_all, all_dims, accumulate<LoopOp::ReduceSum>),
      reduction("sum.dim_IntList", reduces_listed, listed_dims, accumulate<LoopOp::ReduceSum>),
      reduction("mean", numbers_all, all_dims, accumulate<LoopOp::ReduceSum>, mean_all),
      reduction("mean.dim", numbers_listed, listed_dims, accumulate<LoopOp::ReduceSum>,
                mean_listed),
      reduction("prod", reduces_all, all_dims, accumulate<LoopOp::ReduceProd>),
      reduction("prod.dim_int", reduces_listed, listed_dims, accumulate<LoopOp::ReduceProd>),
      reduction("amax", numbers_listed, listed_dims, extreme<LoopOp::ReduceMax>),
      reduction("amin", numbers_listed, listed_dims, extreme<LoopOp::ReduceMin>),
      reduction("max", numbers_all, all_dims, extreme<LoopOp::ReduceMax>),
      reduction("min", numbers_all, all_dims, extreme<LoopOp::ReduceMin>),
      reduction("max.dim", numbers_listed, listed_dims,
                extreme_with_place<LoopOp::ReduceMax, LoopOp::ReduceArgmax>),
      reduction("min.dim", numbers_listed, listed_dims,
                extreme_with_place<LoopOp::ReduceMin, LoopOp::ReduceArgmin>),
      reduction("argmax", arg_applies, listed_dims, arg<LoopOp::ReduceArgmax>),
      reduction("argmin", arg_applies, listed_dims, arg<LoopOp::ReduceArgmin>),
      reduction("any", truth_all, all_dims, reduce_any),
      reduction("any.dim", truth_listed, listed_dims, reduce_any),
      reduction("any.dims", truth_listed, listed_dims, reduce_any),
      reduction("all", truth_all, all_dims, reduce_all),
      reduction("all.dim", truth_listed, listed_dims, reduce_all),
      reduction("all.dims", truth_listed, listed_dims, reduce_all),
  };
  return *rules;
}

}  // namespace

std::span<const Rule> reduction_rules() { return table(); }

}  // namespace tandem::loops
