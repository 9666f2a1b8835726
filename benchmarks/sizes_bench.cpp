// Kernels that serve all sizes against kernels for one: a training step (forward, loss, backward)
// with each in turns, and how long it takes to make the kernels of another batch when their code is
// there. Usage:
//   sizes_bench [--out FILE] [--rounds N] [--small] [PROGRAM ...]
#include "models.h"
#include "rounds.h"
#include "support/programs.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

namespace {

using namespace bench;
using tandem::test::Scale;
using tandem::test::TrainingProgram;
using Tensors = std::vector<at::Tensor>;

/// Backend "llvm", told that sizes vary or not whatever the library says; it knows how long it
/// compiles.
class LlvmFor final : public tandem::Backend {
 public:
  explicit LlvmFor(bool sizes_vary) : sizes_vary_(sizes_vary) {}
  std::string_view name() const override { return inner_->name(); }
  std::unique_ptr<tandem::Executable> compile(const tandem::ir::Graph& graph,
                                              const tandem::CompileContext& context) override {
    tandem::CompileContext told = context;
    told.sizes_vary = sizes_vary_;
    std::unique_ptr<tandem::Executable> made;
    seconds += seconds_of([&] { made = inner_->compile(graph, told); });
    // A line of the report for each kernel.
    const std::string report = made->report();
    for (size_t at = 0; (at = report.find(": reads ", at)) != std::string::npos; ++at) ++kernels;
    return made;
  }
  tandem::Decompositions decompositions(tandem::Rounding rounding,
                                        tandem::Random random) const override {
    return inner_->decompositions(rounding, random);
  }
  bool can_fuse(const tandem::ir::Graph& graph, const tandem::ir::Node& node) const override {
    return inner_->can_fuse(graph, node);
  }

  double seconds = 0;
  int kernels = 0;

 private:
  const bool sizes_vary_;
  std::shared_ptr<tandem::Backend> inner_ = tandem::backend("llvm");
};

struct Maker {
  std::string name;
  std::function<TrainingProgram(Scale)> make;
};

/// The programs of step_bench, and as `peers/gpt` those that are compared with the rival, which
/// have one size.
std::vector<Maker> makers() {
  std::vector<Maker> all;
  for (const tandem::test::ProgramMaker& maker : tandem::test::training_programs())
    all.push_back({maker.name, maker.make});
  for (const char* name : {"pointwise", "mlp", "resnet", "gpt", "gpt_bf16"}) {
    const auto make = [name](Scale) {
      const Workload work = workload(name);
      TrainingProgram program;
      program.parts = {work.net};
      program.losses = [loss = work.loss](const Tensors& batch) {
        return Tensors{loss(batch[0], batch[1])};
      };
      program.batch = [input = work.input, target = work.target] { return Tensors{input, target}; };
      return program;
    };
    all.push_back({std::string("peers/") + name, make});
  }
  return all;
}

/// A program on one kind of kernels, and one batch for all steps.
struct Work {
  Work(const Maker& maker, Scale scale, bool sizes_vary)
      : backend(std::make_shared<LlvmFor>(sizes_vary)) {
    torch::manual_seed(0);
    program = maker.make(scale);
    batch = program.batch();
    tandem::Options options;
    options.modules = program.parts;
    options.backend = backend;
    options.verify_every = 0;  // a check would be timed with the step that it follows
    compiled = tandem::compile<Tensors(Tensors)>(program.losses, options);
  }

  void step() const {
    const Tensors results = compiled(batch);
    for (size_t i = 0; i < results.size(); ++i)
      results[i].backward({}, /*retain_graph=*/i + 1 < results.size());
    for (const auto& part : program.parts) part->zero_grad();
  }

  void require_compiled() const {
    const tandem::Stats stats = compiled.stats();
    if (stats.compiles == 1 && stats.eager_calls == 0) return;
    throw std::runtime_error("not every step ran the compiled function\n" + compiled.report());
  }

  std::shared_ptr<LlvmFor> backend;
  TrainingProgram program;
  Tensors batch;
  tandem::Compiled<Tensors(Tensors)> compiled;
};

void compare_steps(const Maker& maker, Scale scale, int most_rounds, Report& report) {
  // First, or the kernels for one size would serve both.
  const Work varying(maker, scale, true), fixed(maker, scale, false);
  varying.step();
  fixed.step();
  const double once =
      std::min(seconds_of([&] { fixed.step(); }), seconds_of([&] { fixed.step(); }));
  const int steps =
      scale == Scale::Small ? 1 : std::max(1, static_cast<int>(std::lround(0.25 / once)));
  const auto repeat = [steps](const Work& work) {
    return [&work, steps] {
      for (int i = 0; i < steps; ++i) work.step();
    };
  };
  const Rounds rounds = interleave(repeat(varying), repeat(fixed), most_rounds);
  varying.require_compiled();
  fixed.require_compiled();
  const Ratio ratio = rounds.ratio();
  const double varying_ms = 1e3 * rounds.median_a() / steps,
               fixed_ms = 1e3 * rounds.median_b() / steps;
  fmt::print("{:<18} {:>9.2f} ms {:>9.2f} ms  {:.3f} ({:.3f} to {:.3f})  {} kernels\n", maker.name,
             varying_ms, fixed_ms, ratio.value, ratio.low, ratio.high, varying.backend->kernels);
  report.add(fmt::format("{}, kernels for all sizes", maker.name), {{"varying_ms", varying_ms},
                                                                    {"fixed_ms", fixed_ms},
                                                                    {"ratio", ratio.value},
                                                                    {"ratio_low", ratio.low},
                                                                    {"ratio_high", ratio.high}});
}

/// A transformer of four blocks at growing lengths: what the first costs, and each that follows.
void make_more(Report& report, int lengths) {
  const auto backend = std::make_shared<LlvmFor>(true);
  auto net = plain_blocks(4);
  tandem::Options options;
  options.modules = {net.ptr()};
  options.backend = backend;
  options.max_entries = lengths + 1;
  const auto compiled = tandem::compile<at::Tensor(at::Tensor)>(
      [net](const at::Tensor& x) mutable { return net->forward(x).pow(2).mean(); }, options);
  double first_ms = 0;
  std::vector<double> later;
  for (int i = 0; i < lengths; ++i) {
    backend->seconds = 0;
    backend->kernels = 0;
    compiled(torch::randn({2, 33 + 7 * i, 768}));
    const double ms = 1e3 * backend->seconds;
    if (i == 0) {
      first_ms = ms;
    } else {
      later.push_back(ms / std::max(1, backend->kernels));
    }
  }
  fmt::print("4 blocks: kernels of the first length {:.1f} ms, of a later one {:.3f} ms each\n",
             first_ms, median(later));
  report.add("kernels of another size", {{"first_ms", first_ms}, {"each_ms", median(later)}});
}

int run(int argc, char** argv) {
  int rounds = kRounds;
  Scale scale = Scale::Full;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--out") {
      ++i;  // Report reads it
    } else if (word == "--rounds" && i + 1 < argc) {
      rounds = std::stoi(argv[++i]);
    } else if (word == "--small") {
      scale = Scale::Small;
    } else {
      names.push_back(word);
    }
  }
  Report report("sizes");
  for (const Maker& maker : makers()) {
    if (names.empty() || std::ranges::find(names, maker.name) != names.end())
      compare_steps(maker, scale, rounds, report);
  }
  make_more(report, scale == Scale::Small ? 3 : 12);
  return report.write(argc, argv) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(argc, argv);
} catch (const std::exception& error) {
  fmt::print(stderr, "sizes_bench: {}\n", error.what());
  return 1;
}
