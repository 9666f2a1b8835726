/// Sizes that depend on data: one compile serves whatever the data gives, none and one included.
#include "support/error_text.h"
#include "support/node_line.h"
#include "support/one_thread.h"
#include "support/same_bits.h"
#include "support/steps_like_eager.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#define HERE line_of(__FILE__, __LINE__)

namespace tandem::test {
namespace {

namespace nn = torch::nn;
using torch::indexing::Slice;

using T = at::Tensor;
using Tensors = std::vector<T>;
using Program = std::function<Tensors(const Tensors&)>;
/// The arguments of the n-th call.
using Arguments = std::function<Tensors(int)>;

constexpr int64_t kRows = 6, kColumns = 4;
/// How many rows the masks of the calls let through.
constexpr int64_t kCounts[] = {3, 0, 1, kRows, 2, 5, 0};

T leaf(T tensor) { return tensor.requires_grad_(true); }

T numbers(int call, at::IntArrayRef sizes) {
  torch::manual_seed(static_cast<uint64_t>(call + 1));
  return torch::randn(sizes);
}

T mask(int call) {
  torch::manual_seed(static_cast<uint64_t>(call + 100));
  const T order = torch::randperm(kRows);
  return order < kCounts[call];
}

/// Rows and a mask over them.
Tensors rows_and_mask(int call) { return {leaf(numbers(call, {kRows, kColumns})), mask(call)}; }

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

struct Seen {
  Tensors results{}, arguments{}, gradients{};
  std::vector<uint32_t> versions{};
  std::string error{};
};

template <class Function>
Seen run(const Function& function, const Tensors& arguments) {
  Seen seen;
  try {
    torch::manual_seed(5);
    seen.results = function(arguments);
  } catch (const c10::Error& error) {
    seen.error = error.what_without_backtrace();
    return seen;
  }
  T loss;
  for (const T& result : seen.results) {
    if (!result.requires_grad()) continue;
    const T part = (result * result.detach().cos()).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();
  for (const T& argument : arguments) {
    seen.arguments.push_back(argument.detach());
    seen.gradients.push_back(argument.grad());
    seen.versions.push_back(argument._version());
  }
  return seen;
}

void expect_same(const Tensors& eager, const Tensors& compiled, const char* what) {
  ASSERT_EQ(eager.size(), compiled.size()) << what;
  for (size_t i = 0; i < eager.size(); ++i) {
    SCOPED_TRACE(std::string(what) + " " + std::to_string(i));
    ASSERT_EQ(eager[i].defined(), compiled[i].defined());
    if (!eager[i].defined()) continue;
    EXPECT_EQ(eager[i].sizes(), compiled[i].sizes());
    EXPECT_EQ(eager[i].requires_grad(), compiled[i].requires_grad());
    if (eager[i].numel() > 0) EXPECT_EQ(eager[i].strides(), compiled[i].strides());
    EXPECT_TRUE(same_bits(eager[i], compiled[i]));
  }
}

/// One compile, and at each count what eager does.
void expect_one_compile(const Arguments& arguments, const Program& program) {
  const OneThread one_thread;
  auto compiled = tandem::compile<Tensors(Tensors)>(program);
  for (int call = 0; call < std::ssize(kCounts); ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    WideRun wide_run;
    const Seen eager = [&] {
      const WideRun::Scope scope(wide_run);
      return run(program, arguments(call));
    }();
    const Seen seen = run(compiled, arguments(call));
    EXPECT_EQ(eager.error, seen.error);
    expect_same(eager.results, seen.results, "result");
    expect_same(eager.arguments, seen.arguments, "argument");
    expect_same(eager.gradients, seen.gradients, "gradient");
    EXPECT_EQ(eager.versions, seen.versions);
  }
  EXPECT_EQ(compiled.stats().compiles, 1) << compiled.report();
  EXPECT_EQ(compiled.stats().variants, 1) << compiled.report();
  EXPECT_EQ(compiled.stats().eager_calls, 0) << compiled.report();
}

// ---- ops ----

TEST(DataSizes, Nonzero) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors { return {a[1].nonzero()}; });
  expect_one_compile(rows_and_mask,
                     [](const Tensors& a) -> Tensors { return {a[0].gt(0).nonzero()}; });
}

TEST(DataSizes, RowsByTheirPlaces) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T rows = a[1].nonzero().squeeze(1);
    const T taken = a[0].index_select(0, rows).tanh();
    return {taken, taken.sum(), taken.mean(0), taken.sum(1, /*keepdim=*/true)};
  });
}

