#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

// Where libtorch's kernel would raise, a kernel of ours must not compute: eager's error comes, word
// for word, and nothing was written.

namespace tandem::loops {
namespace {

using at::Scalar;
using at::Tensor;

/// The result, or the first line of the error.
struct Outcome {
  Tensor result{};
  std::string error{};
};

Outcome outcome_of(const std::function<Tensor()>& body) {
  const auto first_line = [](std::string text) { return text.substr(0, text.find('\n')); };
  try {
    return {body()};
  } catch (const c10::Error& error) {
    return {{}, first_line(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {{}, first_line(error.what())};
  }
}

/// One NaN is as good as another.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const Tensor nan = a.isnan() & b.isnan();
  const Tensor x = a.masked_fill(nan, 0), y = b.masked_fill(nan, 0);
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

struct NumberCall {
  const char* name;
  Tensor (*call)(const Tensor& x, const Scalar& number);
};

// Every op with a rule or a decomposition that takes a number.
const NumberCall kNumberCalls[] = {
    {"add", [](const Tensor& x, const Scalar& s) { return at::add(x, s); }},
    {"add alpha", [](const Tensor& x, const Scalar& s) { return at::add(x, x, s); }},
    {"addcdiv", [](const Tensor& x, const Scalar& s) { return at::addcdiv(x, x, x, s); }},
    {"addcmul", [](const Tensor& x, const Scalar& s) { return at::addcmul(x, x, x, s); }},
    {"bitwise_or", [](const Tensor& x, const Scalar& s) { return at::bitwise_or(x, s); }},
    {"clamp",
     [](const Tensor& x, const Scalar& s) { return at::clamp(x, s, std::optional<Scalar>()); }},
    {"clamp_max", [](const Tensor& x, const Scalar& s) { return at::clamp_max(x, s); }},
    {"clamp_min", [](const Tensor& x, const Scalar& s) { return at::clamp_min(x, s); }},
    {"constant_pad_nd",
     [](const Tensor& x, const Scalar& s) { return at::constant_pad_nd(x, {1, 1}, s); }},
    {"copysign", [](const Tensor& x, const Scalar& s) { return at::copysign(x, s); }},
    {"div", [](const Tensor& x, const Scalar& s) { return at::div(x, s); }},
    {"div floor", [](const Tensor& x, const Scalar& s) { return at::div(x, s, "floor"); }},
    {"elu", [](const Tensor& x, const Scalar& s) { return at::elu(x, s); }},
    {"eq", [](const Tensor& x, const Scalar& s) { return at::eq(x, s); }},
    {"fill", [](const Tensor& x, const Scalar& s) { return at::fill(x, s) + x; }},
    {"fill_", [](const Tensor& x, const Scalar& s) { return x.clone().fill_(s) + x; }},
    {"fmod", [](const Tensor& x, const Scalar& s) { return at::fmod(x, s); }},
    {"full", [](const Tensor& x, const Scalar& s) { return at::full({4}, s, x.options()) + x; }},
    {"full_like", [](const Tensor& x, const Scalar& s) { return at::full_like(x, s) + x; }},
    {"ge", [](const Tensor& x, const Scalar& s) { return at::ge(x, s); }},
    {"hardshrink", [](const Tensor& x, const Scalar& s) { return at::hardshrink(x, s); }},
    {"hardtanh", [](const Tensor& x, const Scalar& s) { return at::hardtanh(x, 0, s); }},
    {"leaky_relu", [](const Tensor& x, const Scalar& s) { return at::leaky_relu(x, s); }},
    {"lerp", [](const Tensor& x, const Scalar& s) { return at::lerp(x, x * 2, s); }},
    {"masked_fill", [](const Tensor& x, const Scalar& s) { return at::masked_fill(x, x > 0, s); }},
    {"masked_fill of a tensor",
     [](const Tensor& x, const Scalar& s) {
       return at::masked_fill(x, x > 0, at::scalar_tensor(s, at::kDouble));
     }},
    {"mul", [](const Tensor& x, const Scalar& s) { return at::mul(x, s); }},
    {"ne", [](const Tensor& x, const Scalar& s) { return at::ne(x, s); }},
    {"new_full", [](const Tensor& x, const Scalar& s) { return x.new_full({4}, s) + x; }},
    {"pow", [](const Tensor& x, const Scalar& s) { return at::pow(x, s); }},
    {"pow of a number", [](const Tensor& x, const Scalar& s) { return at::pow(s, x); }},
    {"remainder", [](const Tensor& x, const Scalar& s) { return at::remainder(x, s); }},
    {"rsub", [](const Tensor& x, const Scalar& s) { return at::rsub(x, s); }},
    {"rsub alpha", [](const Tensor& x, const Scalar& s) { return at::rsub(x, x, s); }},
    {"scalar_tensor",
     [](const Tensor& x, const Scalar& s) { return at::scalar_tensor(s, x.options()) + x; }},
    {"softplus", [](const Tensor& x, const Scalar& s) { return at::softplus(x, 1, s); }},
    {"softshrink", [](const Tensor& x, const Scalar& s) { return at::softshrink(x, s); }},
    {"sub", [](const Tensor& x, const Scalar& s) { return at::sub(x, s); }},
    {"sub alpha", [](const Tensor& x, const Scalar& s) { return at::sub(x, x, s); }},
    {"threshold", [](const Tensor& x, const Scalar& s) { return at::threshold(x, 1, s); }},
    {"threshold above", [](const Tensor& x, const Scalar& s) { return at::threshold(x, s, 1); }},
    {"threshold_backward",
     [](const Tensor& x, const Scalar& s) { return at::threshold_backward(x, x, s); }},
    {"where", [](const Tensor& x, const Scalar& s) { return at::where(x > 1, x, s); }},
};

TEST(EagerErrors, OfNumbersThatDoNotFit) {
  const Options options{.backend = "llvm"};
  const torch::NoGradGuard no_grad;
  const Scalar numbers[] = {300, int64_t{1} << 40, 1e5, 1e39, std::nan(""), HUGE_VAL};
  int raised = 0;
  for (const NumberCall& number_call : kNumberCalls) {
    for (at::ScalarType dtype : {at::kByte, at::kInt, at::kHalf, at::kBFloat16, at::kFloat}) {
      for (const Scalar& number : numbers) {
        SCOPED_TRACE(std::string(number_call.name) + " of " + c10::toString(dtype) + " with " +
                     std::to_string(number.toDouble()));
        const Tensor x = torch::tensor({0, 1, 2, 3}).to(dtype), written = torch::zeros({2});
        const Outcome eager = outcome_of([&] { return number_call.call(x, number); });

        const auto compiled = compile(
            [&](const Tensor& a, const Tensor& b) {
              b.add_(1);
              return number_call.call(a, number);
            },
            options);
        const Outcome ours = outcome_of([&] { return compiled(x, written); });

        if (ours.error.starts_with("trace: ")) {  // no kernel for the dtype, as we say it
          EXPECT_FALSE(eager.error.empty());
          continue;
        }
        EXPECT_EQ(ours.error, eager.error);
        EXPECT_EQ(written[0].item<float>(), eager.error.empty() ? 1 : 0);
        if (eager.result.defined() && ours.result.defined())
          EXPECT_TRUE(same_bits(ours.result, eager.result)) << ours.result << "\n" << eager.result;
        raised += eager.error.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(raised, 300);
}

// A value of its own decides: eager reads it.
TEST(EagerErrors, OfATensorThatDoesNotFit) {
  const auto compiled = compile(
      [](const Tensor& x, const Tensor& value) { return at::masked_fill(x, x > 0, value) + x; },
      Options{.backend = "llvm"});
  const Tensor x = torch::ones({4}, at::kHalf);

  EXPECT_TRUE(same_bits(compiled(x, torch::tensor(7.f)), torch::full({4}, 8, at::kHalf)));
  const Tensor large = torch::tensor(1e5f);
  const Outcome eager = outcome_of([&] { return at::masked_fill(x, x > 0, large); });
  EXPECT_NE(eager.error.find("without overflow"), std::string::npos) << eager.error;
  EXPECT_EQ(outcome_of([&] { return compiled(x, large); }).error, eager.error);
}

struct IndexCall {
  const char* name;
  Tensor (*call)(const Tensor& table, const Tensor& index);
};

const IndexCall kIndexCalls[] = {
    {"embedding", [](const Tensor& t, const Tensor& i) { return at::embedding(t, i); }},
    {"index_select", [](const Tensor& t, const Tensor& i) { return at::index_select(t, 0, i); }},
    {"index_select of columns",
     [](const Tensor& t, const Tensor& i) { return at::index_select(t, 1, i); }},
    {"gather", [](const Tensor& t, const Tensor& i) { return at::gather(t, 0, i.unsqueeze(1)); }},
    {"index", [](const Tensor& t, const Tensor& i) { return t.index({i}); }},
    {"index of two", [](const Tensor& t, const Tensor& i) { return t.index({i, i}); }},
    {"index of a column",
     [](const Tensor& t, const Tensor& i) { return t.index({torch::indexing::Slice(), i}); }},
    {"nll_loss", [](const Tensor& t, const Tensor& i) { return at::nll_loss(t, i); }},
    {"nll_loss with weights",
     [](const Tensor& t, const Tensor& i) { return at::nll_loss(t, i, t[0].exp()); }},
    {"nll_loss of rows",
     [](const Tensor& t, const Tensor& i) { return at::nll_loss(t, i, {}, at::Reduction::None); }},
    {"cross_entropy",
     [](const Tensor& t, const Tensor& i) { return at::cross_entropy_loss(t, i); }},
    {"cross_entropy, smoothed",
     [](const Tensor& t, const Tensor& i) {
       return at::cross_entropy_loss(t, i, {}, at::Reduction::Mean, -100, 0.1);
     }},
    {"cross_entropy that ignores a class",
     [](const Tensor& t, const Tensor& i) {
       return at::cross_entropy_loss(t, i, {}, at::Reduction::Sum, 9);
     }},
    {"nll_loss of pictures",
     [](const Tensor& t, const Tensor& i) {
       return at::nll_loss2d(t.t().unsqueeze(0).unsqueeze(2).contiguous(), i.view({1, 1, -1}));
     }},
};

TEST(EagerErrors, OfIndicesOutOfRange) {
  const Options options{.backend = "llvm"};
  int raised = 0;
  for (const IndexCall& index_call : kIndexCalls) {
    // Of bytes only losses make indices.
    const bool is_loss = std::string(index_call.name).starts_with("nll");
    for (at::ScalarType dtype : {at::kLong, at::kInt, is_loss ? at::kByte : at::kLong}) {
      const auto function = [&](const Tensor& table, const Tensor& index) {
        return index_call.call(table.sin(), index).exp();
      };
      const auto compiled = compile(function, options);
      const Tensor table = torch::randn({5, 5}).requires_grad_();
      for (int64_t bad : {1, 5, 9, -1, -6, 100}) {
        SCOPED_TRACE(std::string(index_call.name) + " of " + c10::toString(dtype) + " with " +
                     std::to_string(bad));
        const Tensor index = torch::tensor({0, 4, static_cast<int>(bad), 2, 1}).to(dtype);
        const Outcome eager = outcome_of([&] { return function(table, index); });

        const Outcome ours = outcome_of([&] { return compiled(table, index); });

        EXPECT_EQ(ours.error, eager.error);
        if (eager.result.defined() && ours.result.defined())
          EXPECT_TRUE(at::allclose(ours.result, eager.result));
        raised += eager.error.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(raised, 100);
}

// libtorch's kernel for expanded indices checks those of int64 only. With int32 it reads anywhere,
// so eager is not asked.
TEST(EagerErrors, OfIndicesThatEagerDoesNotCheck) {
  const auto compiled = compile(
      [](const Tensor& table, const Tensor& index) {
        return at::gather(table.sin(), 0, index.unsqueeze(1).expand({600, 600})).exp();
      },
      Options{.backend = "llvm"});
  const Tensor table = torch::randn({600, 600});
  Tensor index = torch::arange(600, at::kInt);
  EXPECT_TRUE(at::allclose(compiled(table, index), table.sin().exp()));

  index[333] = 600;

  EXPECT_EQ(outcome_of([&] { return compiled(table, index); }).error,
            "index 600 is out of bounds for dimension 0 with size 600");
}

}  // namespace
}  // namespace tandem::loops
