#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace demo {

Progress::Progress(int64_t total) : total_(total), terminal_(isatty(STDOUT_FILENO) != 0) {}

void Progress::show(int64_t done, const std::string& status) {
  constexpr int64_t kCells = 20;
  const int64_t filled = kCells * done / total_;
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(kCells - filled), '.');
  const std::string text = fmt::format("[{}] {:>4}/{}  {}", bar, done, total_, status);
  if (terminal_) {
    fmt::print("\r{}\033[K", text);
  } else if (const int64_t tenth = 10 * done / total_; tenth != last_tenth_) {
    last_tenth_ = tenth;
    fmt::print("{}\n", text);
  }
  std::fflush(stdout);
}

void Progress::finish() {
  if (terminal_) fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace demo
