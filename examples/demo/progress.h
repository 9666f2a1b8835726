#pragma once

#include <cstdint>
#include <string>

namespace demo {

/// A bar that rewrites its line on a terminal; elsewhere a line for every tenth, without control
/// characters.
class Progress {
 public:
  explicit Progress(int64_t total);

  /// `status` goes behind the bar.
  void show(int64_t done, const std::string& status);
  /// Leaves the bar as it is and goes to the next line.
  void finish();

 private:
  int64_t total_;
  int64_t last_tenth_ = 0;
  bool terminal_;
};

}  // namespace demo
