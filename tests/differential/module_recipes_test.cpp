/// What training programs do to their modules: freeze, convert, load, tie, average, replace,
/// evaluate. Twenty steps each, bit for bit as in eager, and no entry more than the change needs.
#include "support/models.h"
#include "support/temporary_folder.h"
#include "support/twins.h"

#include <sstream>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

constexpr int kSteps = 20;
constexpr const char* kFirst = "first call: no entry yet";

struct Batch {
  Tensor x, y;
};

Batch make_batch() { return {torch::randn({6, 5}), torch::randint(3, {6})}; }

Mlp make_net() { return Mlp(5, 8, 3, 0.2); }

template <class Net>
auto loss_function(Twin& twin, Net net) {
  return twin.compile(net, [net](const Tensor& x, const Tensor& y) mutable {
    return F::cross_entropy(net->forward(x), y);
  });
}

/// `register_parameter` refuses a name that exists; programs write into the registry.
template <class Module>
Tensor& registered(Module& module, const std::string& name) {
  struct Open : torch::nn::Module {
    static auto& of(torch::nn::Module& m) { return m.*(&Open::parameters_); }
  };
  return Open::of(module)[name];
}

/// Linear layers around a batch norm: parameters and buffers that each step moves.
struct NormNetImpl : torch::nn::Module {
  NormNetImpl()
      : first(register_module("first", torch::nn::Linear(5, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        second(register_module("second", torch::nn::Linear(8, 3))) {}
  Tensor forward(const Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(NormNet);

TEST(ModuleRecipes, FreezingAndBack) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      const bool frozen = i >= 5 && i < 12;
      for (Tensor& p : net->first->parameters()) p.requires_grad_(!frozen);
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    // Thawing brings the first entry back.
    step.expect_misses(
        {kFirst, "entry 0: param \"first.weight\": requires_grad is false, compiled for true"});
  });
}

TEST(ModuleRecipes, EverythingFrozenIsAnInferenceEntry) {
  expect_twins_agree([](Twin& twin) {
    Mlp net = make_net();
    net->eval();
    auto step = loss_function(twin, net);
    const auto [x, y] = make_batch();
    for (bool trains : {true, false, true}) {
      for (Tensor& p : net->parameters()) p.requires_grad_(trains);
      const Tensor loss = step(x, y);
      twin.record("requires_grad", loss.requires_grad());
      twin.record("loss", loss);
    }
  });
}

template <class Net>
void train_in_two_dtypes(Twin& twin, Net net, at::ScalarType other,
                         const std::vector<std::string>& misses) {
  auto step = loss_function(twin, net);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  for (int i = 0; i < kSteps; ++i) {
    if (i == 8) net->to(other);
    if (i == 14) net->to(at::kFloat);
    // Gradients and optimizer state keep the dtype that they were made in: start anew.
    if (i == 0 || i == 8 || i == 14) {
      net->zero_grad();
      optimizer = twin.optimizer(net->parameters());
    }
    optimizer->zero_grad();
    const auto [x, y] = make_batch();
    const Tensor loss = step(x.to(net->first->weight.scalar_type()), y);
    loss.backward();
    optimizer->step();
    twin.record("loss", loss);
  }
  twin.record_state(*net);
  step.expect_misses(misses);
}

TEST(ModuleRecipes, OtherDtypeMidwayAndBack) {
  expect_training_agrees([](Twin& twin) {
    train_in_two_dtypes(twin, make_net(), at::kDouble,
                        {kFirst, "entry 0: argument 0: dtype is f64, compiled for f32"});
  });
}

// libtorch's to(dtype) converts the counter of a batch norm, too, and back it is no integer.
TEST(ModuleRecipes, OtherDtypeOfANetWithCounters) {
  expect_training_agrees([](Twin& twin) {
    train_in_two_dtypes(twin, NormNet(), at::kBFloat16,
                        {kFirst, "entry 0: argument 0: dtype is bf16, compiled for f32",
                         "entry 0 is nearest: buffer "
                         "\"norm.num_batches_tracked\": dtype is f32, compiled for i64"});
  });
}

TEST(ModuleRecipes, SavedAndLoadedThroughAStreamAndAFile) {
  const test::TemporaryFolder folder("recipes");
  const std::string file = (folder.path() / "net.pt").string();
  expect_training_agrees([&](Twin& twin) {
    NormNet net;
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    std::stringstream weights, state;
    for (int i = 0; i < kSteps; ++i) {
      if (i == 4) {
        torch::save(net, weights);
        torch::save(*optimizer, state);
      }
      if (i == 9) {
        torch::load(net, weights);
        torch::load(*optimizer, state);
      }
      if (i == 10) torch::save(net, file);
      if (i == 15) torch::load(net, file);
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_one_compile();  // loading writes into the parameters that exist
  });
}

// One parameter, two uses, one gradient. A parameter that nobody uses gets none.
TEST(ModuleRecipes, TiedWeights) {
  expect_training_agrees([](Twin& twin) {
    torch::nn::Linear encode(5, 4), decode(4, 5);  // of the second only the bias is used
    torch::nn::Sequential net(encode, decode);
    auto step = twin.compile(net, [=](const Tensor& x) mutable {
      const Tensor code = torch::tanh(encode(x));
      return F::mse_loss(torch::linear(code, encode->weight.t(), decode->bias), x);
    });
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      step(torch::randn({6, 5})).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_one_compile();
  });
}

TEST(ModuleRecipes, WeightTiedMidway) {
  expect_training_agrees([](Twin& twin) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Tanh(), torch::nn::Linear(4, 4));
    auto first = net[0]->as<torch::nn::Linear>(), last = net[2]->as<torch::nn::Linear>();
    auto step = twin.compile(
        net, [net](const Tensor& x) mutable { return F::mse_loss(net->forward(x), x); });
    for (int i = 0; i < kSteps; ++i) {
      if (i == 6) registered(*last, "weight") = last->weight = first->weight;
      auto optimizer = twin.optimizer(net->parameters());
      net->zero_grad();
      step(torch::randn({6, 4})).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_misses({kFirst, "entry 0: parameter \"2.weight\" is another"});
  });
}

TEST(ModuleRecipes, AverageOfTheWeightsEvaluatedByASecondFunction) {
  expect_training_agrees([](Twin& twin) {
    NormNet net, average;
    const auto average_in = [&](double keep) {
      torch::NoGradGuard guard;
      auto from = net->named_parameters(), to = average->named_parameters();
      for (auto& item : to) item.value().mul_(keep).add_(from[item.key()], 1 - keep);
      auto buffers = net->named_buffers(), copies = average->named_buffers();
      for (auto& item : copies) item.value().copy_(buffers[item.key()]);
    };
    average_in(0);
    average->eval();
    auto step = loss_function(twin, net);
    auto evaluate = twin.compile(
        average, [average](const Tensor& x) mutable { return average->forward(x).argmax(1); });
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      optimizer->step();
      average_in(0.9);
      torch::NoGradGuard guard;
      twin.record("classes", evaluate(x));
    }
    twin.record_state(*net);
    twin.record_state(*average);
    step.expect_one_compile();
    evaluate.expect_one_compile();
  });
}

TEST(ModuleRecipes, EvaluationBetweenTraining) {
  expect_training_agrees([](Twin& twin) {
    NormNet net;
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      const auto [x, y] = make_batch();
      optimizer->zero_grad();
      step(x, y).backward();
      optimizer->step();
      if (i % 4 != 3) continue;
      net->eval();
      {
        torch::NoGradGuard guard;
        const Tensor loss = step(x, y);
        twin.record("loss without grad", loss);
        twin.record("requires_grad", loss.requires_grad());
      }
      if (i % 8 == 7) {
        c10::InferenceMode mode;
        const Tensor loss = step(x, y);
        twin.record("inference tensor", loss.is_inference());
        twin.record("loss in inference mode", loss.clone());
      }
      net->train();
      twin.record_state(*net);
    }
    if (twin.is_compiled()) {
      EXPECT_EQ(step.handle.stats().compiles, 3) << step.handle.report();
      EXPECT_EQ(step.handle.stats().hits, 20 + 5 + 2 - 3);
    }
  });
}

