// The first step of a fresh process, compile and all: one line of JSON. run_first_call.py starts it
// and peers/first_call_peer.py in turns. Usage: first_call_bench MODEL
#include "models.h"
#include "rounds.h"
#include "tandem/tandem.h"

#include <fmt/format.h>

#include <exception>

int main(int argc, char** argv) try {
  const bench::Workload work = bench::workload(argc > 1 ? argv[1] : "");
  auto step = tandem::compile(work.net, work.loss);
  const double first = bench::seconds_of([&] { step(work.input, work.target).backward(); });
  const double second = bench::seconds_of([&] { step(work.input, work.target).backward(); });
  if (step.stats().hits != 1) throw std::runtime_error("the second step was not a hit");
  fmt::print("{{\"first_ms\": {:.3f}, \"second_ms\": {:.3f}}}\n", 1e3 * first, 1e3 * second);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "first_call_bench: {}\n", error.what());
  return 1;
}
