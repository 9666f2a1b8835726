#include "fuzz/generate.h"
#include "fuzz/ledger.h"
#include "fuzz/workers.h"
#include "fuzz/write_program.h"
#include "tandem/log.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace tandem::fuzz {
namespace {

struct Arguments {
  uint64_t seed_from = 0, count = 1000;
  std::string shard = "0/1";
  std::string ledger{}, failures = "fuzz-failures";
  std::optional<uint64_t> only{}, write{};
  std::string output{}, backend = "eager", patterns{};
  std::vector<std::string> having{};
  bool second_order = true, patterned = false, coverage = false, quiet = false;
  RunOptions run{};
};

void print_sums(const Ledger& ledger) {
  const auto sum = [&](const char* name) {
    const auto found = ledger.sums.find(name);
    return found == ledger.sums.end() ? int64_t{0} : found->second;
  };
  const auto done = static_cast<int64_t>(ledger.done());
  std::printf(
      "%lld programs: %lld like eager, %lld refused (%.1f %%), %lld failed, %lld crashed; eager "
      "raised in %lld calls and %lld backwards; %.1f ms each\n",
      static_cast<long long>(done), static_cast<long long>(sum("passed")),
      static_cast<long long>(sum("refused")),
      done ? 100.0 * static_cast<double>(sum("refused")) / static_cast<double>(done) : 0.0,
      static_cast<long long>(sum("failed")), static_cast<long long>(sum("crashed")),
      static_cast<long long>(sum("eager_raised")),
      static_cast<long long>(sum("eager_backward_raised")),
      done ? static_cast<double>(sum("milliseconds")) / static_cast<double>(done) : 0.0);
  for (const auto& [reason, count] : ledger.refusals) {
    std::printf("%8lld refused: %s\n", static_cast<long long>(count), reason.c_str());
  }
}

bool has_any(const PatternSet& patterns, const std::vector<std::string>& names) {
  return std::ranges::any_of(patterns, [&](ProgramPattern pattern) {
    return std::ranges::count(names, name_of(pattern)) > 0;
  });
}

int run(const Arguments& arguments) {
  const GenerateOptions programs{arguments.second_order, switched_on(arguments.patterns)};
  if (arguments.write) {
    std::ofstream file(arguments.output);
    file << write_program(generate(*arguments.write, programs), {});
    return file.flush() ? 0 : 2;
  }
  if (arguments.only) {
    return run_one(*arguments.only, programs, arguments.failures) ? 0 : 1;
  }
  RunOptions options = arguments.run;
  options.programs = programs;
  options.ledger = arguments.ledger;
  options.failures = arguments.failures;
  options.quiet = arguments.quiet;
  unsigned long long shard = 0, shards = 1;
  if (std::sscanf(arguments.shard.c_str(), "%llu/%llu", &shard, &shards) != 2 || shard >= shards) {
    std::fprintf(stderr, "fuzz: --shard: expected i/n with i < n, got %s\n",
                 arguments.shard.c_str());
    return 2;
  }
  Ledger ledger;
  if (!arguments.ledger.empty()) ledger.load(arguments.ledger);
  for (uint64_t seed = arguments.seed_from; seed < arguments.seed_from + arguments.count; ++seed) {
    if (seed % shards != shard || ledger.is_done(seed)) continue;
    const PatternSet patterns = patterns_of(seed, programs.patterns);
    if (arguments.patterned && patterns.empty()) continue;
    if (!arguments.having.empty() && !has_any(patterns, arguments.having)) continue;
    options.seeds.push_back(seed);
  }
  std::printf("seeds %llu to %llu, of which %zu are to be done\n",
              static_cast<unsigned long long>(arguments.seed_from),
              static_cast<unsigned long long>(arguments.seed_from + arguments.count - 1),
              options.seeds.size());
  std::fflush(stdout);  // workers are forked
  run_programs(options, ledger);
  print_sums(ledger);
  if (arguments.coverage) ledger.coverage.print(std::cout, programs.patterns);
  if (ledger.failures.empty()) return 0;
  if (!options.first_failure)
    std::printf("programs that failed, shrunk, are in %s\n", arguments.failures.c_str());
  return 1;
}

std::vector<std::string> names_of_patterns() {
  std::vector<std::string> names;
  for (const PatternRow& row : program_patterns()) names.emplace_back(row.name);
  return names;
}

}  // namespace
}  // namespace tandem::fuzz

int main(int argc, char** argv) {
  // Programs of the generator have no modules to name.
  tandem::set_warning_sink([](const std::string& line) {
    if (line.find("no module is named") == std::string::npos) std::cerr << line << "\n";
  });
  tandem::fuzz::Arguments arguments;
  CLI::App app("Random programs, run eagerly and compiled, compared in whatever a caller can see");
  app.add_option("--seed-from", arguments.seed_from, "first seed");
  app.add_option("--count", arguments.count, "how many seeds");
  app.add_option("--shard", arguments.shard, "i/n: only seeds that leave i when divided by n");
  app.add_option("--jobs", arguments.run.jobs, "processes")->check(CLI::Range(1, 1024));
  app.add_option("--ledger", arguments.ledger, "file that keeps the sums and which seeds are done");
  app.add_option("--failures", arguments.failures, "folder for programs that failed");
  app.add_option("--time-limit", arguments.run.time_limit_s, "stop after so many seconds");
  app.add_option("--only", arguments.only, "run this seed in this process and print everything");
  app.add_option("--write", arguments.write, "write the program of this seed to --output");
  app.add_option("--output", arguments.output, "file for --write");
  app.add_option("--backend", arguments.backend, "what runs the graphs: eager, llvm")
      ->envname("TANDEM_BACKEND")
      ->capture_default_str();
  app.add_flag("--second-order,!--no-second-order", arguments.second_order,
               "differentiate half of the programs twice");
  app.add_option("--patterns", arguments.patterns,
                 "+name,-name: switches of the generator, changed; all: every one");
  app.add_flag("--patterned", arguments.patterned, "only programs with a pattern that is on");
  app.add_option("--having", arguments.having, "only programs with one of these patterns")
      ->delimiter(',')
      ->check(CLI::IsMember(tandem::fuzz::names_of_patterns()));
  app.add_flag("--first-failure", arguments.run.first_failure,
               "stop at the first program that fails, and do not shrink it");
  app.add_flag("--coverage", arguments.coverage, "print op x company, and pairs never drawn");
  app.add_flag("--quiet", arguments.quiet, "no progress line");
  CLI11_PARSE(app, argc, argv);
  // Read wherever a program is made, compiled or judged.
  setenv("TANDEM_BACKEND", arguments.backend.c_str(), 1);
  try {
    return tandem::fuzz::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
