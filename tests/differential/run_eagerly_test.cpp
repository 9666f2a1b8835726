/// `on_unsupported = eager`: a program with something that Tandem refuses, at whichever stage, is
/// the eager program, with one warning.
#include "support/twins.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>

namespace tandem::test {
namespace {

using at::Tensor;
using Step = std::function<Tensor(const Tensor&)>;

constexpr int kSteps = 4;

/// What is warned of meanwhile.
class Warnings {
 public:
  Warnings() {
    before_ = set_warning_sink([this](const std::string& line) { lines.push_back(line); });
  }
  ~Warnings() { set_warning_sink(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::vector<std::string> lines;

 private:
  WarningSink before_;
};

/// Calls `make_step(twin)` for a function, which is compiled or not, and what comes after each
/// call.
struct Refused {
  std::string name;
  std::string words;  // of the warning
  Options options{};
  /// Makes the function, and what is done with each result.
  struct Program {
    Step function;
    std::function<Tensor()> argument = [] { return torch::randn({4, 3}); };
    std::function<void(Twin&, const Tensor&)> after = [](Twin& twin, const Tensor& result) {
      twin.record("result", result);
    };
  };
  std::function<Program()> make;
};

Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).set_requires_grad(true); }

struct Net {
  torch::nn::Linear layer{3, 1};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

std::shared_ptr<Net> make_net() {
  auto net = std::make_shared<Net>();
  net->optimizer = std::make_unique<torch::optim::Adam>(net->layer->parameters(),
                                                        torch::optim::AdamOptions(0.05));
  return net;
}

void record_net(Twin& twin, Net& net) {
  twin.record_state(*net.layer);
  for (const Tensor& p : net.layer->parameters()) {
    const auto state = net.optimizer->state().find(p.unsafeGetTensorImpl());
    if (state == net.optimizer->state().end()) continue;
    const auto& adam = static_cast<const torch::optim::AdamParamState&>(*state->second);
    twin.record("count", adam.step());
    twin.record("average", adam.exp_avg());
  }
}

std::vector<Refused> refused() {
  std::vector<Refused> all;
  const auto add = [&](std::string name, std::string words, auto make) {
    all.push_back({std::move(name), std::move(words), {}, make});
  };
  const auto with_function = [](Step function) {
    return [function] { return Refused::Program{function}; };
  };
  add("WholeStep", "calls backward()", [] {
    const auto net = make_net();
    Refused::Program program;
    program.function = [net](const Tensor& x) {
      net->optimizer->zero_grad();
      const Tensor loss = net->layer(x).pow(2).mean();
      loss.backward();
      net->optimizer->step();
      return loss.detach();
    };
    program.after = [net](Twin& twin, const Tensor& loss) {
      twin.record("loss", loss);
      record_net(twin, *net);
    };
    return program;
  });
  add("ZeroGradAtTheBeginning", "calls torch::nn::Module::zero_grad", [] {
    const auto net = make_net();
    net->layer(torch::ones({2, 3})).sum().backward();
    Refused::Program program;
    program.function = [net](const Tensor& x) {
      net->layer->zero_grad();
      return net->layer(x).pow(2).mean();
    };
    program.after = [net](Twin& twin, const Tensor& loss) {
      loss.backward();
      net->optimizer->step();
      record_net(twin, *net);
    };
    return program;
  });
  add("StepAtTheEnd", "calls torch::optim::Adam::step", [] {
    const auto net = make_net();
    Refused::Program program;
    program.function = [net](const Tensor& x) {
      const Tensor loss = net->layer(x).pow(2).mean();
      net->optimizer->step();
      return loss;
    };
    program.after = [net](Twin& twin, const Tensor& loss) {
      loss.detach();
      net->layer(torch::ones({2, 3})).sum().backward();
      record_net(twin, *net);
    };
    return program;
  });
  add("BackwardInside", "calls backward()", [] {
    const Tensor w = leaf({3});
    Refused::Program program;
    program.function = [w](const Tensor& x) {
      const Tensor loss = (x * w).sin().sum();
      loss.backward();
      return loss.detach();
    };
    program.after = [w](Twin& twin, const Tensor& loss) {
      twin.record("loss", loss);
      twin.record_tensor("w", w);
    };
    return program;
  });
  add("AGradientIsAssigned", "uses .grad() of", [] {
    const Tensor w = leaf({3});
    Refused::Program program;
    program.function = [w](const Tensor& x) {
      const Tensor loss = (x * w).sin().sum();
      w.mutable_grad() = tandem::grad({loss}, {w})[0];
      return loss.detach();
    };
    program.after = [w](Twin& twin, const Tensor&) { twin.record_tensor("w", w); };
    return program;
  });
  add("AGradientThroughTheOutside", "a gradient that passes through", [] {
    const Tensor w = leaf({3});
    const Tensor h = w.exp();
    return Refused::Program{[w, h](const Tensor& x) {
      return tandem::grad({(x * h).sin().sum()}, {w}, {}, /*retain_graph=*/true)[0];
    }};
  });
  add("ReadsANumber", "reads the value of a tensor",
      with_function([](const Tensor& x) { return x * x.sum().item<double>(); }));
  add("ASizeThatDependsOnData", "a result whose size depends on data",
      with_function([](const Tensor& x) { return std::get<0>(at::unique_dim(x.gt(0), 0)); }));
  add("OneHotWithoutClasses", "one_hot without num_classes",
      with_function([](const Tensor& x) { return at::one_hot(x.gt(0).to(at::kLong)); }));
  add("ADataPointer", "reads the data of a tensor",
      with_function([](const Tensor& x) { return x * x.contiguous().data_ptr<float>()[0]; }));
  add("Sparse", "layout Sparse", [] {
    const Tensor s = torch::eye(3).to_sparse();
    return Refused::Program{[s](const Tensor& x) { return at::mm(s, x.t()); }};
  });
  add("AnOwnGenerator", "draws from a generator that it makes", with_function([](const Tensor& x) {
        at::Generator generator = at::detail::createCPUGenerator(7);
        return x + at::randn({4, 3}, generator) + at::randn({4, 3});
      }));
  add("AWrappedNumber", "a wrapped number", [] {
    Refused::Program program;
    program.function = [](const Tensor& x) { return x * torch::ones({2}); };
    program.argument = [] {
      Tensor number = torch::full({}, 2.0, torch::kDouble);
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      return number;
    };
    return program;
  });
  add("AutocastLeftChanged", "leaves autocast changed", with_function([](const Tensor& x) {
        at::autocast::set_autocast_enabled(at::kCPU, !at::autocast::is_autocast_enabled(at::kCPU));
        return x * 2;
      }));
  add("ACheckpoint", "checkpoint inside a compiled function", with_function([](const Tensor& x) {
        return checkpoint([](const Tensor& y) { return y.sin(); }, x);
      }));
  add("SparseInside", "", with_function([](const Tensor& x) {
        return at::mm(x.gt(0).to(at::kFloat).to_sparse(), x.t()).to_dense();
      }));
  add("SparseGradient", "", [] {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 3).sparse(true));
    Refused::Program program;
    program.argument = [] { return torch::randint(5, {4}); };
    program.function = [table](const Tensor& x) mutable { return table(x).pow(2).sum(); };
    program.after = [table](Twin& twin, const Tensor& loss) {
      loss.backward();
      twin.record("gradient", table->weight.grad().to_dense());
    };
    return program;
  });
  add("Quantized", "", with_function([](const Tensor& x) {
        return at::quantize_per_tensor(x, 0.1, 0, at::kQInt8).dequantize();
      }));
  add("MemoryOfTheHost", "", with_function([](const Tensor& x) {
        float numbers[3] = {1, 2, 3};
        return x * torch::from_blob(numbers, {3});
      }));
  add("Printed", "", with_function([](const Tensor& x) {
        std::ostringstream out;
        out << x;
        return x * static_cast<double>(out.str().size());
      }));
  add("UniqueRows", "", with_function([](const Tensor& x) {
        return std::get<0>(at::unique_consecutive(x.round()));
      }));
  add("ASizeReadAsANumber", "reads a size that depends on data", with_function([](const Tensor& x) {
        const Tensor rows = x.gt(0).nonzero();
        return rows.size(0) > 3 ? x * 2 : x;
      }));
  add("WrittenByAMask", "", with_function([](const Tensor& x) {
        Tensor y = x.clone();
        y.index_put_({y > 0.5}, torch::ones({1}).expand({y.gt(0.5).sum().item<int64_t>()}));
        return y;
      }));
  add("AResizedStorage", "", with_function([](const Tensor& x) {
        Tensor y = x.clone();
        const Tensor view = y.view({-1});
        y.resize_({8, 3}).fill_(1);
        return y + view[0];
      }));
  add("PackedSequences", "", [] {
    torch::nn::GRU rnn(torch::nn::GRUOptions(3, 2));
    Refused::Program program;
    program.argument = [] { return torch::randn({4, 2, 3}); };
    program.function = [rnn](const Tensor& x) mutable {
      const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({4, 2}));
      return std::get<0>(rnn->forward_with_packed_input(packed)).data();
    };
    return program;
  });
  add("BatchNormThatCounts", "", [] {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(3).momentum(std::nullopt));
    Refused::Program program;
    program.function = [norm](const Tensor& x) mutable { return norm(x); };
    program.after = [norm](Twin& twin, const Tensor& result) {
      twin.record("result", result);
      twin.record_state(*norm);
    };
    return program;
  });
  add("CTCLoss", "", [] {
    Refused::Program program;
    program.argument = [] { return torch::randn({6, 2, 4}).requires_grad_(); };
    program.function = [](const Tensor& x) {
      return torch::ctc_loss(x.log_softmax(2), torch::tensor({{1, 2}, {3, 1}}),
                             torch::tensor({6, 6}), torch::tensor({2, 2}));
    };
    program.after = [](Twin& twin, const Tensor& loss) {
      loss.backward();
      twin.record("loss", loss);
    };
    return program;
  });
  // Its kernel is tried on zeros.
  add("AKernelThatRefusesZeros", "libtorch raises an error while the function is traced", [] {
    static auto* const library = [] {
      auto* made =
          new torch::Library(torch::Library::DEF, "runeagerly", std::nullopt, __FILE__, __LINE__);
      made->def("root(Tensor x) -> Tensor");
      made->impl("root", c10::DispatchKey::CPU, [](const Tensor& x) {
        TORCH_CHECK(x.gt(0).all().item<bool>(), "root of a number that is not positive");
        return x.sqrt();
      });
      return made;
    }();
    EXPECT_NE(library, nullptr);
    return Refused::Program{[](const Tensor& x) {
      static const auto root = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("runeagerly::root", "")
                                   .typed<Tensor(const Tensor&)>();
      return root.call(x.abs() + 1);
    }};
  });
  // The stages after the trace.
  add("OtherMemoryAndAWrite", "gets other memory by set_()", [] {
    const Tensor p = leaf({3});
    Refused::Program program;
    program.argument = [] { return torch::zeros({3}); };
    program.function = [p](const Tensor& x) {
      x.mul_(p);
      const torch::NoGradGuard no_grad;
      x.set_(torch::ones({3}));
      return x * 2;
    };
    return program;
  });
  add("MemoryInSeveralDtypes", "is written and shares memory", [] {
    const Tensor flat = torch::zeros({4});
    const Tensor whole = flat.view(at::kInt);
    return Refused::Program{[flat, whole](const Tensor& x) {
      flat.add_(1);
      return x.sum() + whole.sum();
    }};
  });
  add("AHookOnWhatTheForwardNeverUsed", "which the forward never used", [] {
    const Tensor w = leaf({3}), other = leaf({3});
    Refused::Program program;
    program.function = [w, other](const Tensor& x) {
      const Tensor y = x * w;
      y.register_hook([other](const Tensor& g) { return g * other.detach(); });
      return y.sum();
    };
    program.after = [w](Twin& twin, const Tensor& loss) {
      loss.backward();
      twin.record_tensor("w", w);
    };
    return program;
  });
  return all;
}