TEST(DataSizes, LinearLayersAndBack) {
  const Arguments arguments = [](int call) {
    Tensors all = rows_and_mask(call);
    all.push_back(leaf(numbers(call + 50, {3, kColumns})));
    all.push_back(leaf(numbers(call + 60, {3})));
    return all;
  };
  expect_one_compile(arguments, [](const Tensors& a) -> Tensors {
    const T rows = a[1].nonzero().squeeze(1);
    const T hidden = torch::relu(torch::linear(a[0].index_select(0, rows), a[2], a[3]));
    return {torch::zeros({kRows, 3}).index_add(0, rows, hidden),
            torch::zeros({kRows, 3}).index_put({rows}, hidden),
            torch::zeros({kRows, 3}).scatter_add(0, rows.unsqueeze(1).expand({-1, 3}), hidden)};
  });
}

TEST(DataSizes, AttentionAmongTheRowsThatAreThere) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T rows = a[0].index({a[1]});
    return {torch::matmul(torch::softmax(torch::matmul(rows, rows.t()), -1), rows)};
  });
}

TEST(DataSizes, Masks) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    return {a[0].index({a[1]}).sin(), a[0].index({a[0] > 0}).exp(),
            a[0].index({a[1], Slice(0, 2)}) * 2, a[0].masked_select(a[0] < 0.5).cos()};
  });
}

TEST(DataSizes, OneMaskGivesOneSize) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T places = a[1].nonzero().squeeze(1);
    return {a[0].index({a[1]}) + a[0].cos().index({a[1]}) * a[0].index_select(0, places),
            a[0].select(1, 0).masked_select(a[1]) - a[0].select(1, 1).index({a[1]})};
  });
}

TEST(DataSizes, WritesByAMask) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    T doubled = a[0] * 1;
    doubled.index_put_({a[1]}, doubled.index({a[1]}) * 2);
    T halved = a[0] * 1;
    halved.index_put_({a[1]}, torch::full({}, 0.5));
    return {doubled, halved};
  });
}

TEST(DataSizes, AnArgumentIsWritten) {
  expect_one_compile(
      [](int call) -> Tensors { return {numbers(call, {kRows, kColumns}), mask(call)}; },
      [](const Tensors& a) -> Tensors {
        T x = a[0];
        x.index_put_({a[1]}, x.index({a[1]}) * 2);
        return {x.sum()};
      });
}

TEST(DataSizes, UniqueRepeatedAndCounted) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T whole = a[0].detach().mul(2).round();
    const auto [values, places, counts] = at::_unique2(whole, true, true, true);
    return {values, places, counts, a[0].repeat_interleave(a[1].to(at::kLong) * 2 + 1, 0).cos(),
            at::bincount(whole.abs().flatten().to(at::kLong))};
  });
}

TEST(DataSizes, PartsPutTogetherAgain) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T in = a[0].index({a[1]}), out = a[0].index({a[1].logical_not()});
    const T all = torch::cat({in.sin(), out.cos(), in});
    return {all, all.reshape({-1, 2}).sum(0), in.view({-1}).exp()};
  });
}

TEST(DataSizes, OneSizeFollowsFromAnother) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T in = a[0].index({a[1]});
    const T again = in.index({in.select(1, 0) > 0});
    return {again.exp(), torch::cat({in, again}).sum(1)};
  });
}

