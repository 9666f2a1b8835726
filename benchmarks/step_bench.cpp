// One training step (forward, loss, backward; no optimiser) of whole programs, eager against
// Tandem: time in turns, then peak memory. Usage:
//   step_bench [--out FILE] [--rounds N] [--small] [PROGRAM ...]
#include "memory_meter.h"
#include "models.h"
#include "rounds.h"
#include "support/programs.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

namespace {

using namespace bench;
using tandem::test::ProgramMaker;
using tandem::test::Scale;
using tandem::test::TrainingProgram;
using Tensors = std::vector<at::Tensor>;
using Losses = std::function<Tensors(const Tensors&)>;

struct Settings {
  int rounds = kRounds;
  Scale scale = Scale::Full;
  std::vector<std::string> programs{};  // empty: all
};

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--out") {
      ++i;  // Report reads it
    } else if (word == "--rounds" && i + 1 < argc) {
      settings.rounds = std::stoi(argv[++i]);
    } else if (word == "--small") {
      settings.scale = Scale::Small;
    } else {
      settings.programs.push_back(word);
    }
  }
  return settings;
}

/// The transformer of the capture benchmark, as a program.
TrainingProgram blocks12(Scale scale) {
  auto net = plain_blocks(scale == Scale::Small ? 1 : 12);
  return {.name = "blocks12",
          .parts = {net.ptr()},
          .losses =
              [net](const Tensors& batch) mutable {
                return Tensors{net->forward(batch[0]).pow(2).mean()};
              },
          .batch = [] { return Tensors{plain_input()}; }};
}

std::vector<ProgramMaker> chosen_programs(const Settings& settings) {
  std::vector<ProgramMaker> all{{"blocks12", blocks12}};
  for (const ProgramMaker& maker : tandem::test::training_programs()) all.push_back(maker);
  if (settings.programs.empty()) return all;
  std::vector<ProgramMaker> chosen;
  for (const std::string& name : settings.programs) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& maker) { return name == maker.name; });
    if (found == all.end()) throw std::runtime_error("no program is called " + name);
    chosen.push_back(*found);
  }
  return chosen;
}

/// A program, its compiled form, and one batch for all steps.
struct Work {
  explicit Work(const ProgramMaker& maker, Scale scale) {
    torch::manual_seed(0);
    program = maker.make(scale);
    batch = program.batch();
    tandem::Options options;
    options.modules = program.parts;
    compiled = tandem::compile<Tensors(Tensors)>(program.losses, options);
  }

  void step(const Losses& losses) const {
    {
      const Tensors results = losses(batch);
      for (size_t i = 0; i < results.size(); ++i)
        results[i].backward({}, /*retain_graph=*/i + 1 < results.size());
    }
    for (const auto& part : program.parts) part->zero_grad();
  }
  void eager_step() const { step(program.losses); }
  void tandem_step() const { step(compiled); }

  void require_compiled() const {
    const tandem::Stats stats = compiled.stats();
    if (stats.compiles == 1 && stats.eager_calls == 0) return;
    throw std::runtime_error("not every step ran the compiled function\n" + compiled.report());
  }

  TrainingProgram program;
  Tensors batch;
  tandem::Compiled<Tensors(Tensors)> compiled;
};

struct Result {
  double eager_ms = 0, tandem_ms = 0, first_ms = 0;
  Ratio time{};  // Tandem's over eager's
  int64_t eager_bytes = 0, tandem_bytes = 0;
};

void measure_time(const ProgramMaker& maker, const Settings& settings, Result& result) {
  const Work work(maker, settings.scale);
  result.first_ms = 1e3 * seconds_of([&] { work.tandem_step(); });
  work.eager_step();
  // A round of about a quarter of a second evens out what a single step suffers.
  const double once =
      std::min(seconds_of([&] { work.eager_step(); }), seconds_of([&] { work.eager_step(); }));
  const int steps =
      settings.scale == Scale::Small ? 1 : std::max(1, static_cast<int>(std::lround(0.25 / once)));
  auto repeat = [steps](auto fn) {
    return [=] {
      for (int i = 0; i < steps; ++i) fn();
    };
  };
  const Rounds rounds = interleave(repeat([&] { work.tandem_step(); }),
                                   repeat([&] { work.eager_step(); }), settings.rounds);
  work.require_compiled();
  result.time = rounds.ratio();
  result.tandem_ms = 1e3 * rounds.median_a() / steps;
  result.eager_ms = 1e3 * rounds.median_b() / steps;
}

