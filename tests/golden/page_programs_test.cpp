// The programs of the pages below docs/: what lies between `// [name]` and `// [end]` is shown
// there word for word (stage_pages_test.cpp compares), and runs here.

#include "support/environment.h"
#include "support/temporary_folder.h"
#include "tandem/tandem.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace F = torch::nn::functional;

// [anything-struct]
namespace shop {
struct Batch {
  at::Tensor tokens;
  std::optional<at::Tensor> mask;
  int64_t length = 0;
};
TANDEM_STRUCT(Batch, tokens, mask, length)  // beside the type, in its namespace
}  // namespace shop
// [end]

struct NetImpl : torch::nn::Module {
  NetImpl() : fc(register_module("fc", torch::nn::Linear(8, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return fc->forward(x); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

at::Tensor plain_function(const at::Tensor& x) { return x.cos(); }

// [effects-register]
TORCH_LIBRARY(mylib, library) {
  library.def("log(Tensor x, str text) -> ()", [](const at::Tensor& x, c10::string_view text) {
    std::cerr << text << ": " << x.norm().item<double>() << "\n";
  });
}
// [end]

// [step-class]
class Trainer {
 public:
  explicit Trainer(torch::nn::Sequential net)
      : net_(std::move(net)), optimizer_(net_->parameters(), /*lr=*/0.1) {
    step_ = tandem::compile(net_, [this](const at::Tensor& x, const at::Tensor& y) {
      return F::cross_entropy(net_->forward(x), y) * weight_;
    });
  }
  Trainer(const Trainer&) = delete;  // the lambda holds `this`

  at::Tensor train(const at::Tensor& x, const at::Tensor& y) {
    optimizer_.zero_grad();
    at::Tensor loss = step_(x, y);
    loss.backward();
    optimizer_.step();
    return loss;
  }

 private:
  torch::nn::Sequential net_;
  torch::optim::SGD optimizer_;
  const double weight_ = 0.5;  // read when the step is traced: it must not change
  tandem::Compiled<at::Tensor(at::Tensor, at::Tensor)> step_;
};
// [end]

// [step-autocast]
struct Autocast {
  Autocast() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};
// [end]

namespace tandem {
namespace {

struct Batch {
  at::Tensor x, y;
};

std::vector<Batch> make_batches(int count = 4) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back({torch::randn({6, 8}), torch::randint(3, {6})});
  }
  return batches;
}

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Dropout(0.1),
                               torch::nn::Linear(16, 3));
}

auto compile_step(torch::nn::Sequential net) {
  return tandem::compile(net, [net](const at::Tensor& x, const at::Tensor& y) mutable {
    return F::cross_entropy(net->forward(x), y);
  });
}

TEST(TrainingStepPage, OneLine) {
  const std::vector<Batch> batches = make_batches();
  auto net = make_net();
  torch::optim::Adam optimizer(net->parameters());
  // [step-one-line]
  auto step = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net->forward(x), y);
  });

  for (const auto& [x, y] : batches) {
    optimizer.zero_grad();
    at::Tensor loss = step(x, y);  // was: F::cross_entropy(net->forward(x), y)
    loss.backward();
    optimizer.step();
  }
  // [end]
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, AccumulateAndClip) {
  const std::vector<std::vector<Batch>> batches{make_batches(), make_batches()};
  auto net = make_net();
  auto step = compile_step(net);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  // [step-accumulate]
  for (const auto& micro_batches : batches) {
    optimizer.zero_grad();
    for (const auto& [x, y] : micro_batches) {
      (step(x, y) / static_cast<double>(micro_batches.size())).backward();
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
  }
  // [end]
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, Penalty) {
  auto net = make_net();
  const auto [x, y] = make_batches()[0];
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  // [step-penalty]
  auto step = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    at::Tensor loss = F::cross_entropy(net->forward(x), y);
    const auto gradients =
        tandem::grad({loss}, net->parameters(), {}, std::nullopt, /*create_graph=*/true);
    for (const at::Tensor& g : gradients) loss = loss + 0.01 * g.pow(2).sum();
    return loss;
  });

  optimizer.zero_grad();
  step(x, y).backward();
  optimizer.step();
  // [end]
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(SizesPage, Epoch) {
  torch::nn::Linear net(6, 3);
  std::vector<Batch> batches;
  for (int64_t n : {32, 32, 32, 7})
    batches.push_back({torch::randn({n, 2, 3}), torch::randint(3, {n})});
  // [sizes-epoch]
  auto loss = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net(x.view({x.size(0), -1})), y);
  });
  for (const auto& [x, y] : batches) loss(x, y).backward();  // 32, 32, ..., 32, 7
  // [end]
  EXPECT_EQ(loss.stats().entries, 1);
  EXPECT_EQ(loss.stats().variants, 2);
}