class RefusedPrograms : public testing::TestWithParam<Refused> {};

TEST_P(RefusedPrograms, RunEagerly) {
  const Warnings warnings;
  expect_twins_agree([&](Twin& twin) {
    const Refused::Program program = GetParam().make();
    const Compiled<Tensor(Tensor)> compiled = compile<Tensor(Tensor)>(
        program.function, Options{.on_unsupported = OnUnsupported::eager, .name = "it"});
    const bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
    for (int i = 0; i < kSteps; ++i) {
      const Tensor x = program.argument();
      program.after(twin, twin.is_compiled() ? compiled(x) : program.function(x));
      twin.record("argument", x);
    }
    twin.record("autocast", at::autocast::is_autocast_enabled(at::kCPU));
    at::autocast::set_autocast_enabled(at::kCPU, autocast);
    if (twin.is_compiled()) EXPECT_EQ(compiled.stats().eager_calls, kSteps);
  });
  ASSERT_EQ(warnings.lines.size(), 1U);
  const std::string start = "tandem: warning: it runs eagerly: ";
  EXPECT_EQ(warnings.lines[0].substr(0, start.size()), start);
  EXPECT_NE(warnings.lines[0].find(GetParam().words), std::string::npos) << warnings.lines[0];
}

INSTANTIATE_TEST_SUITE_P(What, RefusedPrograms, testing::ValuesIn(refused()),
                         [](const auto& info) { return info.param.name; });

