// Trains one character-level transformer twice, side by side: eagerly and through Tandem, from the
// same seed and on the same batches. Shows losses and speed while it runs; ends with a table, the
// loss curves as a picture and a text that the trained network writes. Exit code 1 if any loss
// differs in any bit, or if the compiled function was not used in every step.
#include "loss_chart.h"
#include "memory_meter.h"  // of benchmarks/
#include "progress.h"
#include "tandem/tandem.h"
#include "text_file.h"
#include "transformer.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>

namespace {

using namespace demo;
using bench::MemoryMeter;
using bench::Side;
namespace F = torch::nn::functional;
using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 15;  // a busy machine writes a shorter text

struct Settings {
  int64_t steps = 700;
  int64_t batch = 16;
  int64_t sample = 400;
  double limit_seconds = 85;
  std::string text_file = kTextFile;
  std::string out = "demo-out";
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The text as numbers, and the characters that these stand for.
struct Corpus {
  std::string alphabet;
  at::Tensor codes;

  static Corpus read(const std::string& file) {
    std::ifstream in(file);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (text.empty()) throw std::runtime_error("cannot read " + file);
    Corpus corpus{.alphabet = text,
                  .codes = torch::empty({static_cast<int64_t>(text.size())}, torch::kLong)};
    std::ranges::sort(corpus.alphabet);
    corpus.alphabet.erase(std::unique(corpus.alphabet.begin(), corpus.alphabet.end()),
                          corpus.alphabet.end());
    for (size_t i = 0; i < text.size(); ++i) {
      corpus.codes[static_cast<int64_t>(i)] = static_cast<int64_t>(corpus.alphabet.find(text[i]));
    }
    return corpus;
  }

  int64_t size() const { return codes.size(0); }
};

struct Batch {
  at::Tensor characters, next;
};

/// Windows from random places, and the same windows one character later.
Batch draw_batch(const Corpus& corpus, int64_t length, int64_t count, at::Generator& generator) {
  const at::Tensor starts = torch::randint(corpus.size() - length - 1, {count, 1}, generator);
  const at::Tensor places = starts + torch::arange(length);
  return {corpus.codes.index({places}), corpus.codes.index({places + 1})};
}

using StepFn = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

/// One of the two trainings.
struct Trainer {
  Side side;
  Transformer net;
  StepFn loss_of;
  torch::optim::AdamW optimizer;
  tandem::Compiled<at::Tensor(at::Tensor, at::Tensor)> compiled{};  // empty on the eager side
  std::vector<double> losses{}, step_seconds{};
  double first_call_seconds = 0;

  void train(const Batch& batch, int64_t step, MemoryMeter& meter) {
    // Both sides draw the same dropout.
    torch::manual_seed(static_cast<uint64_t>(1000 + step));
    meter.set_active(side);
    const auto start = Clock::now();
    at::Tensor loss = loss_of(batch.characters, batch.next);
    if (step == 0) first_call_seconds = seconds_since(start);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    step_seconds.push_back(seconds_since(start));
    losses.push_back(loss.item<float>());
    loss.reset();
    meter.set_active(Side::Neither);
  }

