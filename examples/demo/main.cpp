// Trains one character-level transformer several times, side by side: eagerly, through Tandem, and
// through Tandem with free rounding, from the same seed and on the same batches. Shows losses and
// speed while it runs; ends with a table, a picture and a text that the trained network writes.
//
// Exit code 1 if a check fails. On the backend `eager` every loss must have the bits of the eager
// one. On `llvm`, the default, steps taken by themselves must round within the promised bounds
// (rounding_check.h), and the trainings must end alike. A compiled function must have been used in
// every step.
#include "chart.h"
#include "corpus.h"
#include "memory_meter.h"  // of benchmarks/
#include "progress.h"
#include "rounding_check.h"
#include "tandem/tandem.h"
#include "text_file.h"
#include "trainer.h"
#include "transformer.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

namespace {

using namespace demo;
using bench::MemoryMeter;
using bench::Side;
using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 10;  // a busy machine writes a shorter text
// How far the mean of the last losses may be from eager's. Trainings whose roundings or draws
// differ end about a hundredth apart; a wrong gradient or a lost update costs more than this.
constexpr double kEndsAlike = 0.1;

struct Settings {
  int64_t steps = 600;
  int64_t batch = 16;
  int64_t sample = 400;
  int64_t checks = 20;
  double limit_seconds = 75;
  bool fast = true;
  std::string backend = tandem::BackendRef().name();
  std::string text_file = kTextFile;
  std::string out = "demo-out";

  bool promises_bits() const { return backend == "eager"; }
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The trainings, and who watches them.
struct Demo {
  Demo(const Settings& settings, const Shape& shape) : eager(Trainer::eager(shape)) {
    const tandem::Options options{.backend = settings.backend};
    compiled.push_back(Trainer::compiled(Side::Tandem, shape, options));
    if (settings.promises_bits()) return;
    check.emplace(shape);
    if (!settings.fast) return;
    tandem::Options free = options;
    free.rounding = tandem::Rounding::fast;
    free.random = tandem::Random::fast;
    compiled.push_back(Trainer::compiled(Side::Fast, shape, free));
  }

  std::vector<const Trainer*> all() const {
    std::vector<const Trainer*> trainers{&eager};
    for (const Trainer& trainer : compiled) trainers.push_back(&trainer);
    return trainers;
  }

  Trainer eager;
  std::vector<Trainer> compiled{};       // Tandem, and with free rounding
  std::optional<RoundingCheck> check{};  // of the first of them, if its bits may differ
};

/// Of each training the last loss and the speed, on a line that fits a terminal.
std::string status(const Demo& demo) {
  std::string text;
  for (const Trainer* trainer : demo.all()) {
    text += fmt::format("{}{} {:.3f} {:.1f}/s", text.empty() ? "" : "  ", trainer->name(),
                        trainer->losses().back(), 1 / trainer->median_seconds());
  }
  return text;
}

void train(const Settings& settings, const Shape& shape, const Corpus& corpus, MemoryMeter& meter,
           Demo& demo) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  std::vector<Trainer*> trainers{&demo.eager};
  for (Trainer& trainer : demo.compiled) trainers.push_back(&trainer);
  const int64_t between_checks = std::max<int64_t>(1, settings.steps / settings.checks);
  Progress progress(settings.steps);
  const auto start = Clock::now();
  for (int64_t step = 0; step < settings.steps; ++step) {
    const Batch batch = draw_batch(corpus, shape.length, settings.batch, generator);
    const bool checked = demo.check && step % between_checks == 0;
    if (checked) demo.check->expect(demo.compiled[0], batch, step);
    // Taking turns at being first: the others find the batch in the cache.
    for (Trainer* trainer : trainers) trainer->train(batch, step, meter);
    std::ranges::rotate(trainers, trainers.begin() + 1);
    if (checked) demo.check->compare(demo.compiled[0]);
    progress.show(step + 1, status(demo));
    if (seconds_since(start) > settings.limit_seconds) {
      progress.finish();
      fmt::print("stopped after {} steps: {:.0f} seconds are enough for a demonstration\n",
                 step + 1, settings.limit_seconds);
      return;
    }
  }
  progress.finish();
}

/// How many losses have the same bits.
int64_t equal_losses(const Trainer& a, const Trainer& b) {
  const auto bits = [](double loss) { return std::bit_cast<int64_t>(loss); };
  int64_t equal = 0;
  for (size_t i = 0; i < a.losses().size(); ++i)
    equal += bits(a.losses()[i]) == bits(b.losses()[i]) ? 1 : 0;
  return equal;
}

void print_table(const Demo& demo, const MemoryMeter& meter) {
  const auto row = [&](const char* what, auto&& cell) {
    fmt::print("  {:<30}", what);
    for (const Trainer* trainer : demo.all()) fmt::print(" {:>12}", cell(*trainer));
    fmt::print("\n");
  };
  const auto ms = [](double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); };
  fmt::print("\n");
  row("", [](const Trainer& t) { return t.name(); });
  row("first call, compile and all", [&](const Trainer& t) { return ms(t.first_call_seconds()); });
  row("step, median", [&](const Trainer& t) { return ms(t.median_seconds()); });
  row("times as fast as eager", [&](const Trainer& t) {
    return fmt::format("{:.2f}", demo.eager.median_seconds() / t.median_seconds());
  });
  row("peak memory above start", [&](const Trainer& t) {
    return fmt::format("{:.1f} MiB", static_cast<double>(meter.peak_bytes(t.side())) / (1 << 20));
  });
  row("loss, mean of the last tenth",
      [](const Trainer& t) { return fmt::format("{:.4f}", t.mean_of_last_tenth()); });
}

