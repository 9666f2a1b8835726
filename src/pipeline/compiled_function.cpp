#include "base/error.h"
#include "base/log.h"
#include "pipeline/environment.h"
#include "pipeline/options.h"
#include "pipeline/pipeline.h"
#include "pipeline/report.h"
#include "runtime/call.h"
#include "tandem/function.h"
#include "tracing/trace.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <sstream>

namespace tandem::pipeline {
namespace {

using EntryPtr = std::shared_ptr<const runtime::EntryState>;

/// A compile that failed: calls that it would have served get the same error without another trace.
struct Failure {
  runtime::Guards guards;
  std::exception_ptr error;
};

/// Tells the compiled functions that write to one dump folder apart in the names of their files.
int64_t next_in_folder(const std::filesystem::path& dump_dir) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, int64_t> next;
  std::lock_guard lock(mutex);
  return dump_dir.empty() ? 0 : next[dump_dir]++;
}

class Function final : public detail::CompiledFunction {
 public:
  Function(detail::FlatFunction function, Options options)
      : function_(std::move(function)), options_(std::move(options)) {}

  detail::Flat call(const detail::Flat& arguments) override {
    // Inside another trace the function is simply part of it.
    if (tracing::is_tracing()) return function_(arguments);
    const runtime::ThreadState thread = runtime::ThreadState::now();
    EntryPtr entry = find(thread, arguments);
    if (entry) {
      hits_.fetch_add(1, std::memory_order_relaxed);
    } else {
      other_calls_.fetch_add(1, std::memory_order_relaxed);
      entry = compile(thread, arguments);
    }
    if (!entry) {
      eager_calls_.fetch_add(1, std::memory_order_relaxed);
      return function_(arguments);
    }
    return runtime::call(entry, arguments);
  }

  void prepare(const detail::Flat& arguments) override {
    const runtime::ThreadState thread = runtime::ThreadState::now();
    if (!find(thread, arguments)) compile(thread, arguments);
  }

  std::string explain(const detail::Flat& arguments) override {
    const runtime::ThreadState thread = runtime::ThreadState::now();
    if (EntryPtr entry = find(thread, arguments)) {
      return "these arguments run an entry that exists\n" + describe_entry(*entry) +
             describe_stats(stats());
    }
    std::ostringstream out;
    out << "these arguments would compile a new entry: " << miss_reason(thread, arguments) << "\n";
    int64_t zeros = 0;
    StageLog log("explain", {});
    count_trace();
    try {
      out << describe_entry(*compile_entry(function_, arguments, options_, log, zeros));
    } catch (const Error& error) {
      out << "that compile would fail:\n" << error.what() << "\n";
    }
    out << describe_stats(stats());
    return out.str();
  }

  std::string report() const override {
    std::string text = describe_stats(stats());
    std::shared_lock lock(mutex_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      text += "\nentry " + std::to_string(i) + ": " + describe_entry(*entries_[i]);
    }
    return text;
  }

  Stats stats() const override {
    std::shared_lock lock(mutex_);
    Stats stats = stats_;
    stats.hits = hits_.load(std::memory_order_relaxed);
    stats.calls = stats.hits + other_calls_.load(std::memory_order_relaxed);
    stats.eager_calls = eager_calls_.load(std::memory_order_relaxed);
    stats.entries = static_cast<int64_t>(entries_.size());
    return stats;
  }

  std::vector<Entry> entries() const override {
    std::shared_lock lock(mutex_);
    std::vector<Entry> entries;
    for (const EntryPtr& entry : entries_) entries.emplace_back(entry);
    return entries;
  }

  void reset() override {
    std::lock_guard compiling(compile_mutex_);
    std::unique_lock lock(mutex_);
    entries_.clear();
    failures_.clear();
    overflow_warned_ = false;
  }

  // No backend keeps memory between calls yet.
  void release_cached_memory() override {}

 private:
  /// What was hit last is most likely what comes next; then newest first.
  EntryPtr find(const runtime::ThreadState& thread, const detail::Flat& arguments) const {
    std::shared_lock lock(mutex_);
    const size_t guess = last_hit_.load(std::memory_order_relaxed);
    if (guess < entries_.size() && entries_[guess]->guards().hold(thread, arguments)) {
      return entries_[guess];
    }
    for (size_t i = entries_.size(); i-- > 0;) {
      if (i == guess || !entries_[i]->guards().hold(thread, arguments)) continue;
      last_hit_.store(i, std::memory_order_relaxed);
      return entries_[i];
    }
    return nullptr;
  }

