#include "pipeline/reports/report.h"

#include "base/error.h"
#include "partition/memory_use.h"
#include "partition/saved_values.h"
#include "pipeline/settings/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <sstream>

namespace tandem::pipeline {
namespace {

constexpr size_t kMostSaved = 6;

std::string bytes_text(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

/// The largest first, the small ones counted only. `T`: Saved or Recomputed.
template <class T>
void describe_largest(std::ostream& out, std::vector<T> values, const std::string& indent) {
  std::ranges::stable_sort(values, std::greater<>(), &T::bytes);
  for (size_t i = 0; i < std::min(values.size(), kMostSaved); ++i) {
    out << indent
        << fmt::format("  {:>10}  %{}: {}{}\n", bytes_text(values[i].bytes), values[i].name,
                       values[i].why, values[i].line.empty() ? "" : " (" + values[i].line + ")");
  }
  if (values.size() > kMostSaved) {
    out << indent << "  and " << values.size() - kMostSaved << " smaller ones\n";
  }
}

/// Leaves those that take memory; how many do not?
template <class T>
size_t drop_free(std::vector<T>& values) {
  return std::erase_if(values, [](const T& value) { return value.bytes == 0; });
}

template <class T>
std::string total_text(const std::vector<T>& values) {
  int64_t total = 0;
  for (const T& value : values) total += value.bytes;
  return base::str(values.size(), values.size() == 1 ? " value, " : " values, ", bytes_text(total));
}

}  // namespace

std::string describe_saved(const Split& split, const std::string& indent) {
  std::vector<Saved> saved = partition::saved_with_lines(split);
  // An input that is kept by reference costs nothing of its own.
  const size_t inputs = drop_free(saved);
  std::ostringstream out;
  out << indent << "saved for the backward: " << total_text(saved);
  if (inputs > 0) {
    out << "; and " << inputs << (inputs == 1 ? " input" : " inputs") << " by reference";
  }
  out << "\n";
  describe_largest(out, std::move(saved), indent);
  std::vector<Recomputed> recomputed = partition::recomputed_with_lines(split);
  const size_t views = drop_free(recomputed);
  if (recomputed.empty()) return out.str();
  out << indent << "computed again in the backward: " << total_text(recomputed);
  if (views > 0) out << "; and " << views << (views == 1 ? " view" : " views");
  out << "\n";
  describe_largest(out, std::move(recomputed), indent);
  return out.str();
}

std::string describe_memory(const runtime::EntryState& entry, const std::string& indent) {
  using Half = runtime::PeakMeter::Half;
  const Split& split = entry.split();
  const auto use_of = [](const ir::Graph& graph, std::span<const int64_t> released) {
    return partition::memory_use(graph, partition::order_of(graph), released);
  };
  const partition::MemoryUse forward = use_of(split.forward, {});
  const auto forward_seen = entry.peak_meter().measured(Half::Forward);
  std::ostringstream out;
  const auto line = [&](const char* what, int64_t predicted, std::optional<int64_t> seen) {
    out << indent
        << fmt::format("  {:<18}  {:>10}  {}\n", what, bytes_text(predicted),
                       seen ? bytes_text(*seen) : "not measured");
  };
  out << indent << "memory over the level before a step: predicted, measured\n";
  line("forward, at most", forward.peak,
       forward_seen ? std::optional(forward_seen->peak) : std::nullopt);
  if (!split.signature.training) return out.str();
  const auto backward_seen = entry.peak_meter().measured(Half::Backward);
  line("after the forward", forward.end,
       forward_seen ? std::optional(forward_seen->end) : std::nullopt);
  line("backward, at most",
       forward.end + use_of(split.backward, partition::released_bytes(split)).peak,
       forward_seen && backward_seen ? std::optional(forward_seen->end + backward_seen->peak)
                                     : std::nullopt);
  return out.str();
}

std::string describe_sizes(const VaryingSizes& varying, size_t variants,
                           const std::string& indent) {
  std::string text = base::str(indent, "sizes: ", variants, " sets of them so far\n");
  for (const std::string& line : varying.legend()) text += indent + "  " + line + "\n";
  return text;
}

std::string describe_entry(std::span<const runtime::EntryState* const> variants,
                           const runtime::EntryState& entry) {
  const VaryingSizes varying = varying_sizes(variants, entry);
  const Split& split = entry.split();
  std::ostringstream out;
  out << (split.signature.training ? "training" : "inference") << " entry on backend "
      << entry.backend_name() << ": " << split.forward.node_count() << " forward nodes";
  if (split.signature.training) out << ", " << split.backward.node_count() << " backward nodes";
  out << "\n" << varying.signature;
  if (variants.size() > 1) out << describe_sizes(varying, variants.size());
  if (split.signature.training) out << describe_saved(split);
  out << entry.forward().report();
  if (split.signature.training) out << entry.backward().whole().report();
  out << describe_memory(entry);
  out << "serves a call when\n";
  for (const std::string& guard : entry.guards().texts(varying.words)) out << "  " << guard << "\n";
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
