#include "rounds.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <string_view>

namespace bench {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Ratio Rounds::ratio() const {
  // Of the same statistic as the value, by resampling whole rounds: what disturbed a round stays
  // with both of its times. Fixed seed, so that a result file can be computed again.
  constexpr int kResamples = 4000;
  std::mt19937 random(1);
  std::uniform_int_distribution<size_t> pick(0, a.size() - 1);
  std::vector<double> ratios;
  for (int i = 0; i < kResamples; ++i) {
    Rounds sample;
    for (size_t n = 0; n < a.size(); ++n) {
      const size_t round = pick(random);
      sample.a.push_back(a[round]);
      sample.b.push_back(b[round]);
    }
    ratios.push_back(sample.median_a() / sample.median_b());
  }
  std::sort(ratios.begin(), ratios.end());
  return {median_a() / median_b(), ratios[kResamples / 40],
          ratios[kResamples - 1 - kResamples / 40]};
}

Rounds interleave(const std::function<void()>& a, const std::function<void()>& b, int rounds) {
  Rounds times;
  for (int i = 0; i < rounds; ++i) {
    if (i % 2 == 0) {
      times.a.push_back(seconds_of(a));
      times.b.push_back(seconds_of(b));
    } else {
      times.b.push_back(seconds_of(b));
      times.a.push_back(seconds_of(a));
    }
  }
  return times;
}

void Report::add(const std::string& name,
                 const std::vector<std::pair<std::string, double>>& numbers) {
  std::string text = fmt::format("    {{\"name\": \"{}\"", name);
  for (const auto& [key, value] : numbers) text += fmt::format(", \"{}\": {:.9g}", key, value);
  cases_.push_back(text + "}");
}

bool Report::write(int argc, char** argv) const {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) != "--out") continue;
    std::ofstream out(argv[i + 1]);
    out << fmt::format(
        "{{\n  \"benchmark\": \"{}\", \"threads\": {}, \"rounds\": {},\n  \"cases\": [\n",
        benchmark_, at::get_num_threads(), kRounds);
    for (size_t i_case = 0; i_case < cases_.size(); ++i_case) {
      out << cases_[i_case] << (i_case + 1 < cases_.size() ? ",\n" : "\n");
    }
    out << "  ]\n}\n";
    out.flush();
    if (!out.good()) {
      fmt::print(stderr, "{}: cannot write {}\n", benchmark_, argv[i + 1]);
      return false;
    }
  }
  return true;
}

}  // namespace bench