TEST(DataSizes, ASymbolicSizeIsHandedOn) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const c10::SymInt count = a[1].nonzero().sym_size(0);
    return {torch::zeros_symint({count * 2 + 1, 3}),
            a[0].select(0, 0).expand_symint({count, kColumns}).cos()};
  });
}

TEST(DataSizes, ANumberThatItemReadsIsHandedOn) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const at::Scalar count = a[1].sum().item();
    const c10::SymInt rows = count.toSymInt();
    return {torch::zeros_symint({rows, 3}), (a[0] * count).sin(),
            torch::ones_symint({rows + 2}).sum() * a[0]};
  });
}

TEST(DataSizes, ResultsThatAreViews) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T in = a[0].index({a[1]}) * 2;
    return {in.t(), in.select(1, 0)};
  });
}

TEST(DataSizes, LossOverWhatIsLabelled) {
  const Arguments arguments = [](int call) {
    Tensors all = rows_and_mask(call);
    all.push_back(torch::arange(kRows) % kColumns);
    return all;
  };
  expect_one_compile(arguments, [](const Tensors& a) -> Tensors {
    return {nn::functional::cross_entropy(a[0].index({a[1]}), a[2].index({a[1]}))};
  });
}

TEST(DataSizes, DrawsForWhatIsThere) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T in = torch::dropout(a[0].index({a[1]}), 0.5, true);
    return {in * 2, torch::rand_like(in) + torch::rand({kColumns})};
  });
}

// As eager's: the kernel looks at what is there when it runs.
TEST(DataSizes, AnErrorOfAnEmptyTensor) {
  expect_one_compile(rows_and_mask,
                     [](const Tensors& a) -> Tensors { return {a[0].index({a[1]}).max()}; });
}

TEST(DataSizes, BackwardOfSomeResults) {
  const OneThread one_thread;
  const Program program = [](const Tensors& a) -> Tensors {
    const T in = a[0].index({a[1]});
    return {in.sin(), in.cos()};
  };
  auto compiled = tandem::compile<Tensors(Tensors)>(program);
  for (int call = 0; call < std::ssize(kCounts); ++call) {
    for (size_t which : {0, 1}) {
      const Tensors a = rows_and_mask(call), b = rows_and_mask(call);
      program(a)[which].sum().backward();
      compiled(b)[which].sum().backward();
      EXPECT_TRUE(same_bits(a[0].grad(), b[0].grad())) << call << " " << which;
    }
  }
}

// What is written down says all of it.
TEST(DataSizes, TextsParseBack) {
  auto compiled = tandem::compile<Tensors(Tensors)>([](const Tensors& a) -> Tensors {
    const T in = a[0].index({a[1]});
    return {torch::cat({in.sin(), in}).reshape({-1}), in.t()};
  });
  compiled(rows_and_mask(0));
  const Entry entry = compiled.entries().at(0);
  for (const ir::Graph& graph : {entry.joint(), entry.forward(), entry.backward()}) {
    const std::string text = ir::print(graph);
    EXPECT_TRUE(has(text, "u0: 0..6")) << text;
    const ir::Graph parsed = ir::parse(text);
    EXPECT_EQ(ir::print(parsed), text);
    EXPECT_EQ(ir::structural_hash(parsed), ir::structural_hash(graph));
    EXPECT_TRUE(ir::violations(graph).empty());
  }
  const std::string signature = ir::print(entry.signature());
  EXPECT_TRUE(has(signature, "[u0, 4]")) << signature;
  EXPECT_EQ(ir::print(ir::parse_signature(signature)), signature);
}

// ---- a model ----