/// Prints each check with its outcome; whether all are passed.
class Verdict {
 public:
  void line(const std::string& what, bool good, const std::string& found) {
    fmt::print("  {:<48} {:<4} {}\n", what, good ? "yes" : "NO", found);
    all_ = all_ && good;
  }
  bool all() const { return all_; }

 private:
  bool all_ = true;
};

bool judge(const Demo& demo, const Settings& settings) {
  Verdict verdict;
  fmt::print("\n");
  // Equal losses prove nothing if Tandem gave up and ran the function itself.
  for (const Trainer& trainer : demo.compiled) {
    const tandem::Stats stats = trainer.function().stats();
    verdict.line(trainer.name() + ": every step ran compiled code",
                 stats.eager_calls == 0 && stats.compiles == 1 && stats.backend_fallbacks == 0,
                 fmt::format("{} of {} calls, {} compile(s)", stats.calls - stats.eager_calls,
                             stats.calls, stats.compiles));
  }
  if (settings.promises_bits()) {
    const auto steps = static_cast<int64_t>(demo.eager.losses().size());
    const int64_t equal = equal_losses(demo.eager, demo.compiled[0]);
    verdict.line("tandem: losses have eager's bits", equal == steps,
                 fmt::format("{} of {}", equal, steps));
    return verdict.all();
  }
  verdict.line("tandem: loss and gradients within the bounds", demo.check->worst() <= 1,
               fmt::format("{} steps; at most {:.0f} % of what is allowed ({})",
                           demo.check->steps(), 100 * demo.check->worst(), demo.check->worst_of()));
  const double end = demo.eager.mean_of_last_tenth();
  for (const Trainer& trainer : demo.compiled) {
    const double apart = std::abs(trainer.mean_of_last_tenth() - end) / end;
    verdict.line(trainer.name() + ": the training ends where eager's does", apart <= kEndsAlike,
                 fmt::format("{:.1f} % apart, {:.0f} % allowed", 100 * apart, 100 * kEndsAlike));
  }
  return verdict.all();
}

/// The median of the steps around each step, which shows more than the steps themselves.
std::vector<double> smooth_ms(const std::vector<double>& seconds) {
  constexpr int64_t kAround = 7;
  const auto count = static_cast<int64_t>(seconds.size());
  std::vector<double> smooth;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = std::max<int64_t>(0, i - kAround), to = std::min(count, i + kAround + 1);
    smooth.push_back(1e3 * median({seconds.begin() + from, seconds.begin() + to}));
  }
  return smooth;
}

