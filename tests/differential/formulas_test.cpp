/// Op by op, with eager's bits: the formulas of autograd in 16 bits, where a number that is rounded
/// before it is used shows at once; in-place ops, which some kernels compute in another way; sizes
/// of zero; and errors of ops whose results nobody reads.
#include "support/like_eager.h"
#include "support/same_bits.h"

namespace tandem::test {
namespace {

using at::Tensor;

// ---- formulas ----

struct Formula {
  const char* name;
  Tensor (*apply)(const Tensors& a);
};
std::ostream& operator<<(std::ostream& out, const Formula& formula) { return out << formula.name; }

#define FORMULA(name, ...)                                       \
  Formula {                                                      \
    name, [](const Tensors& a) -> Tensor { return __VA_ARGS__; } \
  }

/// Of three tensors with elements in [0.1, 0.9] of sizes 5 x 7.
constexpr Formula kPointwise[] = {
    FORMULA("abs", a[0].abs()),
    FORMULA("acos", a[0].acos()),
    FORMULA("add_alpha", at::add(a[0], a[1], 0.3)),
    FORMULA("addcdiv", at::addcdiv(a[0], a[1], a[2], 0.3)),
    FORMULA("addcmul", at::addcmul(a[0], a[1], a[2], 0.3)),
    FORMULA("asin", a[0].asin()),
    FORMULA("asinh", a[0].asinh()),
    FORMULA("atan", a[0].atan()),
    FORMULA("atan2", at::atan2(a[0], a[1])),
    FORMULA("atanh", a[0].atanh()),
    FORMULA("bce", at::binary_cross_entropy(a[0], a[1].detach())),
    FORMULA("bce_logits", at::binary_cross_entropy_with_logits(a[0], a[1].detach())),
    FORMULA("celu", at::celu(a[0] - 0.5, 0.7)),
    FORMULA("clamp", a[0].clamp(0.3, 0.7)),
    FORMULA("cos", a[0].cos()),
    FORMULA("cosh", a[0].cosh()),
    FORMULA("deg2rad", a[0].deg2rad()),
    FORMULA("digamma", a[0].digamma()),
    FORMULA("div", a[0] / a[1]),
    FORMULA("div_number", a[0] / 0.7),
    FORMULA("elu", at::elu(a[0] - 0.5, 0.7, 1.3, 0.9)),
    FORMULA("erf", a[0].erf()),
    FORMULA("erfc", a[0].erfc()),
    FORMULA("erfinv", a[0].erfinv()),
    FORMULA("exp", a[0].exp()),
    FORMULA("exp2", a[0].exp2()),
    FORMULA("expm1", a[0].expm1()),
    FORMULA("float_power", at::float_power(a[0], 1.7)),
    FORMULA("gelu", at::gelu(a[0])),
    FORMULA("gelu_tanh", at::gelu(a[0], "tanh")),
    FORMULA("hardshrink", at::hardshrink(a[0], 0.3)),
    FORMULA("hardsigmoid", at::hardsigmoid(a[0])),
    FORMULA("hardswish", at::hardswish(a[0])),
    FORMULA("huber", at::huber_loss(a[0], a[1], at::Reduction::Mean, 0.3)),
    FORMULA("hypot", at::hypot(a[0], a[1])),
    FORMULA("i0", a[0].i0()),
    FORMULA("kl_div", at::kl_div(a[0], a[1])),
    FORMULA("l1_loss", at::l1_loss(a[0], a[1])),
    FORMULA("leaky_relu", at::leaky_relu(a[0] - 0.5, 0.3)),
    FORMULA("lerp_number", at::lerp(a[0], a[1], 0.3)),
    FORMULA("lerp", at::lerp(a[0], a[1], a[2])),
    FORMULA("lgamma", a[0].lgamma()),
    FORMULA("log", a[0].log()),
    FORMULA("log10", a[0].log10()),
    FORMULA("log1p", a[0].log1p()),
    FORMULA("log2", a[0].log2()),
    FORMULA("log_sigmoid", at::log_sigmoid(a[0])),
    FORMULA("log_softmax", a[0].log_softmax(1)),
    FORMULA("logaddexp", at::logaddexp(a[0], a[1])),
    FORMULA("logaddexp2", at::logaddexp2(a[0], a[1])),
    FORMULA("logcumsumexp", a[0].logcumsumexp(1)),
    FORMULA("logit", a[0].logit(0.2)),
    FORMULA("logsumexp", a[0].logsumexp({1})),
    FORMULA("mean", a[0].mean({1})),
    FORMULA("mish", at::mish(a[0])),
    FORMULA("mse_loss", at::mse_loss(a[0], a[1])),
    FORMULA("mul", a[0] * a[1]),
    FORMULA("mul_number", a[0] * 1.1),
    FORMULA("mvlgamma", at::mvlgamma(a[0] + 1, 2)),
    FORMULA("norm", a[0].norm(3, {1})),
    FORMULA("polygamma", at::polygamma(1, a[0])),
    FORMULA("pow", a[0].pow(a[1])),
    FORMULA("pow_number", a[0].pow(1.7)),
    FORMULA("pow_of_a_number", at::pow(1.7, a[0])),
    FORMULA("rad2deg", a[0].rad2deg()),
    FORMULA("reciprocal", a[0].reciprocal()),
    FORMULA("renorm", a[0].renorm(2, 0, 0.7)),
    FORMULA("rsqrt", a[0].rsqrt()),
    FORMULA("rsub", at::rsub(a[0], a[1], 0.3)),
    FORMULA("selu", at::selu(a[0] - 0.5)),
    FORMULA("sigmoid", a[0].sigmoid()),
    FORMULA("silu", at::silu(a[0])),
    FORMULA("sin", a[0].sin()),
    FORMULA("sinc", a[0].sinc()),
    FORMULA("sinh", a[0].sinh()),
    FORMULA("smooth_l1", at::smooth_l1_loss(a[0], a[1], at::Reduction::Mean, 0.3)),
    FORMULA("soft_margin", at::soft_margin_loss(a[0], a[1].detach())),
    FORMULA("softmax", a[0].softmax(1)),
    FORMULA("softplus", at::softplus(a[0], 1.3)),
    FORMULA("softshrink", at::softshrink(a[0], 0.3)),
    FORMULA("special_entr", at::special_entr(a[0])),
    FORMULA("special_i1", at::special_i1(a[0])),
    FORMULA("special_log_ndtr", at::special_log_ndtr(a[0])),
    FORMULA("special_ndtri", at::special_ndtri(a[0])),
    FORMULA("special_xlog1py", at::special_xlog1py(a[0], a[1])),
    FORMULA("sqrt", a[0].sqrt()),
    FORMULA("std", a[0].std(1)),
    FORMULA("sub_alpha", at::sub(a[0], a[1], 0.3)),
    FORMULA("tan", a[0].tan()),
    FORMULA("tanh", a[0].tanh()),
    FORMULA("threshold", at::threshold(a[0], 0.3, 0.7)),
    FORMULA("var", a[0].var(1)),
    FORMULA("xlogy", at::xlogy(a[0], a[1])),
};

/// Of matrices of sizes 5 x 7, 7 x 5 and 5 x 5.
constexpr Formula kProducts[] = {
    FORMULA("addmm", at::addmm(a[2], a[0], a[1], 0.7, 1.1)),
    FORMULA("addmv", at::addmv(a[2].select(0, 0), a[0], a[1].select(1, 0), 0.7, 1.1)),
    FORMULA("addr", at::addr(a[2], a[0].select(1, 0), a[1].select(0, 0), 0.7, 1.1)),
    FORMULA("baddbmm",
            at::baddbmm(a[2].unsqueeze(0), a[0].unsqueeze(0), a[1].unsqueeze(0), 0.7, 1.1)),
    FORMULA("addbmm", at::addbmm(a[2], a[0].unsqueeze(0), a[1].unsqueeze(0), 0.7, 1.1)),
    FORMULA("cdist", at::cdist(a[0], a[1].t(), 1.5)),
    FORMULA("cosine_similarity", at::cosine_similarity(a[0], a[1].t())),
    FORMULA("cosine_embedding", at::cosine_embedding_loss(a[0], a[1].t(), at::ones({5}), 0.1)),
    FORMULA("layer_norm", at::layer_norm(a[0], {7}, a[1].select(1, 0), a[1].select(1, 1))),
    FORMULA("linear", at::linear(a[0], a[1].t(), a[2].select(0, 0))),
    FORMULA("margin_ranking", at::margin_ranking_loss(a[0], a[1].t(), at::ones({7}), 0.1)),
    FORMULA("matmul", at::matmul(a[0], a[1])),
    FORMULA("nll_loss", at::nll_loss(a[0], at::arange(5))),
    FORMULA("triplet", at::triplet_margin_loss(a[0], a[1].t(), a[1].t() * 0.7, 0.9)),
};

#undef FORMULA

Tensor fractions(at::IntArrayRef sizes, at::ScalarType dtype) {
  return (torch::rand(sizes) * 0.8 + 0.1).to(dtype).requires_grad_();
}

void expect_eagers_bits(const Formula& formula, const std::vector<std::vector<int64_t>>& sizes) {
  if (backend_rounds()) GTEST_SKIP() << "rounds in its own way";
  int compared = 0;
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
    SCOPED_TRACE(c10::toString(dtype));
    const auto make = [&] {
      Case inputs;
      for (const std::vector<int64_t>& size : sizes)
        inputs.arguments.push_back(fractions(size, dtype));
      return inputs;
    };
    // Twice: what a formula makes in the middle of a backward is memory that may be used again.
    const Program program = [&](const Tensors& a) {
      const Tensor once = formula.apply(a);
      return Tensors{once, once.sin() * 1.1};
    };
    try {
      torch::manual_seed(1);
      const Tensors results = program(make().arguments);
      (results[0].sum() + results[1].sum()).backward();
    } catch (const c10::Error&) {
      continue;  // no kernel for this dtype
    }
    expect_like_eager(make, program);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

class Formulas : public ::testing::TestWithParam<Formula> {};
TEST_P(Formulas, HaveEagersBits) { expect_eagers_bits(GetParam(), {{5, 7}, {5, 7}, {5, 7}}); }

class ProductFormulas : public ::testing::TestWithParam<Formula> {};
TEST_P(ProductFormulas, HaveEagersBits) {
  expect_eagers_bits(GetParam(), {{5, 7}, {7, 5}, {5, 5}});
}

constexpr auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Pointwise, Formulas, ::testing::ValuesIn(kPointwise), kName);
INSTANTIATE_TEST_SUITE_P(Products, ProductFormulas, ::testing::ValuesIn(kProducts), kName);

// ---- in place ----

Case sixteen_bits() {
  return {{fractions({5, 7}, at::kBFloat16), fractions({5, 7}, at::kHalf),
           fractions({}, at::kBFloat16), fractions({1}, at::kHalf), fractions({5}, at::kFloat)},
          {}};
}

// mul_ with a number rounds it to 16 bits, mul and the gradient of both do not.
TEST(InPlace, ProductsWithANumberRoundLikeEagers) {
  expect_like_eager(sixteen_bits, [](const Tensors& a) {
    Tensors results;
    for (const Tensor& x : a) {
      results.push_back(x.clone().mul_(1.1) + 0);
      results.push_back(x.clone().multiply_(1.1).mul(1.1));
      results.push_back((x * 1.1).mul_(3) + 0);
      const Tensor whole = x.exp();
      whole.view({-1}).slice(0, 0, 1).mul_(1.1);
      results.push_back(whole + 0);
    }
    return results;
  });
}

TEST(InPlace, ProductsOfArgumentsWithANumberRoundLikeEagers) {
  expect_like_eager(
      [] {
        return Case{{fractions({5}, at::kBFloat16).detach(), fractions({5}, at::kHalf).detach()},
                    {}};
      },
      [](const Tensors& a) {
        const Tensor before = a[0] * 1.1;
        a[0].mul_(1.1);
        at::mul_out(const_cast<Tensor&>(a[1]), a[1], at::scalar_tensor(1.1));
        return Tensors{before, a[0] * 1.1};
      });
}

TEST(InPlace, ListsTimesANumberRoundLikeEagers) {
  expect_like_eager(sixteen_bits, [](const Tensors& a) {
    const torch::NoGradGuard no_grad;
    Tensors copies, more;
    std::vector<at::Scalar> numbers;
    for (const Tensor& x : a) {
      copies.push_back(x.clone());
      more.push_back(x.clone());
      numbers.emplace_back(1.1 + 0.1 * static_cast<double>(numbers.size()));
    }
    at::_foreach_mul_(copies, 1.1);
    at::_foreach_mul_(more, numbers);
    const Tensors apart = at::_foreach_mul(a, 1.1);
    copies.insert(copies.end(), more.begin(), more.end());
    for (Tensor& copy : copies) copy = copy + 0;
    copies.insert(copies.end(), apart.begin(), apart.end());
    return copies;
  });
}

// A call that raises between the question and the answer leaves nothing behind.
TEST(InPlace, AProductThatRaisesDoesNotRoundTheNext) {
  expect_like_eager(sixteen_bits, [](const Tensors& a) {
    try {
      at::ones({2}, at::kLong).mul_(1.1);
    } catch (const c10::Error&) {
    }
    return Tensors{a[0] * 1.1};
  });
}

// ---- errors that nobody reads ----

struct Raising {
  const char* name;
  const char* words;
  Tensor (*apply)(const Tensors& a);
};
std::ostream& operator<<(std::ostream& out, const Raising& raising) { return out << raising.name; }

#define RAISING(name, words, ...)                                       \
  Raising {                                                             \
    name, words, [](const Tensors& a) -> Tensor { return __VA_ARGS__; } \
  }

/// Of a matrix, integers that are no indices of it, and zeros of integers.
constexpr Raising kRaising[] = {
    RAISING("binary_cross_entropy", "between 0 and 1", at::binary_cross_entropy(a[0] + 2, a[0])),
    RAISING("cholesky", "not positive-definite", at::cholesky(-a[3])),
    RAISING("div_floor", "ZeroDivisionError", at::div(a[1], a[2], "floor")),
    RAISING("div_trunc", "ZeroDivisionError", at::div(a[1], a[2], "trunc")),
    RAISING("embedding", "out of range", at::embedding(a[0], a[1])),
    RAISING("floor_divide", "ZeroDivisionError", at::floor_divide(a[1], a[2])),
    RAISING("fmod", "ZeroDivisionError", at::fmod(a[1], a[2])),
    RAISING("gather", "out of bounds", a[0].gather(0, a[1].unsqueeze(1))),
    RAISING("index", "out of bounds", a[0].index({a[1]})),
    RAISING("index_add", "out of bounds", a[0].index_add(0, a[1], a[0])),
    RAISING("index_copy", "out of bounds", a[0].index_copy(0, a[1], a[0])),
    RAISING("index_fill", "out of bounds", a[0].index_fill(0, a[1], 1)),
    RAISING("index_put", "out of bounds", a[0].index_put({a[1]}, a[0])),
    RAISING("index_select", "out of range", a[0].index_select(0, a[1])),
    RAISING("linalg_eigh", "failed to converge", std::get<0>(at::linalg_eigh(a[3] / 0))),
    RAISING("linalg_inv", "singular", at::linalg_inv(a[3] * 0)),
    RAISING("masked_scatter", "source", a[0].masked_scatter(a[0] < 2, a[0].select(0, 0))),
    RAISING("multi_margin_loss", "out of range", at::multi_margin_loss(a[0], a[1])),
    RAISING("nll_loss", "out of bounds", at::nll_loss(a[0], a[1])),
    RAISING("put", "out of range", a[0].put(a[1] * 9, a[0].select(1, 0))),
    RAISING("remainder", "ZeroDivisionError", at::remainder(a[1], a[2])),
    RAISING("remainder_of_a_number", "ZeroDivisionError", at::remainder(7, a[2])),
    RAISING("remainder_by_zero", "ZeroDivisionError", at::remainder(a[1], 0)),
    RAISING("scatter", "out of bounds", a[0].scatter(0, a[1].unsqueeze(1), a[0])),
    RAISING("scatter_add", "out of bounds", a[0].scatter_add(0, a[1].unsqueeze(1), a[0])),
    RAISING("take", "out of range", a[0].take(a[1] * 9)),
};

#undef RAISING

Case for_errors(bool with_grad) {
  return {{torch::rand({3, 3}).requires_grad_(with_grad), torch::tensor({5, 6, 7}),
           torch::zeros({3}, torch::kLong), torch::eye(3)},
          {}};
}

class UnreadErrors : public ::testing::TestWithParam<Raising> {};

TEST_P(UnreadErrors, AreRaisedLikeEagers) {
  for (const bool with_grad : {false, true}) {
    SCOPED_TRACE(with_grad ? "with gradients" : "without gradients");
    const auto make = [&] { return for_errors(with_grad); };
    expect_both_throw(
        make,
        [](const Tensors& a) {
          GetParam().apply(a).sin();
          a[1].add_(1);
          return Tensors{a[0] * 2};
        },
        GetParam().words);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, UnreadErrors, ::testing::ValuesIn(kRaising), kName);

// ---- sizes of zero ----

TEST(EmptySizes, IndicesOfNothing) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 4}, {0, 4}, {3, 0}, {0}, {}}) {
    SCOPED_TRACE(c10::Join("x", sizes));
    const int64_t dim = 0;
    expect_like_eager(
        [&] {
          return Case{{torch::rand(sizes).requires_grad_(), torch::empty({0}, torch::kLong)}, {}};
        },
        [&](const Tensors& a) {
          if (a[0].dim() == 0) return Tensors{a[0].take(a[1])};
          const Tensor picked = a[0].index_select(dim, a[1]);
          return Tensors{picked,
                         a[0].index_add(dim, a[1], picked),
                         a[0].take(a[1]),
                         a[0].index({a[1]}),
                         a[0].index_copy(dim, a[1], picked),
                         a[0].index_fill(dim, a[1], 1)};
        });
  }
}

TEST(EmptySizes, Products) {
  const auto product = [](std::vector<int64_t> left, std::vector<int64_t> right) {
    SCOPED_TRACE(c10::Join("x", left) + " and " + c10::Join("x", right));
    expect_like_eager(
        [&] {
          return Case{{torch::rand(left).requires_grad_(), torch::rand(right).requires_grad_()},
                      {}};
        },
        [](const Tensors& a) { return Tensors{a[0].matmul(a[1])}; });
  };
  product({3, 4}, {5, 4, 6});
  product({0, 0}, {5, 0, 0});
  product({0, 3}, {5, 3, 4});
  product({4, 0}, {5, 0, 4});
  product({2, 0, 4, 3}, {3, 2});
  product({5, 0, 0}, {0, 0});
  product({0, 3}, {3, 0});
  product({3, 0}, {0, 3});
  product({0, 4, 3}, {3, 2});
  product({0}, {0});
  product({4, 0}, {0});
}

}  // namespace
}  // namespace tandem::test
