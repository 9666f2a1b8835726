#include "pipeline/report.h"

#include "partition/saved_values.h"
#include "pipeline/environment.h"

#include <fmt/format.h>

#include <numeric>
#include <sstream>

namespace tandem::pipeline {
namespace {

constexpr size_t kMostSaved = 12;

std::string bytes_text(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

void describe_saved(std::ostream& out, std::vector<Saved> saved) {
  const int64_t total =
      std::accumulate(saved.begin(), saved.end(), int64_t{0},
                      [](int64_t sum, const Saved& one) { return sum + one.bytes; });
  out << "saved for the backward: " << saved.size() << " values, " << bytes_text(total)
      << " beside the inputs themselves\n";
  std::stable_sort(saved.begin(), saved.end(),
                   [](const Saved& a, const Saved& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < std::min(saved.size(), kMostSaved); ++i) {
    out << fmt::format("  {:>10}  %{}: {}{}\n", bytes_text(saved[i].bytes), saved[i].name,
                       saved[i].why, saved[i].line.empty() ? "" : " (" + saved[i].line + ")");
  }
  if (saved.size() > kMostSaved) out << "  and " << saved.size() - kMostSaved << " smaller ones\n";
}

}  // namespace

std::string describe_entry(const runtime::EntryState& entry) {
  const Split& split = entry.split();
  std::ostringstream out;
  out << (split.signature.training ? "training" : "inference") << " entry on backend "
      << entry.backend_name() << ": " << split.forward.node_count() << " forward nodes";
  if (split.signature.training) out << ", " << split.backward.node_count() << " backward nodes";
  out << "\n" << split.signature;
  if (split.signature.training) describe_saved(out, partition::saved_with_lines(split));
  out << "serves a call when\n";
  for (const std::string& guard : entry.guards().texts()) out << "  " << guard << "\n";
  return out.str();
}

std::string describe_stats(const Stats& stats) {
  std::ostringstream out;
  out << stats << "\n";
  if (const std::string environment = describe_environment(); !environment.empty()) {
    out << "set by the environment: " << environment << "\n";
  }
  return out.str();
}

}  // namespace tandem::pipeline