// What eager raises, it raises as eager: with its text, after what it has done by then.
TEST(RunEagerly, AnErrorOfTheProgramIsEagers) {
  const Warnings warnings;
  expect_twins_agree([](Twin& twin) {
    const auto function = [](const Tensor& x) {
      x.add_(1);
      return at::mm(x, torch::ones({2, 2}));
    };
    auto compiled = compile<Tensor(Tensor)>(function, {.on_unsupported = OnUnsupported::eager});
    for (int i = 0; i < 2; ++i) {
      const Tensor x = torch::zeros({4, 3});
      twin.record_error("text", [&] { twin.is_compiled() ? compiled(x) : function(x); });
      twin.record("argument", x);
    }
  });
  EXPECT_EQ(warnings.lines.size(), 1U);
}

/// Runs the program, compiled with and without names, and eagerly. Returns the stats of the last
/// compiled run.
Stats expect_clears_gradients(const std::function<void(Net&)>& clear, int64_t steps_without,
                              OnUnsupported on_unsupported, bool named) {
  Stats stats;
  expect_twins_agree([&](Twin& twin) {
    const auto net = make_net();
    const auto function = [&](const Tensor& x) {
      clear(*net);
      return net->layer(x).pow(2).mean();
    };
    const Options options{.on_unsupported = on_unsupported};
    auto step = named ? compile<Tensor(Tensor)>(net->layer, function, options)
                      : compile<Tensor(Tensor)>(function, options);
    for (int i = 0; i < kSteps; ++i) {
      const Tensor x = torch::randn({4, 3});
      const Tensor loss = twin.is_compiled() ? step(x) : function(x);
      if (i < steps_without) continue;
      loss.backward();
      net->optimizer->step();
      record_net(twin, *net);
    }
    if (twin.is_compiled()) stats = step.stats();
  });
  return stats;
}

