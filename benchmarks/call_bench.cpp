// What a call of a compiled function costs beside its work, as a ratio to one at::add in the same
// run.
//
// The backend here returns tensors that lie ready, so that only the call is left: guards, autograd
// node, handling of results. Further cases run a real addition.
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace {

using namespace bench;

constexpr int kCalls = 2000;  // in one round
constexpr int64_t kElements = 16;
constexpr int64_t kManySets = 40;

/// Tensors made before the clock starts: a result may be used once only, autograd writes into it.
class ReadyTensors final : public tandem::Executable {
 public:
  explicit ReadyTensors(const tandem::ir::Graph& graph) {
    for (const tandem::ir::Output& output : graph.outputs()) {
      const tandem::ir::TensorType& type = *graph.value(output.value).tensor_type();
      models_.push_back(at::zeros(type.static_sizes(), type.dtype));
    }
  }

  void refill() {
    ready_.clear();
    for (int i = 0; i < kCalls; ++i) {
      std::vector<at::Tensor> results;
      for (const at::Tensor& model : models_) results.push_back(model.clone());
      ready_.push_back(std::move(results));
    }
  }

  std::vector<at::Tensor> run(std::span<at::Tensor>) override {
    if (ready_.empty()) refill();
    std::vector<at::Tensor> results = std::move(ready_.back());
    ready_.pop_back();
    return results;
  }

 private:
  std::vector<at::Tensor> models_;
  std::vector<std::vector<at::Tensor>> ready_;
};

class NullBackend final : public tandem::Backend {
 public:
  std::string_view name() const override { return "null"; }
  std::unique_ptr<tandem::Executable> compile(const tandem::ir::Graph& graph,
                                              const tandem::CompileContext& context) override {
    auto executable = std::make_unique<ReadyTensors>(graph);
    if (context.role != tandem::GraphRole::backward) forward_ = executable.get();
    return executable;
  }
  void refill() { forward_->refill(); }

 private:
  ReadyTensors* forward_ = nullptr;
};

/// Results that are new handles on the same memory: as dear for one graph as for many.
class SharedMemory final : public tandem::Backend {
 public:
  std::string_view name() const override { return "shared memory"; }
  std::unique_ptr<tandem::Executable> compile(const tandem::ir::Graph& graph,
                                              const tandem::CompileContext&) override {
    return std::make_unique<Handles>(graph);
  }

 private:
  class Handles final : public tandem::Executable {
   public:
    explicit Handles(const tandem::ir::Graph& graph) {
      for (const tandem::ir::Output& output : graph.outputs()) {
        const tandem::ir::TensorType& type = *graph.value(output.value).tensor_type();
        models_.push_back(at::zeros(type.static_sizes(), type.dtype));
      }
    }
    std::vector<at::Tensor> run(std::span<at::Tensor>) override {
      std::vector<at::Tensor> results;
      results.reserve(models_.size());
      for (const at::Tensor& model : models_) results.push_back(model.variable_data());
      return results;
    }

   private:
    std::vector<at::Tensor> models_;
  };
};

struct Case {
  std::string name;
  int64_t parameters = 0;
  bool grad = true;
};

/// Seconds of one round of calls, and of as many additions.
Rounds time_calls(const std::function<void()>& call, const std::function<void()>& add,
                  const std::function<void()>& before_round) {
  Rounds times;
  auto round = [](const std::function<void()>& fn) {
    return seconds_of([&] {
      for (int i = 0; i < kCalls; ++i) fn();
    });
  };
  for (int i = 0; i < kRounds + 1; ++i) {
    before_round();
    const double calls = round(call);
    const double adds = round(add);
    if (i == 0) continue;  // compiles, warms up
    times.a.push_back(calls);
    times.b.push_back(adds);
  }
  return times;
}

void report_case(const Case& which, const Rounds& rounds, Report& report) {
  const Ratio ratio = rounds.ratio();
  const double call_ns = 1e9 * rounds.median_a() / kCalls,
               add_ns = 1e9 * rounds.median_b() / kCalls;
  fmt::print("{:<34} {:>9.0f} ns {:>9.0f} ns {:>8.2f}  {:.2f} to {:.2f}\n", which.name, call_ns,
             add_ns, ratio.value, ratio.low, ratio.high);
  report.add(which.name, {{"call_ns", call_ns},
                          {"add_ns", add_ns},
                          {"ratio", ratio.value},
                          {"ratio_low", ratio.low},
                          {"ratio_high", ratio.high}});
}

void require_compiled(const tandem::Stats& stats, const std::string& name) {
  if (stats.compiles == 1 && stats.eager_calls == 0) return;
  throw std::runtime_error(name + ": not every call ran the compiled function");
}

/// `x * y + x` and `x` times every parameter, on the backend that does nothing: all parameters get
/// gradients, one argument is saved. The ratio to at::add.
double measure_overhead(const Case& which, Report& report) {
  const at::AutoGradMode grad_mode(which.grad);
  std::vector<at::Tensor> parameters;
  for (int64_t i = 0; i < which.parameters; ++i) {
    parameters.push_back(torch::randn({kElements}, torch::requires_grad()));
  }
  const at::Tensor x = torch::randn({kElements}), y = torch::randn({kElements});
  // The measure is an addition with gradients in every case, also where the call has none.
  const at::Tensor leaf = torch::randn({kElements}, torch::requires_grad());
  auto backend = std::make_shared<NullBackend>();
  auto fn = tandem::compile(
      [parameters](const at::Tensor& x, const at::Tensor& y) {
        at::Tensor result = x * y + x;
        for (const at::Tensor& parameter : parameters) result = result + x * parameter;
        return result;
      },
      {.backend = backend});
  fn.prepare(x, y);
  const auto add = [&] {
    const at::AutoGradMode with_gradients(true);
    at::add(leaf, y);
  };
  const Rounds rounds = time_calls([&] { fn(x, y); }, add, [&] { backend->refill(); });
  require_compiled(fn.stats(), which.name);
  report_case(which, rounds, report);
  return rounds.median_a() / rounds.median_b();
}

/// Calls that go round as many pairs of tensors, which have `sets` sets of six sizes among them,
/// all of them served before. The ratio to at::add; of one set: what they cost if no size changes.
double measure_sizes(int64_t sets, Report& report) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 4; ++i)
    parameters.push_back(torch::randn({kElements}, torch::requires_grad()));
  const at::Tensor leaf = torch::randn({kElements}, torch::requires_grad()),
                   z = torch::randn({kElements});
  auto fn = tandem::compile(
      [parameters](const at::Tensor& x, const at::Tensor& y) {
        at::Tensor result = x.sum() * y.sum();
        for (const at::Tensor& parameter : parameters)
          result = result + (x * parameter).sum() + (y * parameter).sum();
        return result;
      },
      {.backend = std::make_shared<SharedMemory>()});
  std::vector<at::Tensor> xs, ys;
  for (int64_t pair = 0; pair < kManySets; ++pair) {
    const int64_t i = pair % sets;
    xs.push_back(torch::randn({2 + i % 3, 3 + i % 5, 4 + i % 7, kElements}));
    ys.push_back(torch::randn({5 + i % 2, 6 + i % 11, 7 + i % 13, kElements}));
    fn.prepare(xs.back(), ys.back());
  }
  size_t next = 0;
  const auto call = [&] {
    fn(xs[next], ys[next]);
    next = next + 1 == xs.size() ? 0 : next + 1;
  };
  const Rounds rounds = time_calls(call, [&] { at::add(leaf, z); }, [] {});
  const Case which{.name = fmt::format("null, {} set{} of 6 sizes", sets, sets == 1 ? "" : "s")};
  require_compiled(fn.stats(), which.name);
  report_case(which, rounds, report);
  return rounds.median_a() / rounds.median_b();
}