/// Bytes above the level before the first step, over that step (for Tandem: the compile) and two
/// more.
int64_t peak_bytes(MemoryMeter& meter, Side side, const std::function<void()>& step) {
  meter.set_active(side);
  const int64_t level = meter.restart(side);
  for (int i = 0; i < 3; ++i) step();
  meter.set_active(Side::Neither);
  return meter.peak_bytes(side) - level;
}

void measure_memory(const ProgramMaker& maker, const Settings& settings, MemoryMeter& meter,
                    Result& result) {
  const Work work(maker, settings.scale);
  result.eager_bytes = peak_bytes(meter, Side::Eager, [&] { work.eager_step(); });
  result.tandem_bytes = peak_bytes(meter, Side::Tandem, [&] { work.tandem_step(); });
  work.require_compiled();
}

void print(const std::string& name, const Result& result, Report& report) {
  auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const double memory =
      static_cast<double>(result.tandem_bytes) / static_cast<double>(result.eager_bytes);
  fmt::print(
      "{:<16} {:>8.2f} ms {:>8.2f} ms {:>6.3f}  {:.3f} to {:.3f} {:>8.1f} MiB {:>8.1f} MiB "
      "{:>6.3f} "
      "{:>8.0f} ms\n",
      name, result.eager_ms, result.tandem_ms, result.time.value, result.time.low, result.time.high,
      mib(result.eager_bytes), mib(result.tandem_bytes), memory, result.first_ms);
  report.add(name, {{"eager_ms", result.eager_ms},
                    {"tandem_ms", result.tandem_ms},
                    {"time_ratio", result.time.value},
                    {"time_ratio_low", result.time.low},
                    {"time_ratio_high", result.time.high},
                    {"eager_peak_bytes", static_cast<double>(result.eager_bytes)},
                    {"tandem_peak_bytes", static_cast<double>(result.tandem_bytes)},
                    {"memory_ratio", memory},
                    {"first_step_ms", result.first_ms}});
}

int run(int argc, char** argv) {
  const Settings settings = read_settings(argc, argv);
  const std::vector<ProgramMaker> programs = chosen_programs(settings);
  if (settings.scale == Scale::Small) at::set_num_threads(1);  // nothing there to share
  std::map<std::string, Result> results;
  std::map<std::string, std::string> errors;
  auto attempt = [&](const ProgramMaker& maker, auto measure) {
    if (errors.count(maker.name) > 0) return;
    try {
      measure();
    } catch (const c10::Error& error) {
      errors[maker.name] = error.what_without_backtrace();
    } catch (const std::exception& error) {
      errors[maker.name] = error.what();
    }
  };
  for (const ProgramMaker& maker : programs)
    attempt(maker, [&] { measure_time(maker, settings, results[maker.name]); });
  // The meter costs time, so it comes when the clock is done. Tensors may outlive main: no delete.
  auto* meter = new MemoryMeter;
  for (const ProgramMaker& maker : programs)
    attempt(maker, [&] { measure_memory(maker, settings, *meter, results[maker.name]); });

  Report report("step");
  fmt::print("{:<16} {:>11} {:>11} {:>6}  {:<14} {:>12} {:>12} {:>6} {:>11}\n", "step", "eager",
             "tandem", "ratio", "95 %", "eager peak", "tandem peak", "ratio", "first step");
  for (const ProgramMaker& maker : programs) {
    if (errors.count(maker.name) > 0) {
      fmt::print("{:<16} FAILED: {}\n", maker.name, errors[maker.name]);
    } else {
      print(maker.name, results[maker.name], report);
    }
  }
  return report.write(argc, argv) && errors.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "step_bench: {}\n", error.what());
    return 1;
  }
}