// The first call finds no gradients: clearing them does nothing that could be seen. The second one
// checks itself, or finds some, and is refused; it has done nothing.
TEST(GradientsThatAppear, AreNotAccumulatedInSilence) {
  for (const bool optimizers : {false, true}) {
    for (const bool to_none : {false, true}) {
      for (const int64_t steps_without : {0, 1, 2}) {
        const auto clear = [&](Net& net) {
          if (optimizers) return net.optimizer->zero_grad(to_none);
          net.layer->zero_grad(to_none);
        };
        const Warnings warnings;
        const Stats named =
            expect_clears_gradients(clear, steps_without, OnUnsupported::eager, true);
        EXPECT_EQ(named.eager_calls, kSteps);
        EXPECT_EQ(warnings.lines.size(), 1U);
        const Stats stats =
            expect_clears_gradients(clear, steps_without, OnUnsupported::eager, false);
        EXPECT_EQ(stats.eager_calls, kSteps - 1) << "the second call checks itself";
        EXPECT_EQ(stats.entries, 0);
        EXPECT_EQ(warnings.lines.size(), 2U);
      }
    }
  }
}

TEST(GradientsThatAppear, ARefusalLeavesThem) {
  const auto net = make_net();
  auto step = compile<Tensor(Tensor)>([&](const Tensor& x) {
    net->optimizer->zero_grad();
    return net->layer(x).pow(2).mean();
  });
  step(torch::ones({4, 3})).backward();
  const Tensor gradient = net->layer->weight.grad(), data = gradient.clone();
  for (int i = 0; i < 3; ++i) EXPECT_THROW(step(torch::ones({4, 3})), UnsupportedError);
  EXPECT_TRUE(net->layer->weight.grad().is_same(gradient));
  EXPECT_TRUE(gradient.equal(data));
  EXPECT_EQ(gradient._version(), 0);
}

// A function that does not ask for them is looked at once.
TEST(GradientsThatAppear, AreNothingToOtherFunctions) {
  const auto net = make_net();
  int runs = 0;
  auto step = compile<Tensor(Tensor)>([&](const Tensor& x) {
    ++runs;
    return net->layer(x).pow(2).mean();
  });
  for (int i = 0; i < 4; ++i) {
    step(torch::ones({4, 3})).backward();
    net->optimizer->step();
    net->optimizer->zero_grad();
  }
  EXPECT_EQ(step.stats().compiles, 1);
  EXPECT_EQ(step.stats().eager_calls, 0);
  EXPECT_GE(runs, 1);
}

}  // namespace
}  // namespace tandem::test
