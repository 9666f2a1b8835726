#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

// Where libtorch's kernel would raise, a kernel of ours must not compute: eager's error comes, word
// for word, and nothing was written.

namespace tandem::loops {
namespace {

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

}  // namespace
}  // namespace tandem::loops
