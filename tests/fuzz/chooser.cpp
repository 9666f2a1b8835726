#include "fuzz/chooser.h"

#include <algorithm>

namespace tandem::fuzz {

void run_op(const Statement& statement, Tensors& variables, const Surroundings& surroundings) {
  Operands operands;
  const auto operand = [&](size_t index) {
    return variables[static_cast<size_t>(statement.operands[index])];
  };
  const size_t count = statement.operands.size();
  if (count > 0) operands.x = operand(0);
  if (count > 1) operands.y = operand(1);
  if (count > 2) operands.z = operand(2);
  if (count > 3) operands.w = operand(3);
  for (size_t index = 0; index < count; ++index) operands.xs.push_back(operand(index));
  operands.i = statement.i;
  operands.j = statement.j;
  operands.k = statement.k;
  operands.s = statement.sizes;
  operands.c = statement.c;
  operands.d = statement.d;
  operands.t = statement.dtype;
  ask_sizes(statement, variables, operands);
  if (statement.own_generator) operands.g = surroundings.generator;
  operands.host_number = surroundings.host_number;
  operands.host_tensor = surroundings.host_tensor;
  const Tensors results = statement.op->run(operands);
  for (size_t index = 0; index < statement.results.size(); ++index) {
    at::Tensor& variable = variables[static_cast<size_t>(statement.results[index])];
    variable = index < results.size() ? results[index] : at::Tensor();
  }
}

std::optional<int> Chooser::pick(const Wanted& wanted) {
  std::vector<int> fitting;
  for (size_t index = 0; index < live.size(); ++index) {
    if (live[index].defined() && wanted(live[index])) fitting.push_back(static_cast<int>(index));
  }
  if (fitting.empty()) return std::nullopt;
  const auto size = static_cast<int64_t>(fitting.size());
  const int64_t index = std::max(random.below(size), random.below(size));
  return fitting[static_cast<size_t>(index)];
}

bool Chooser::is_closed_over(int variable) const {
  return std::ranges::any_of(closed_over,
                             [&](int other) { return value(other).is_same(value(variable)); });
}

int Chooser::new_variable() {
  live.emplace_back();
  return static_cast<int>(live.size()) - 1;
}

int Chooser::prepend(Statement statement) {
  statement.results = {new_variable()};
  run_op(statement, live, {});
  before.push_back(statement);
  return statement.results.front();
}

int Chooser::fit(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  const auto there = pick([&](const at::Tensor& tensor) {
    return tensor.scalar_type() == dtype && tensor.sizes() == at::IntArrayRef(sizes);
  });
  if (there && !random.percent(10)) return *there;
  const auto source = pick([&](const at::Tensor& tensor) {
    return tensor.scalar_type() == dtype && tensor.numel() > 0 && tensor.dim() > 0;
  });
  Statement statement;
  statement.sizes = sizes;
  statement.dtype = dtype;
  if (source) {
    statement.op = find_op("refit");
    statement.operands = {*source};
    int64_t wanted = 1;
    for (int64_t size : sizes) wanted *= size;
    statement.i = wanted;
    statement.j = wanted / value(*source).numel() + 1;
  } else {
    statement.op = find_op("ramp");
    statement.i = 1;
    for (int64_t size : sizes) statement.i *= size;
  }
  return prepend(std::move(statement));
}

int Chooser::indices(const std::vector<int64_t>& sizes, int64_t limit) {
  Statement statement;
  statement.op = find_op("indices");
  statement.sizes = sizes;
  statement.i = 1;
  for (int64_t size : sizes) statement.i *= size;
  statement.j = random.between(1, 5);
  statement.k = limit;
  return prepend(std::move(statement));
}

int Chooser::mask(const std::vector<int64_t>& sizes) {
  const auto there = pick([&](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kBool && tensor.sizes() == at::IntArrayRef(sizes);
  });
  if (there) return *there;
  Statement statement;
  statement.op = find_op("mask");
  statement.sizes = sizes;
  statement.i = 1;
  for (int64_t size : sizes) statement.i *= size;
  statement.j = random.between(1, 5);
  return prepend(std::move(statement));
}

}  // namespace tandem::fuzz