/// Each token goes to its two best experts, however many come to each.
struct MixtureImpl : nn::Module {
  MixtureImpl() {
    for (int i = 0; i < kExperts; ++i)
      experts->push_back(nn::Sequential(nn::Linear(8, 12), nn::GELU(), nn::Linear(12, 8)));
  }
  T forward(const T& x) {
    const auto [weights, chosen] = torch::softmax(gate(x), 1).topk(2, 1);
    T result = torch::zeros_like(x);
    for (int i = 0; i < kExperts; ++i) {
      const T places = (chosen == i).nonzero();
      const T tokens = places.select(1, 0), rank = places.select(1, 1);
      const T hidden =
          experts[static_cast<size_t>(i)]->as<nn::Sequential>()->forward(x.index_select(0, tokens));
      result = result.index_add(0, tokens, hidden * weights.index({tokens, rank}).unsqueeze(1));
    }
    return head(x + result);
  }
  static constexpr int kExperts = 4;
  nn::Linear gate = register_module("gate", nn::Linear(8, kExperts));
  nn::ModuleList experts = register_module("experts", nn::ModuleList());
  nn::Linear head = register_module("head", nn::Linear(8, 3));
};
TORCH_MODULE(Mixture);

constexpr int kSteps = 20;

struct Training {
  explicit Training(bool adam) : net((torch::manual_seed(3), Mixture())) {
    if (adam) {
      optimizer =
          std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(0.01));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                      torch::optim::SGDOptions(0.05).momentum(0.9));
    }
    torch::manual_seed(4);
    for (int step = 0; step < kSteps; ++step) {
      T x = torch::randn({10, 8});
      // All tokens alike go to the same experts, and none to the others.
      if (step % 5 == 3) x = x.select(0, 0).expand({10, 8}).clone();
      batches.push_back({x, torch::randint(3, {10})});
    }
  }
  Mixture net;
  std::unique_ptr<torch::optim::Optimizer> optimizer{};
  std::vector<Tensors> batches{};
};

template <class Loss>
Tensors train(Training& training, const Loss& loss_of, int begin, int end) {
  Tensors seen;
  for (int step = begin; step < end; ++step) {
    training.optimizer->zero_grad();
    const Tensors& batch = training.batches[static_cast<size_t>(step)];
    const T loss = loss_of(batch[0], batch[1]);
    loss.backward();
    training.optimizer->step();
    seen.push_back(loss.detach());
  }
  for (const T& parameter : training.net->parameters()) {
    seen.push_back(parameter.detach().clone());
    seen.push_back(parameter.grad().clone());
  }
  return seen;
}

void take_over(Training& training, const Training& from) {
  const Tensors to = training.net->parameters(), source = from.net->parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].data().copy_(source[i].data());
  std::stringstream state;
  torch::save(*from.optimizer, state);
  torch::load(*training.optimizer, state);
}

class MixtureOfExperts : public testing::TestWithParam<bool> {};

TEST_P(MixtureOfExperts, TrainsAsOneEntry) {
  const OneThread one_thread;
  Training eager(GetParam()), twin(GetParam());
  const auto loss_with = [](Mixture& net) {
    return [&net](const T& x, const T& y) {
      return nn::functional::cross_entropy(net->forward(x), y);
    };
  };
  const auto compiled = tandem::compile(twin.net, loss_with(twin.net));
  expect_steps_like_eager(
      kSteps, [&] { take_over(twin, eager); },
      [&](int begin, int end) { return train(eager, loss_with(eager.net), begin, end); },
      [&](int begin, int end) { return train(twin, compiled, begin, end); },
      [](const Tensors& a, const Tensors& b) { expect_same(a, b, "value"); });
  const Stats stats = compiled.stats();
  EXPECT_EQ(stats.compiles, 1) << compiled.report();
  EXPECT_EQ(stats.variants, 1) << compiled.report();
  EXPECT_EQ(stats.eager_calls, 0) << compiled.report();
}

INSTANTIATE_TEST_SUITE_P(DataSizes, MixtureOfExperts, testing::Bool(),
                         [](const auto& info) { return info.param ? "Adam" : "Sgd"; });

// ---- what is refused ----