TEST(TrainingStepPage, Freeze) {
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  step(x, y).backward();
  // [step-freeze]
  for (at::Tensor& p : net[0]->parameters()) p.requires_grad_(false);
  step(x, y).backward();  // one more entry: without the gradients of the first layer
  for (at::Tensor& p : net[0]->parameters()) p.requires_grad_(true);
  step(x, y).backward();  // the first entry again
  // [end]
  EXPECT_EQ(step.stats().compiles, 2);
}

TEST(TrainingStepPage, Evaluate) {
  auto net = make_net();
  auto step = compile_step(net);
  const std::vector<Batch> validation = make_batches();
  step(validation[0].x, validation[0].y).backward();
  // [step-evaluate]
  net->eval();
  {
    torch::NoGradGuard no_grad;
    double sum = 0;
    for (const auto& [x, y] : validation) sum += step(x, y).item<double>();
    std::cout << "validation loss " << sum / static_cast<double>(validation.size()) << "\n";
  }
  net->train();
  // [end]
  EXPECT_EQ(step.stats().compiles, 2);
}

TEST(TrainingStepPage, SaveAndLoad) {
  const test::TemporaryFolder folder("training_step_page");
  const std::string path = (folder.path() / "net.pt").string();
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  const at::Tensor before = (net->eval(), step(x, y));
  // [step-save]
  torch::save(net, path);
  torch::load(net, path);  // writes into the parameters that exist: nothing is compiled again
  // [end]
  EXPECT_TRUE(step(x, y).equal(before));
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, MixedPrecision) {
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  for (int i = 0; i < 2; ++i) {
    // [step-autocast-use]
    at::Tensor loss;
    {
      Autocast autocast;  // around the call, or inside the function
      loss = step(x, y);
    }
    loss.backward();
    // [end]
  }
  EXPECT_EQ(step.stats().compiles, 1);
}

TEST(TrainingStepPage, InAClass) {
  Trainer trainer(make_net());
  for (const auto& [x, y] : make_batches()) {
    EXPECT_TRUE(trainer.train(x, y).isfinite().item<bool>());
  }
}

TEST(TrainingStepPage, AverageOfTheWeights) {
  auto net = make_net();
  const auto [x, y] = make_batches()[0];
  // [step-average]
  auto average = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  auto predict = tandem::compile(torch::nn::Sequential(average));

  const auto follow = [&] {  // after each optimizer step
    torch::NoGradGuard no_grad;
    const auto now = net->parameters();
    auto averages = average->parameters();
    for (size_t i = 0; i < now.size(); ++i) averages[i].mul_(0.99).add_(now[i], 0.01);
  };
  // [end]
  average->eval();
  for (int i = 0; i < 3; ++i) {
    follow();
    predict(x);
  }
  EXPECT_EQ(predict.stats().compiles, 1);
}

TEST(TrainingStepPage, TwoNetsTwoLosses) {
  torch::nn::Linear generator(4, 8), critic(8, 1);
  torch::optim::Adam generator_optimizer(generator->parameters());
  torch::optim::Adam critic_optimizer(critic->parameters());
  const at::Tensor z = torch::randn({6, 4}), real = torch::randn({6, 8});
  // [step-two]
  auto losses =
      tandem::compile(std::tuple{generator, critic}, [&](const at::Tensor& z, const at::Tensor& x) {
        const at::Tensor fake = generator(z).tanh();
        const at::Tensor for_critic = critic(fake.detach()).mean() - critic(x).mean();
        const at::Tensor for_generator = -critic(fake).mean();
        return std::pair{for_critic, for_generator};
      });

  const auto [for_critic, for_generator] = losses(z, real);
  const auto parameters = generator->parameters();
  const auto gradients = torch::autograd::grad({for_generator}, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
  for_critic.backward();
  generator_optimizer.step();
  critic_optimizer.step();
  // [end]
  EXPECT_TRUE(critic->weight.grad().defined());
}

TEST(TrainingStepPage, PartOfANet) {
  torch::nn::Linear embed(8, 8), head(8, 3);
  auto middle = torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::GELU());
  const auto [x, y] = make_batches()[0];
  // [step-part]
  auto block = tandem::compile(middle);

  at::Tensor h = torch::relu(embed(x));  // eager
  h = block(h) + h;                      // compiled
  F::cross_entropy(head(h), y).backward();
  // [end]
  EXPECT_TRUE(embed->weight.grad().defined());
}