// Ordinary and inference tensors, views and writes: all legal in inference mode.
TEST(ModuleRecipes, InferenceModeWithViewsAndWrites) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Linear net(4, 4);
    const Tensor ordinary = torch::randn({4, 4});
    auto f = twin.compile(net, [net](const Tensor& x, const Tensor& out) mutable {
      out.copy_(net(x).t());
      return std::tuple{x.view(-1), x * 2, out, net->weight.t()};
    });
    c10::InferenceMode mode;
    const Tensor made_here = torch::randn({4, 4});
    for (const auto& [x, out] : {std::pair{ordinary, made_here}, std::pair{made_here, ordinary},
                                 std::pair{made_here.clone(), made_here}}) {
      const auto results = f(x, out);
      std::apply(
          [&](const auto&... result) {
            (twin.record("inference tensor", result.is_inference()), ...);
            (twin.record("result", result.clone()), ...);
          },
          results);
      twin.record("same storage", std::get<0>(results).is_alias_of(x));
      twin.record("same storage", std::get<3>(results).is_alias_of(net->weight));
      twin.record("same tensor", std::get<2>(results).is_same(out));
      twin.record("version of the ordinary tensor", ordinary._version());
    }
  });
}

/// A program's own class: the net is a member, and the step a lambda that captures `this`.
class Trainer {
 public:
  explicit Trainer(Twin& twin)
      : net_(make_net()), twin_(twin), optimizer_(twin.optimizer(net_->parameters())) {
    if (twin.is_compiled()) {
      step_ = tandem::compile(
          net_, [this](const Tensor& x, const Tensor& y) { return loss(x, y) * scale_; });
    }
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto [x, y] = make_batch();
      optimizer_->zero_grad();
      const Tensor loss_now = step_ ? step_(x, y) : loss(x, y) * scale_;
      loss_now.backward();
      optimizer_->step();
      twin_.record("loss", loss_now);
    }
    twin_.record_state(*net_);
    if (step_) {
      EXPECT_EQ(step_.stats().compiles, 1) << step_.report();
    }
  }

 private:
  Tensor loss(const Tensor& x, const Tensor& y) { return F::cross_entropy(net_->forward(x), y); }

  Mlp net_;
  Twin& twin_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  double scale_ = 0.5;
  tandem::Compiled<Tensor(Tensor, Tensor)> step_;  // declared as a member of the class
};

