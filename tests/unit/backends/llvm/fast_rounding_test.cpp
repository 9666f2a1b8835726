#include "tandem/tandem.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

// Rounding::fast: other library kernels than eager's, but results as near to the truth.

namespace tandem {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(Tensors)>;

Options fast() {
  Options options;
  options.backend = "llvm";
  options.rounding = Rounding::fast;
  return options;
}

struct Step {
  Tensors values;  // the result, then the gradients
  std::string report;
};

Step step(const Function& function, const Tensors& inputs, at::ScalarType dtype,
          const Options* options) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.detach().to(dtype).requires_grad_());
  Step out;
  if (options == nullptr) {
    const Tensor result = function(leaves);
    result.sum().backward();
    out.values.push_back(result.detach());
  } else {
    auto compiled = compile_boxed([&](const Tensors& t) { return Tensors{function(t)}; }, *options);
    const Tensor result = compiled(leaves)[0];
    result.sum().backward();
    out.values.push_back(result.detach());
    out.report = compiled.report();
  }
  for (const Tensor& leaf : leaves) out.values.push_back(leaf.grad());
  return out;
}

/// Distances to f64 at most twice eager's, plus 16 units of the largest value.
std::string expect_as_exact_as_eager(const Function& function, const Tensors& inputs,
                                     at::ScalarType dtype) {
  const Options options = fast();
  const Step truth = step(function, inputs, at::kDouble, nullptr);
  const Step eager = step(function, inputs, dtype, nullptr);
  const Step ours = step(function, inputs, dtype, &options);
  const double eps = dtype == at::kFloat ? 0x1p-23 : 0x1p-7;
  for (size_t i = 0; i < truth.values.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "result" : "gradient " + std::to_string(i - 1));
    const auto distance = [&](const Step& it) {
      return (it.values[i].to(at::kDouble) - truth.values[i]).abs().max().item<double>();
    };
    EXPECT_EQ(ours.values[i].scalar_type(), eager.values[i].scalar_type());
    EXPECT_EQ(ours.values[i].strides(), eager.values[i].strides());
    EXPECT_LE(distance(ours),
              2 * distance(eager) + 16 * eps * truth.values[i].abs().max().item<double>());
  }
  return ours.report;
}

/// What counts as a large product depends on the number of threads.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

// A call of oneDNN costs more than the whole of a small product.
TEST(FastRounding, SmallProductsStayWhereTheyAre) {
  const OneThread one;
  const Function function = [](Tensors t) { return t[0].mm(t[1]).tanh(); };
  const std::string report = expect_as_exact_as_eager(
      function, {torch::randn({33, 20}), torch::randn({20, 17})}, at::kFloat);
  EXPECT_EQ(report.find("tandem::product"), std::string::npos) << report;
  EXPECT_NE(report.find("aten::mm x"), std::string::npos) << report;
}

// A product of the forward may be large enough on one thread and not on all of them.
TEST(FastRounding, MoreThreadsNeedLargerProducts) {
  const auto report = [](int threads) {
    const OneThread one;
    at::set_num_threads(threads);
    const Options options = fast();
    return step([](Tensors t) { return t[0].mm(t[1]).tanh(); },
                {torch::randn({110, 100}), torch::randn({100, 110})}, at::kFloat, &options)
        .report;
  };
  EXPECT_NE(report(1).find("tandem::product"), std::string::npos);
  EXPECT_EQ(report(2).find("tandem::product"), std::string::npos);
}

TEST(FastRounding, MatrixProducts) {
  const OneThread one;
  const Function function = [](Tensors t) {
    return (t[0].mm(t[1]).relu().mm(t[2].t()) * 0.1).tanh();
  };
  const std::string report = expect_as_exact_as_eager(
      function, {torch::randn({160, 130}), torch::randn({130, 90}), torch::randn({100, 90})},
      at::kFloat);
  EXPECT_NE(report.find("tandem::product x"), std::string::npos) << report;
  EXPECT_EQ(report.find("aten::mm"), std::string::npos) << report;

  Options eager = fast();
  eager.rounding = Rounding::eager;
  const Tensors inputs{torch::randn({160, 130}), torch::randn({130, 90}), torch::randn({100, 90})};
  EXPECT_NE(step(function, inputs, at::kFloat, &eager).report.find("aten::mm x"),
            std::string::npos);
}

TEST(FastRounding, BatchedAndTransposedProducts) {
  const OneThread one;
  const Function function = [](Tensors t) {
    return t[0].bmm(t[1].transpose(1, 2)).exp().bmm(t[1]);
  };
  const std::string report = expect_as_exact_as_eager(
      function, {torch::randn({3, 70, 80}) / 9, torch::randn({3, 90, 80}) / 9}, at::kFloat);
  EXPECT_NE(report.find("tandem::product x"), std::string::npos) << report;
}

TEST(FastRounding, AttentionOf16BitFloats) {
  const Function function = [](Tensors t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, /*is_causal=*/true) * 2;
  };
  Tensors inputs;
  for (int i = 0; i < 3; ++i)
    inputs.push_back(torch::randn({2, 4, 32, 16}).to(at::kBFloat16).to(at::kDouble));
  expect_as_exact_as_eager(function, inputs, at::kBFloat16);
}

}  // namespace
}  // namespace tandem
