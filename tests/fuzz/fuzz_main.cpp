#include "fuzz/check.h"
#include "fuzz/generate.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

int main(int argc, char** argv) {
  using namespace tandem::fuzz;
  const uint64_t from = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100;
  at::set_num_threads(1);
  std::map<std::string, int> refused;
  int failed = 0, refusals = 0, raised = 0, backward_raised = 0;
  double generating = 0, checking = 0;
  for (uint64_t seed = from; seed < from + count; ++seed) {
    const auto start = std::chrono::steady_clock::now();
    const ProgramSpec program = generate(seed, false);
    const auto middle = std::chrono::steady_clock::now();
    if (count == 1) std::fputs(print(program).c_str(), stdout);
    std::fflush(stdout);
    const Verdict verdict = check(program);
    generating += std::chrono::duration<double>(middle - start).count();
    checking += std::chrono::duration<double>(std::chrono::steady_clock::now() - middle).count();
    raised += verdict.eager_raised;
    backward_raised += verdict.eager_backward_raised;
    if (verdict.kind == Verdict::Kind::Refused) {
      ++refusals;
      ++refused[verdict.refusal.substr(0, 100)];
    }
    if (verdict.kind == Verdict::Kind::Failed) {
      ++failed;
      std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
      for (const std::string& text : verdict.differences) {
        std::printf("   %s\n", text.substr(0, 300).c_str());
      }
      std::fflush(stdout);
    }
  }
  std::printf("%d failed, %d refused, eager raised in %d calls and %d backwards of %llu; %.1f + %.1f ms each\n", failed,
              refusals, raised, backward_raised, static_cast<unsigned long long>(count),
              generating * 1e3 / static_cast<double>(count), checking * 1e3 / static_cast<double>(count));
  for (const auto& [text, number] : refused) std::printf("%5d  %s\n", number, text.c_str());
}
