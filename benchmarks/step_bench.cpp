// One training step (forward, loss, backward; no optimiser), eager against Tandem.
#include "models.h"
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace {

using namespace bench;

void step(const Workload& work,
          const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& loss) {
  loss(work.input, work.target).backward();
  for (at::Tensor& parameter : work.net->parameters()) parameter.mutable_grad().reset();
}

void measure(const Workload& work, Report& report) {
  auto compiled = tandem::compile(work.net, work.loss);
  const double first = seconds_of([&] { step(work, compiled); });
  step(work, work.loss);
  // A round of about a quarter of a second evens out what a single step suffers.
  const double once = std::min(seconds_of([&] { step(work, work.loss); }),
                               seconds_of([&] { step(work, work.loss); }));
  const int steps = std::max(1, static_cast<int>(std::lround(0.25 / once)));

  auto repeat = [steps](auto fn) {
    return [=] {
      for (int i = 0; i < steps; ++i) fn();
    };
  };
  const Rounds rounds =
      interleave(repeat([&] { step(work, work.loss); }), repeat([&] { step(work, compiled); }));
  if (const tandem::Stats stats = compiled.stats(); stats.compiles != 1 || stats.eager_calls != 0) {
    throw std::runtime_error(work.name + ": not every step ran the compiled function\n" +
                             compiled.report());
  }
  const Ratio speed = rounds.ratio();
  const double eager_ms = 1e3 * rounds.median_a() / steps,
               tandem_ms = 1e3 * rounds.median_b() / steps;
  fmt::print("{:<10} {:>9.2f} ms {:>9.2f} ms {:>7.3f}  {:.3f} to {:.3f} {:>10.1f} ms\n", work.name,
             eager_ms, tandem_ms, speed.value, speed.low, speed.high, 1e3 * first);
  report.add(work.name, {{"eager_ms", eager_ms},
                         {"tandem_ms", tandem_ms},
                         {"speed", speed.value},
                         {"speed_low", speed.low},
                         {"speed_high", speed.high},
                         {"first_step_ms", 1e3 * first},
                         {"steps_per_round", static_cast<double>(steps)}});
}

}  // namespace

int main(int argc, char** argv) {
  Report report("step");
  fmt::print("{:<10} {:>12} {:>12} {:>7}  {:<14} {:>13}\n", "step", "eager", "tandem", "speed",
             "95 %", "first step");
  for (const Workload& work : {mlp(), conv_net(), gpt()}) measure(work, report);
  return report.write(argc, argv) ? 0 : 1;
}