std::string refusal(const Program& program) {
  auto compiled = tandem::compile<Tensors(Tensors)>(program);
  return error_text<UnsupportedError>([&] { compiled(rows_and_mask(0)); });
}

TEST(DataSizes, ASizeReadAsANumberIsRefusedWithItsLine) {
  std::string line;
  const std::string words = "the function reads a size that depends on data as a number";
  const std::string text = refusal([&](const Tensors& a) -> Tensors {
    const T rows = a[1].nonzero();
    return line = HERE, Tensors{a[0] * rows.size(0)};
  });
  EXPECT_TRUE(has(text, words)) << text;
  EXPECT_TRUE(has(text, line)) << text;
  EXPECT_TRUE(has(text, "sym_size")) << text;
  for (const Program& program : std::vector<Program>{
           [](const Tensors& a) -> Tensors {
             const T rows = a[1].nonzero().squeeze(1);
             if (rows.size(0) == 0) return {a[0]};
             return {a[0].index_select(0, rows)};
           },
           [](const Tensors& a) -> Tensors {
             const T rows = a[1].nonzero().squeeze(1);
             if (rows.sym_size(0) == 0) return {a[0]};
             return {a[0].index_select(0, rows)};
           },
           [](const Tensors& a) -> Tensors { return {a[0] * a[1].nonzero().numel()}; },
           [](const Tensors& a) -> Tensors { return {a[0] * at::size(a[1].nonzero(), 0)}; },
           [](const Tensors& a) -> Tensors {
             if (a[1].nonzero().sym_size(0).guard_int(__FILE__, __LINE__) % 4 == 0) return {a[0]};
             return {a[0] * 2};
           },
           [](const Tensors& a) -> Tensors {
             const T in = a[0].index({a[1]});
             return {in.sizes() == a[0].sizes() ? in : in * 2};
           },
       }) {
    const std::string other = refusal(program);
    EXPECT_TRUE(has(other, words)) << other;
  }
}

TEST(DataSizes, ANumberThatSteersHostCodeIsRefused) {
  const std::string text = refusal([](const Tensors& a) -> Tensors {
    if (a[1].sum().item<int64_t>() > 0) return {a[0]};
    return {a[0] * 2};
  });
  EXPECT_TRUE(has(text, "the function reads a size that depends on data as a number")) << text;
  for (const Program& program : std::vector<Program>{
           [](const Tensors& a) -> Tensors { return {a[1].sum().is_nonzero() ? a[0] : a[0] * 2}; },
           [](const Tensors& a) -> Tensors { return {a[0] * a[0].sum().item()}; },
           [](const Tensors& a) -> Tensors { return {a[1].any().item<bool>() ? a[0] : a[0] * 2}; },
       }) {
    const std::string other = refusal(program);
    EXPECT_TRUE(has(other, "item() or a branch on a tensor reads the value")) << other;
  }
}

TEST(DataSizes, ANegativeNumberIsNotFollowed) {
  auto compiled = tandem::compile<Tensors(Tensors)>(
      [](const Tensors& a) -> Tensors { return {a[0] * a[1].sum().neg().item()}; });
  const std::string text = error_text<UserError>([&] { compiled(rows_and_mask(0)); });
  EXPECT_TRUE(has(text, "item() reads -3 in a compiled function")) << text;
}

// Only what depends on data may not be read.
TEST(DataSizes, OtherSizesAreRead) {
  expect_one_compile(rows_and_mask, [](const Tensors& a) -> Tensors {
    const T in = a[0].index({a[1]});
    return {in * a[0].size(0) + a[0].numel(),
            torch::zeros({kRows}).masked_fill(a[1], 1) * static_cast<double>(a[0].sizes()[1])};
  });
}