void measure_addition(const std::string& backend, bool grad, Report& report) {
  const at::AutoGradMode grad_mode(grad);
  const at::Tensor leaf = torch::randn({kElements}, torch::requires_grad()),
                   y = torch::randn({kElements});
  auto fn = tandem::compile([](const at::Tensor& a, const at::Tensor& b) { return a + b; },
                            {.backend = backend});
  const Rounds rounds = time_calls([&] { fn(leaf, y); }, [&] { at::add(leaf, y); }, [] {});
  require_compiled(fn.stats(), "one addition");
  report_case({.name = "one addition, " + backend + (grad ? ", gradients" : ", no gradients"),
               .grad = grad},
              rounds, report);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);  // tensors of 16 numbers
  Report report("call");
  fmt::print("{:<34} {:>12} {:>12} {:>8}  {}\n", "call", "tandem", "at::add", "ratio", "95 %");
  constexpr int64_t kFew = 4, kMany = 104;
  const double few = measure_overhead({"null, 2 inputs 4 parameters", kFew, true}, report);
  measure_overhead({"null, the same without gradients", kFew, false}, report);
  const double many = measure_overhead({"null, 2 inputs 104 parameters", kMany, true}, report);
  const double each = (many - few) / static_cast<double>(kMany - kFew);
  fmt::print("{:<34} {:>38.4f}\n", "each further parameter", each);
  report.add("each further parameter", {{"ratio", each}});
  const double one_set = measure_sizes(1, report), many_sets = measure_sizes(kManySets, report);
  fmt::print("{:<34} {:>38.4f}\n", "sizes that change, more", many_sets - one_set);
  report.add("sizes that change, more", {{"ratio", many_sets - one_set}});
  for (const char* backend : {"eager", "llvm"}) {
    measure_addition(backend, true, report);
    measure_addition(backend, false, report);
  }
  return report.write(argc, argv) ? 0 : 1;
}