void draw(const Demo& demo, const std::filesystem::path& file) {
  // Curves may lie on each other: a broad pale one below, thinner ones above.
  const auto curve = [](const Trainer& trainer, std::vector<double> values) -> Curve {
    Curve style{.name = trainer.name(), .values = std::move(values)};
    switch (trainer.side()) {
      case Side::Eager:
        style.colour = "#f2a65a", style.width = 6;
        break;
      case Side::Fast:
        style.colour = "#3a8f5c", style.width = 1.8, style.dashes = "2 4";
        break;
      default:
        style.colour = "#1f4e79", style.width = 1.8, style.dashes = "7 4";
    }
    return style;
  };
  Panel losses{.title = "A small transformer: training loss", .unit = "nats per character"};
  Panel times{.title = "Time of a step, medians", .unit = "milliseconds", .from_zero = true};
  for (const Trainer* trainer : demo.all()) {
    losses.curves.push_back(curve(*trainer, trainer->losses()));
    times.curves.push_back(curve(*trainer, smooth_ms(trainer->step_seconds())));
    times.curves.back().name += fmt::format(": {:.0f} ms", 1e3 * trainer->median_seconds());
    times.curves.back().width = 2.2;
  }
  std::filesystem::create_directories(file.parent_path());
  if (!write_chart(file, {losses, times}))
    throw std::runtime_error("cannot write " + file.string());
}

/// Continues the middle of the text, one character at a time, with a compiled forward.
std::string write_text(Transformer net, const Corpus& corpus, int64_t window, int64_t count) {
  const torch::NoGradGuard no_grad;
  net->eval();
  auto forward = tandem::compile(net);
  at::Generator generator = at::detail::createCPUGenerator(7);
  at::Tensor seen = corpus.codes.narrow(0, corpus.size() / 2, window).unsqueeze(0);
  std::string text;
  const auto start = Clock::now();
  for (int64_t i = 0; i < count && seconds_since(start) < kSampleSeconds; ++i) {
    const at::Tensor logits = forward(seen).select(1, window - 1);
    const at::Tensor next =
        torch::multinomial(torch::softmax(logits / 0.7, -1), 1, false, generator);
    text += corpus.alphabet[static_cast<size_t>(next.item<int64_t>())];
    seen = torch::cat({seen.narrow(1, 1, window - 1), next}, 1);
  }
  return text;
}

int run(const Settings& settings, MemoryMeter& meter) {
  const Corpus corpus = Corpus::read(settings.text_file);
  const Shape shape{.characters = static_cast<int64_t>(corpus.alphabet.size())};
  Demo demo(settings, shape);
  int64_t parameters = 0;
  for (const at::Tensor& parameter : demo.eager.net()->parameters())
    parameters += parameter.numel();
  fmt::print(
      "a transformer of {} parameters learns {} characters of text in {} steps of {} windows of "
      "{},\n"
      "on {} threads: eagerly, and through tandem {} on the backend {}{};\n"
      "shown are the last loss and steps per second\n\n",
      parameters, corpus.size(), settings.steps, settings.batch, shape.length,
      at::get_num_threads(), tandem::version(), settings.backend,
      demo.compiled.size() > 1 ? ", also with Rounding::fast and Random::fast (\"fast\")" : "");

  train(settings, shape, corpus, meter, demo);
  print_table(demo, meter);
  const bool good = judge(demo, settings);
  const std::filesystem::path chart = std::filesystem::path(settings.out) / "demo.svg";
  draw(demo, chart);
  fmt::print("\nthe network, trained through tandem, goes on from the middle of the book:\n\n{}\n",
             write_text(demo.compiled[0].net(), corpus, shape.length, settings.sample));
  fmt::print("\nlosses and step times: {}\n", chart.string());
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Before libtorch allocates anything; not destroyed, since tensors may outlive main.
  auto* meter = new MemoryMeter;
  Settings settings;
  CLI::App app("Trains a small transformer eagerly and through Tandem, side by side.");
  app.add_option("--backend", settings.backend, "what runs the compiled trainings: llvm, eager")
      ->envname("TANDEM_BACKEND")
      ->capture_default_str();
  app.add_flag("--fast,!--no-fast", settings.fast,
               "train once more with Rounding::fast and Random::fast");
  app.add_option("--steps", settings.steps, "training steps of each side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", settings.batch, "windows in a batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--checks", settings.checks, "steps whose rounding is checked")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--sample", settings.sample, "characters to write at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--limit-seconds", settings.limit_seconds, "training stops after this time")
      ->capture_default_str();
  app.add_option("--text", settings.text_file, "the text to learn");
  app.add_option("--out", settings.out, "folder for the picture")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(settings, *meter);
  } catch (const std::exception& error) {
    std::cerr << "demo: " << error.what() << "\n";
    return 1;
  }
}
