#pragma once

#include "ops/metadata/metadata.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

/// Compares what the propagator says about a call with what eager makes of it on the CPU.
namespace tandem::ops {

/// `aten::` is left out: `max.dim`.
c10::OperatorHandle find_op(const std::string& name);

using Arguments = std::vector<c10::IValue>;
/// Missing arguments at the end take the schema's defaults.
Arguments with_defaults(const c10::OperatorHandle& op, Arguments args);

TensorMeta meta_of(MetadataPropagator& propagator, const at::Tensor& tensor);

/// Random sizes, dtypes and layouts, the same in every run.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t integer(int64_t low, int64_t high);  // both included
  bool coin() { return integer(0, 1) == 1; }
  /// Each 0 or 1 now and then.
  std::vector<int64_t> sizes(int64_t rank, int64_t low = 0);
  at::ScalarType floating();  // float32, float64 or bfloat16
  /// Values in [0, 1); contiguous, permuted, channels_last, with gaps, or expanded.
  at::Tensor tensor(std::vector<int64_t> sizes, at::ScalarType dtype);
  at::Tensor tensor(std::vector<int64_t> sizes) { return tensor(std::move(sizes), floating()); }
  /// Int64 values in [0, limit).
  at::Tensor indices(std::vector<int64_t> sizes, int64_t limit);
  /// Present half of the time.
  at::Tensor maybe(const at::Tensor& tensor) { return coin() ? tensor : at::Tensor(); }
  at::Tensor relaid(const at::Tensor& tensor);

 private:
  std::mt19937_64 engine_;
};

/// A way to call an op: makes arguments. An empty list: not this time.
struct Case {
  std::string op;
  std::function<Arguments(Random&)> arguments;
};
std::ostream& operator<<(std::ostream& out, const Case& test_case);
std::string case_name(const ::testing::TestParamInfo<Case>& info);

/// Runs a case many times. Checks that our own rule answered, that its answer is eager's, that the
/// second answer is the first one remembered, and that nothing else in the process changed.
void expect_eager_metadata(const Case& test_case);

/// An empty text if the metadata is that of the tensor; otherwise what differs. Strides count where
/// a step is taken only.
std::string difference(const TensorMeta& meta, const at::Tensor& tensor);

}  // namespace tandem::ops