  std::string miss_reason(const runtime::ThreadState& thread, const detail::Flat& arguments) const {
    std::shared_lock lock(mutex_);
    if (entries_.empty()) return "first call: no entry yet";
    std::string reason;
    for (size_t i = entries_.size(); i-- > 0;) {
      if (auto text = entries_[i]->guards().mismatch(thread, arguments)) {
        reason += (reason.empty() ? "entry " : "; entry ") + std::to_string(i) + ": " + *text;
      }
    }
    return reason;
  }

  /// Null: the call shall run eagerly.
  EntryPtr compile(const runtime::ThreadState& thread, const detail::Flat& arguments) {
    // One compile at a time: a thread that waited for the same entry finds it instead of making it
    // again.
    std::lock_guard compiling(compile_mutex_);
    if (EntryPtr entry = find(thread, arguments)) return entry;
    for (const Failure& failure : failures_) {
      if (failure.guards.hold(thread, arguments)) return fail(failure.error);
    }
    if (static_cast<int64_t>(entries_.size()) >= options_.max_entries)
      return overflow(thread, arguments);

    const std::string reason = miss_reason(thread, arguments);
    StageLog log(base::str("function", dump_number_, ".entry", stats_.compiles), options_.dump_dir);
    int64_t zeros = 0;
    count_trace();
    try {
      EntryPtr entry = compile_entry(function_, arguments, options_, log, zeros);
      std::unique_lock lock(mutex_);
      ++stats_.compiles;
      stats_.zero_fallbacks += zeros;
      stats_.misses.push_back({reason});
      double total = 0;
      for (const auto& [stage, seconds] : log.seconds()) {
        stats_.seconds[stage] += seconds;
        total += seconds;
      }
      entries_.push_back(entry);
      base::log(base::LogLevel::Info, base::str("compiled entry ", entries_.size() - 1, " in ",
                                                total * 1e3, " ms (", reason, ")"));
      return entry;
    } catch (const Error&) {
      std::unique_lock lock(mutex_);
      failures_.push_back(
          {runtime::Guards(thread, arguments, function_.tensor_names(arguments), options_),
           std::current_exception()});
    }
    return fail(failures_.back().error);
  }

  void count_trace() {
    std::unique_lock lock(mutex_);
    ++stats_.traces;
  }

  EntryPtr fail(const std::exception_ptr& error) const {
    try {
      std::rethrow_exception(error);
    } catch (const UnsupportedError& unsupported) {
      if (options_.on_unsupported == OnUnsupported::error) throw;
      base::warn_once(base::str("unsupported ", static_cast<const void*>(this)),
                      base::str("a compiled function runs eagerly: ", unsupported.what()));
      return nullptr;
    }
  }

  EntryPtr overflow(const runtime::ThreadState& thread, const detail::Flat& arguments) {
    const std::string text = base::str(
        "the function has ", entries_.size(), " entries, max_entries allows ", options_.max_entries,
        "; another would be needed because ", miss_reason(thread, arguments));
    const std::string remedy =
        "\n  remedy: raise Options::max_entries, or make the calls alike (pad to one size)";
    if (options_.on_overflow == OnOverflow::error) throw UserError("call", text + remedy);
    if (!overflow_warned_) base::warn("a compiled function runs eagerly: " + text + remedy);
    overflow_warned_ = true;
    return nullptr;
  }

  const detail::FlatFunction function_;
  const Options options_;
  const int64_t dump_number_ = next_in_folder(options_.dump_dir);
  std::mutex compile_mutex_;         // taken before mutex_, never the other way round
  mutable std::shared_mutex mutex_;  // guards what follows
  std::vector<EntryPtr> entries_;
  std::vector<Failure> failures_;
  Stats stats_;
  bool overflow_warned_ = false;
  std::atomic<int64_t> hits_{0}, other_calls_{0}, eager_calls_{0};
  mutable std::atomic<size_t> last_hit_{0};  // a guess where to look first
};

}  // namespace
}  // namespace tandem::pipeline

namespace tandem::detail {

std::shared_ptr<CompiledFunction> CompiledFunction::create(FlatFunction function, Options options) {
  options = pipeline::apply_environment(std::move(options));
  pipeline::check_options(options);
  options.backend.resolve();  // an unknown name is an error here, not at the first call
  return std::make_shared<pipeline::Function>(std::move(function), std::move(options));
}

}  // namespace tandem::detail