  double steps_per_second() const { return 1 / median(step_seconds); }
};

Trainer make_trainer(Side side, const Shape& shape) {
  torch::manual_seed(42);
  Transformer net(shape);
  auto loss_of = [net](const at::Tensor& characters, const at::Tensor& next) mutable {
    return F::cross_entropy(net->forward(characters).flatten(0, 1), next.flatten());
  };
  const auto options = torch::optim::AdamWOptions(2e-3).betas({0.9, 0.99});
  Trainer trainer{.side = side,
                  .net = net,
                  .loss_of = loss_of,
                  .optimizer = torch::optim::AdamW(net->parameters(), options)};
  if (side == Side::Tandem) {
    // All that differs between the two trainings.
    trainer.compiled = tandem::compile(net, loss_of);
    trainer.loss_of = trainer.compiled;
  }
  return trainer;
}

/// Equal losses prove nothing if Tandem gave up and ran the function itself.
bool was_compiled_once(const Trainer& tandem) {
  const tandem::Stats stats = tandem.compiled.stats();
  fmt::print("  {:<28} {:>25}\n", "calls of compiled code",
             fmt::format("{} of {}, {} compile(s)", stats.calls - stats.eager_calls, stats.calls,
                         stats.compiles));
  return stats.eager_calls == 0 && stats.compiles == 1;
}

std::string status(const Trainer& eager, const Trainer& tandem) {
  return fmt::format("eager: loss {:.4f}, {:.1f} steps/s   tandem: loss {:.4f}, {:.1f} steps/s",
                     eager.losses.back(), eager.steps_per_second(), tandem.losses.back(),
                     tandem.steps_per_second());
}

/// How many losses have the same bits.
int64_t equal_losses(const Trainer& a, const Trainer& b) {
  int64_t equal = 0;
  for (size_t i = 0; i < a.losses.size(); ++i) {
    equal += std::memcmp(&a.losses[i], &b.losses[i], sizeof(double)) == 0 ? 1 : 0;
  }
  return equal;
}

void print_table(const Trainer& eager, const Trainer& tandem, const MemoryMeter& meter) {
  auto row = [](const char* what, const std::string& a, const std::string& b) {
    fmt::print("  {:<28} {:>12} {:>12}\n", what, a, b);
  };
  auto ms = [](double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); };
  auto mib = [&](Side side) {
    return fmt::format("{:.1f} MiB", static_cast<double>(meter.peak_bytes(side)) / (1 << 20));
  };
  const auto count = static_cast<int64_t>(eager.losses.size());
  const int64_t equal = equal_losses(eager, tandem);
  fmt::print("\n");
  row("", "eager", "tandem");
  row("first call (forward)", ms(eager.first_call_seconds), ms(tandem.first_call_seconds));
  row("step, median", ms(median(eager.step_seconds)), ms(median(tandem.step_seconds)));
  row("peak memory above start", mib(Side::Eager), mib(Side::Tandem));
  row("last loss", fmt::format("{:.6f}", eager.losses.back()),
      fmt::format("{:.6f}", tandem.losses.back()));
  fmt::print("  {:<28} {:>25}\n", "speed, tandem over eager",
             fmt::format("{:.3f}", median(eager.step_seconds) / median(tandem.step_seconds)));
  fmt::print("  {:<28} {:>25}\n", "losses equal bit for bit",
             fmt::format("{} ({} of {} steps)", equal == count ? "yes" : "NO", equal, count));
}

/// Continues the beginning of the text, one character at a time, with a compiled forward.
std::string write_text(Transformer net, const Corpus& corpus, int64_t window, int64_t count) {
  torch::NoGradGuard no_grad;
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

void train(const Settings& settings, const Shape& shape, const Corpus& corpus, MemoryMeter& meter,
           Trainer& eager, Trainer& tandem) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  Progress progress(settings.steps);
  const auto start = Clock::now();
  for (int64_t step = 0; step < settings.steps; ++step) {
    const Batch batch = draw_batch(corpus, shape.length, settings.batch, generator);
    // Taking turns at being first: the second finds the batch in the cache.
    Trainer& first = step % 2 == 0 ? eager : tandem;
    Trainer& second = step % 2 == 0 ? tandem : eager;
    first.train(batch, step, meter);
    second.train(batch, step, meter);
    progress.show(step + 1, status(eager, tandem));
    if (seconds_since(start) > settings.limit_seconds) {
      progress.finish();
      fmt::print("stopped after {} steps: {:.0f} seconds are enough for a demonstration\n",
                 step + 1, settings.limit_seconds);
      return;
    }
  }
  progress.finish();
}

int run(const Settings& settings, MemoryMeter& meter) {
  const Corpus corpus = Corpus::read(settings.text_file);
  const Shape shape{.characters = static_cast<int64_t>(corpus.alphabet.size())};
  Trainer eager = make_trainer(Side::Eager, shape);
  Trainer tandem = make_trainer(Side::Tandem, shape);
  int64_t parameters = 0;
  for (const at::Tensor& parameter : eager.net->parameters()) parameters += parameter.numel();
  fmt::print(
      "a transformer of {} parameters learns {} characters of text, {} steps of {} windows of {},\n"
      "twice: eagerly and through tandem {}\n\n",
      parameters, corpus.size(), settings.steps, settings.batch, shape.length, tandem::version());

  train(settings, shape, corpus, meter, eager, tandem);
  print_table(eager, tandem, meter);
  const bool compiled = was_compiled_once(tandem);

  std::filesystem::create_directories(settings.out);
  const std::filesystem::path chart = std::filesystem::path(settings.out) / "loss.svg";
  // The lines lie on each other: a broad pale one below, a thin dashed one above.
  const bool written =
      write_chart(chart, "Character-level transformer: training loss",
                  {{.name = "eager", .colour = "#f2a65a", .width = 6, .values = eager.losses},
                   {.name = "tandem",
                    .colour = "#1f4e79",
                    .width = 1.8,
                    .dashes = "7 4",
                    .values = tandem.losses}});
  if (!written) throw std::runtime_error("cannot write " + chart.string());

  fmt::print("\nthe network, trained through tandem, goes on from the middle of the book:\n\n{}\n",
             write_text(tandem.net, corpus, shape.length, settings.sample));
  fmt::print("\nloss curves: {}\n", chart.string());
  const bool equal = equal_losses(eager, tandem) == static_cast<int64_t>(eager.losses.size());
  return equal && compiled ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Before libtorch allocates anything; not destroyed, since tensors may outlive main.
  auto* meter = new MemoryMeter;
  Settings settings;
  CLI::App app("Trains a small transformer eagerly and through Tandem, side by side.");
  app.add_option("--steps", settings.steps, "training steps of each side")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", settings.batch, "windows in a batch")
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