TEST(ModuleRecipes, StepInsideAClass) {
  expect_training_agrees([](Twin& twin) { Trainer(twin).train(kSteps); });
}

TEST(ModuleRecipes, ParameterReplacedInTheModule) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      if (i == 7) {
        registered(*net->second, "weight") = net->second->weight =
            torch::randn({3, 8}).set_requires_grad(true);
        optimizer = twin.optimizer(net->parameters());
      }
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_misses({kFirst, "entry 0: parameter \"second.weight\" is another"});
  });
}

TEST(ModuleRecipes, SubModuleReplaced) {
  expect_training_agrees([](Twin& twin) {
    Mlp net = make_net();
    auto step = loss_function(twin, net);
    auto optimizer = twin.optimizer(net->parameters());
    for (int i = 0; i < kSteps; ++i) {
      if (i == 7) {
        net->second = net->replace_module("second", torch::nn::Linear(8, 3));
        optimizer = twin.optimizer(net->parameters());
      }
      optimizer->zero_grad();
      const auto [x, y] = make_batch();
      step(x, y).backward();
      optimizer->step();
      twin.record_state(*net);
    }
    step.expect_misses({kFirst, "entry 0: sub-module \"second\" is another"});
  });
}

TEST(ModuleRecipes, LayerAddedToASequential) {
  expect_twins_agree([](Twin& twin) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4));
    auto step = twin.compile(
        net, [net](const Tensor& x) mutable { return net->forward(x).square().mean(); });
    const Tensor x = torch::randn({3, 4});
    twin.record("loss", step(x));
    net->push_back(torch::nn::Tanh());
    twin.record("loss with one layer more", step(x));
    step.expect_misses({kFirst, "entry 0: the module has 2 sub-modules, compiled with 1"});
  });
}

}  // namespace
}  // namespace tandem::test