TEST(DataSizes, ReadsRunEagerlyIfAskedTo) {
  const Program program = [](const Tensors& a) -> Tensors {
    const T rows = a[1].nonzero().squeeze(1);
    if (rows.size(0) == 0) return {a[0] * 1};
    return {a[0].index_select(0, rows)};
  };
  auto compiled =
      tandem::compile<Tensors(Tensors)>(program, {.on_unsupported = OnUnsupported::eager});
  for (int call = 0; call < std::ssize(kCounts); ++call) {
    const Tensors a = rows_and_mask(call);
    EXPECT_TRUE(same_bits(program(a)[0], compiled(a)[0]));
  }
  EXPECT_EQ(compiled.stats().eager_calls, std::ssize(kCounts));
}

TEST(DataSizes, SizesThatNeedNotFitAreRefused) {
  const std::string text = refusal([](const Tensors& a) -> Tensors {
    return {a[0].select(1, 0).index({a[1]}) + a[0].index({a[0] > 0})};
  });
  EXPECT_TRUE(has(text, "some sizes that depend on data")) << text;
}

// Where one row is left, eager's squeeze() takes its dimension, too.
TEST(DataSizes, ADimensionThatComesAndGoesIsRefused) {
  std::string line;
  const std::string text = refusal([&](const Tensors& a) -> Tensors {
    return line = HERE, Tensors{a[1].nonzero().squeeze() + 1};
  });
  EXPECT_TRUE(has(text, "aten.squeeze gives another number of dimensions")) << text;
  EXPECT_TRUE(has(text, line)) << text;
}

TEST(DataSizes, GradientsOfGradientsAreRefused) {
  auto compiled = tandem::compile<Tensors(Tensors)>(
      [](const Tensors& a) -> Tensors { return {a[0].index({a[1]}).pow(3)}; });
  const Tensors a = rows_and_mask(0);
  const T loss = compiled(a)[0].sum();
  const std::string text = error_text<UnsupportedError>(
      [&] { torch::autograd::grad({loss}, {a[0]}, {}, true, /*create_graph=*/true); });
  EXPECT_TRUE(has(text, "of a function with sizes that depend on data")) << text;
  loss.backward();
  EXPECT_TRUE(a[0].grad().defined());
}

// A check traces the function as the compile did, and finds the same.
TEST(DataSizes, SelfChecks) {
  auto compiled = tandem::compile<Tensors(Tensors)>(
      [](const Tensors& a) -> Tensors { return {a[0].index({a[1]}).sin()}; }, {.verify_every = 1});
  for (int call = 0; call < std::ssize(kCounts); ++call) {
    const Tensors a = rows_and_mask(call);
    EXPECT_TRUE(same_bits(compiled(a)[0], a[0].index({a[1]}).sin()));
  }
  EXPECT_GT(compiled.stats().checks, 0);
  EXPECT_EQ(compiled.stats().compiles, 1);
}

// Other sizes of arguments are another variant of the same entry, as ever.
TEST(DataSizes, TogetherWithSizesThatChange) {
  const auto program = [](const T& x) { return x.index({x.select(1, 0) > 0}).exp(); };
  auto compiled = tandem::compile(program);
  for (const int64_t rows : {6, 9, 2, 6, 9}) {
    const T x = numbers(static_cast<int>(rows), {rows, 3});
    EXPECT_TRUE(same_bits(compiled(x), program(x))) << rows;
  }
  EXPECT_EQ(compiled.stats().entries, 1) << compiled.report();
  EXPECT_EQ(compiled.stats().variants, 3) << compiled.report();
}

TEST(DataSizes, ExplainSaysWhichTheyAre) {
  std::string line;
  auto compiled = tandem::compile([&](const T& x) { return line = HERE, x.nonzero(); });
  compiled(torch::ones({6}));
  const std::string page = compiled.explain(torch::ones({6}));
  EXPECT_TRUE(has(page, "sizes that depend on data")) << page;
  EXPECT_TRUE(has(page, "u0  0 to 6  aten.nonzero (")) << page;
  EXPECT_TRUE(has(page, line)) << page;
}

}  // namespace
}  // namespace tandem::test