TEST(TrainingStepPage, LookAtIt) {
  auto net = make_net();
  auto step = compile_step(net);
  const auto [x, y] = make_batches()[0];
  step(x, y);
  // [step-look]
  for (const tandem::Miss& miss : step.stats().misses) std::cout << miss << "\n";
  std::cout << step.explain(x, y);  // what a call with these arguments would do
  // [end]
  EXPECT_EQ(step.stats().misses.size(), 1);
}

TEST(CompileAnythingPage, Modules) {
  const test::EnvironmentVariable bits("TANDEM_BACKEND", "eager");  // are compared below
  const auto [x, y] = make_batches()[0];
  // [anything-module-function]
  Net net;
  auto step = tandem::compile(net, [&](const at::Tensor& x, const at::Tensor& y) {
    return F::cross_entropy(net->forward(x), y);
  });
  at::Tensor loss = step(x, y);
  loss.backward();  // net's parameters get their .grad()
  // [end]
  EXPECT_TRUE(net->fc->weight.grad().defined());

  torch::nn::Linear gen(8, 8), disc(8, 1);
  // [anything-two]
  auto both = tandem::compile(std::tuple{gen, disc},
                              [&](const at::Tensor& z) { return disc->forward(gen->forward(z)); });
  // [end]
  EXPECT_TRUE(both(x).equal(disc->forward(gen->forward(x))));

  // [anything-module]
  auto forward = tandem::compile(net);  // net->forward
  auto chain = tandem::compile(torch::nn::Sequential(torch::nn::Linear(8, 4), torch::nn::ReLU()));
  // [end]
  EXPECT_TRUE(forward(x).equal(net->forward(x)));
  EXPECT_EQ(chain(x).size(1), 4);  // Tensor(Tensor)

  torch::nn::MultiheadAttention attention(8, 2);
  // [anything-signature]
  using Attend = std::tuple<at::Tensor, at::Tensor>(at::Tensor, at::Tensor, at::Tensor);
  auto attend = tandem::compile<Attend>(attention);
  // [end]
  const at::Tensor q = torch::randn({2, 3, 8});
  EXPECT_TRUE(std::get<0>(attend(q, q, q)).equal(std::get<0>(attention->forward(q, q, q))));

  // [anything-encode]
  auto encode =
      tandem::compile(net, [&](const shop::Batch& batch) { return net->forward(batch.tokens); });
  // [end]
  EXPECT_TRUE(encode({x, std::nullopt, 6}).equal(net->forward(x)));
}

TEST(CompileAnythingPage, Callables) {
  const test::EnvironmentVariable bits("TANDEM_BACKEND", "eager");  // are compared below
  const at::Tensor w = torch::randn({3}), x = torch::randn({3});
  // [anything-callable]
  auto f = tandem::compile([=](const at::Tensor& x) { return x.sin() * w; });  // a lambda
  auto g = tandem::compile(plain_function);
  auto h = tandem::compile(std::function<at::Tensor(at::Tensor)>(f));
  auto c = tandem::compile(f, {.max_entries = 2});  // another compiled function
  // one of several functions of this name
  auto s = tandem::compile<at::Tensor(const at::Tensor&)>(torch::sin);
  // a generic lambda: its signature is named
  auto p = tandem::compile<at::Tensor(at::Tensor, int64_t)>([](auto x, auto n) { return x * n; });
  // no result: the argument is written
  auto v = tandem::compile([](at::Tensor x) { x.add_(1); });
  // [end]
  const at::Tensor expected = x.sin() * w;
  EXPECT_TRUE(f(x).equal(expected) && h(x).equal(expected) && c(x).equal(expected));
  EXPECT_TRUE(g(x).equal(x.cos()) && s(x).equal(x.sin()) && p(x, 2).equal(x * 2));
  const at::Tensor written = x.clone();
  v(written);
  EXPECT_TRUE(written.equal(x + 1));

  const at::Tensor y = torch::randn({3});
  // [anything-boxed]
  auto any = tandem::compile_boxed([](std::vector<at::Tensor> inputs) {
    return std::vector<at::Tensor>{inputs.at(0) + inputs.at(1)};
  });
  std::vector<at::Tensor> results = any({x, y});
  // [end]
  EXPECT_TRUE(results[0].equal(x + y));

  // [anything-handles]
  tandem::Compiled<at::Tensor(at::Tensor)> handle;  // empty; calling it is a UserError
  handle = f;                                       // copies share entries and counters
  std::cout << handle;                              // Compiled(1 entry, 1 call)
  std::cout << handle.explain(x);                   // what a call with x would do, and why
  std::cout << handle.report();                     // what exists
  handle.reset();                                   // forget all entries
  // [end]
  EXPECT_EQ(f.stats().entries, 0);
}

