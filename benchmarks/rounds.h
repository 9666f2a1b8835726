#pragma once

#include <functional>
#include <string>
#include <vector>

/// Timing two things against each other; README.md has the method.
namespace bench {

double seconds_of(const std::function<void()>& work);
double median(std::vector<double> values);

/// A ratio of two times, with the interval that holds it in 95 of 100 runs.
struct Ratio {
  double value = 0;  // of the medians
  double low = 0, high = 0;
};

/// Seconds per round of each contestant, in the same order of rounds.
struct Rounds {
  std::vector<double> a, b;
  double median_a() const { return median(a); }
  double median_b() const { return median(b); }
  /// a over b.
  Ratio ratio() const;
};

constexpr int kRounds = 15;

/// Times `a` and `b` in turns, one of them first in even rounds, the other in odd ones.
Rounds interleave(const std::function<void()>& a, const std::function<void()>& b,
                  int rounds = kRounds);

/// Results of a program as one JSON object per case.
class Report {
 public:
  explicit Report(std::string benchmark) : benchmark_(std::move(benchmark)) {}
  /// A case with named numbers.
  void add(const std::string& name, const std::vector<std::pair<std::string, double>>& numbers);
  /// Where the command line wants it: `--out FILE`, else nowhere. False if it cannot be written.
  bool write(int argc, char** argv) const;

 private:
  std::string benchmark_;
  std::vector<std::string> cases_;
};

}  // namespace bench