TEST(CompileAnythingPage, StageByStage) {
  const at::Tensor x = torch::randn({3}).requires_grad_(), y = torch::randn({3});
  const auto fn = [](const at::Tensor& x, const at::Tensor& y) { return (x * y).sin(); };
  // [anything-stages]
  // forward and backward in one graph, with the ops that the backend asks for
  tandem::Joint joint = tandem::export_joint(fn, std::tuple{x, y}, {.backend = "eager"});
  tandem::Split parts = tandem::split(joint, {.partitioner = tandem::default_partition});
  // takes the lifted tensors first, then the arguments
  tandem::Boxed call = tandem::lower(parts, tandem::backend("eager"));
  // [end]
  EXPECT_TRUE(call({x, y})[0].equal(fn(x, y)));
}

TEST(ChaseAWrongGradientPage, ForwardBackwardAndTheWholeJointGraph) {
  const at::Tensor w = torch::randn({3}).requires_grad_(), x = torch::randn({3});
  const auto fn = [w](const at::Tensor& x) { return (x * w).exp(); };
  auto step = tandem::compile(fn, {.backend = "eager"});
  // [chase-compare]
  torch::manual_seed(0);
  at::Tensor expected = fn(x);
  torch::manual_seed(0);
  at::Tensor got = step(x);  // step = tandem::compile(fn, {.backend = "eager"})
  at::Tensor tangent = torch::randn_like(expected);
  auto a = torch::autograd::grad({expected}, {w}, {tangent})[0];
  auto b = torch::autograd::grad({got}, {w}, {tangent})[0];
  // [end]
  EXPECT_TRUE(a.equal(b));

  // [chase-joint]
  tandem::Joint joint = tandem::export_joint(fn, std::tuple{x}, {.backend = "eager"});
  std::vector<at::Tensor> inputs = joint.lifted;
  inputs.push_back(x);
  inputs.push_back(tangent);
  auto results = tandem::backend("eager")->compile(joint.graph, {})->run(inputs);
  // [end]
  EXPECT_TRUE(results[0].equal(expected) && results[1].equal(a));
}

TEST(KeepEffectsPage, MarkedOpsHappenInEveryCall) {
  // [effects-mark]
  tandem::mark_effectful("mylib::log");  // once, before the first call
  // [end]
  static const auto log = c10::Dispatcher::singleton()
                              .findSchemaOrThrow("mylib::log", "")
                              .typed<void(const at::Tensor&, c10::string_view)>();
  auto fn = tandem::compile([](const at::Tensor& x) {
    log.call(x, "norm");
    return x * 2;
  });
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) fn(torch::ones({4}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "norm: 2\nnorm: 2\nnorm: 2\n");
}

TEST(OptionsPage, EventsAndWarnings) {
  struct Progress {
    void show(const std::string& stage, double done) { shown += stage + (done == 1 ? "." : " "); }
    static bool cancelled() { return false; }
    std::string shown;
  } progress;
  Net net;
  const auto fn = [&](const at::Tensor& x) { return net->forward(x); };
  // [options-events]
  tandem::Options options;
  options.on_event = [&](const tandem::Event& event) {
    progress.show(event.stage, event.done);  // trace, signature, ... lower; from 0 to 1
    return !progress.cancelled();
  };
  auto step = tandem::compile(net, fn, options);
  // [end]
  step(torch::randn({2, 8}));
  EXPECT_EQ(progress.shown, "trace signature joint passes partition lower lower.");

  const auto my_log = [](const std::string&) {};
  // [options-warnings]
  tandem::WarningSink before = tandem::set_warning_sink(
      [&](const std::string& line) { my_log(line); });  // an empty one: stderr
  // [end]
  tandem::set_warning_sink(before);
}

TEST(DecompositionsPage, OneOfYourOwn) {
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::SiLU());
  const auto loss = [&](const at::Tensor& x) { return net->forward(x).mean(); };
  // [decompositions-own]
  tandem::Decompositions mine;
  mine.keep("aten::addmm");
  mine.set("aten::silu", [](const tandem::OpCall& call) -> std::vector<tandem::Expr> {
    const tandem::Expr x = call.wide("self");  // float32 for bfloat16
    return {x * sigmoid(x)};
  });
  auto step = tandem::compile(net, loss, {.decompositions = mine});
  // [end]
  const at::Tensor x = torch::randn({4, 8});
  EXPECT_TRUE(step(x).allclose(loss(x)));
  EXPECT_EQ(ir::print(step.entries()[0].joint()).find("aten.silu("), std::string::npos);
}

}  // namespace
}  // namespace tandem
