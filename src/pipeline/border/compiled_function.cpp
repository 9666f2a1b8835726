#include "base/error.h"
#include "base/log.h"
#include "ops/own/check_not_equal.h"
#include "pipeline/compile_registry.h"
#include "pipeline/pipeline.h"
#include "pipeline/reports/explain.h"
#include "pipeline/reports/report.h"
#include "pipeline/settings/environment.h"
#include "pipeline/settings/options.h"
#include "pipeline/verify/verify_entry.h"
#include "runtime/backward/generator_states.h"
#include "runtime/call/call.h"
#include "runtime/guards/module_guard.h"
#include "tandem/function.h"
#include "tracing/trace.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <sstream>

namespace tandem::pipeline {
namespace {

using EntryPtr = std::shared_ptr<const runtime::EntryState>;

/// Tells the compiled functions that write to one dump folder apart in the names of their files.
int64_t next_in_folder(const std::filesystem::path& dump_dir) {
  static std::mutex mutex;
  static std::map<std::filesystem::path, int64_t> next;
  std::lock_guard lock(mutex);
  return dump_dir.empty() ? 0 : next[dump_dir]++;
}

class Function final : public detail::CompiledFunction,
                       public std::enable_shared_from_this<Function> {
 public:
  Function(std::shared_ptr<const Program> program, Options options)
      : program_(std::move(program)), options_(std::move(options)) {}

  detail::Flat call(const detail::Flat& arguments) override {
    // Inside another trace the function is simply part of it.
    if (tracing::is_tracing()) return program_->function(arguments);
    const libtorch::ThreadState thread = libtorch::ThreadState::now();
    bool after_another = false;
    EntryPtr entry = find(thread, arguments, &after_another);
    if (entry) {
      hits_.fetch_add(1, std::memory_order_relaxed);
      if (entry->checks().is_due(after_another) && !check(*entry, arguments))
        return call_eagerly(arguments);
      // Never without verify_every: gradients of a call are asked for in a state of their own.
      if (options_.verify_every != 0 && entry->first_gradients().appeared())
        entry = look_again(entry, thread, arguments);
    } else {
      other_calls_.fetch_add(1, std::memory_order_relaxed);
      entry = compile(thread, arguments);
      if (entry) entry->checks().count_first();
    }
    if (!entry) return call_eagerly(arguments);
    return entry->has_checks() ? call_with_checks(entry, arguments)
                               : runtime::call(entry, arguments);
  }

  void prepare(const detail::Flat& arguments) override {
    require_no_trace("prepare");
    const libtorch::ThreadState thread = libtorch::ThreadState::now();
    if (!find(thread, arguments)) compile(thread, arguments);
  }

  std::string explain(const detail::Flat& arguments) override {
    require_no_trace("explain");
    const auto keep = shared_from_this();
    const libtorch::ThreadState thread = libtorch::ThreadState::now();
    const std::vector<EntryPtr> entries = snapshot();
    Explanation page;
    page.argument_names = program_->tensor_names(arguments);
    EntryPtr entry = find_in(entries, thread, arguments);
    if (entry) {
      const auto at = std::find(entries.begin(), entries.end(), entry) - entries.begin();
      page.forecast = base::str("  runs entry ", at, ", which exists; nothing is compiled\n");
    } else {
      const auto alive = std::count_if(entries.begin(), entries.end(), [](const EntryPtr& other) {
        return !other->guards().is_stale();
      });
      entry = forecast_miss(thread, arguments, alive, page.forecast);
    }
    page.entry = entry.get();
    return explain_page(page, options_, stats());
  }

  std::string report() const override {
    std::string text = options_.name + "\n" + describe_stats(stats());
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
    stats.checks = checks_.load(std::memory_order_relaxed);
    stats.traces += program_->derived_traces->load(std::memory_order_relaxed);
    stats.backend_fallbacks = program_->backend_fallbacks->load(std::memory_order_relaxed);
    return stats;
  }

  std::vector<Entry> entries() const override {
    std::shared_lock lock(mutex_);
    std::vector<Entry> entries;
    for (const EntryPtr& entry : entries_) entries.emplace_back(entry);
    return entries;
  }

  /// A compile that is under way still serves its call, but is not kept.
  void reset() override {
    std::vector<EntryPtr> dropped;  // what it owns dies after the lock is gone
    {
      std::unique_lock lock(mutex_);
      entries_.swap(dropped);
      ++generation_;
      overflow_warned_ = false;
      unsupported_warned_ = false;
      check_warned_ = false;
      mode_warned_ = false;
    }
    compiles_.forget();
  }

  void release_cached_memory() override {
    for (const EntryPtr& entry : snapshot()) {
      entry->forward().release_cached_memory();
      if (entry->signature().training) entry->backward().release_cached_memory();
    }
  }

 private:
  /// What was hit last is most likely what comes next; then newest first. `after_another` says
  /// whether it was another one.
  EntryPtr find(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                bool* after_another = nullptr) const {
    // guard_on is the user's: it may call reset(), so no lock is held then.
    if (options_.guard_on) return find_in(snapshot(), thread, arguments, after_another);
    std::shared_lock lock(mutex_);
    return find_in(entries_, thread, arguments, after_another);
  }

  EntryPtr find_in(const std::vector<EntryPtr>& entries, const libtorch::ThreadState& thread,
                   const detail::Flat& arguments, bool* after_another = nullptr) const {
    const size_t guess = last_hit_.load(std::memory_order_relaxed);
    if (guess < entries.size() && entries[guess]->guards().hold(thread, arguments)) {
      return entries[guess];
    }
    for (size_t i = entries.size(); i-- > 0;) {
      if (i == guess || !entries[i]->guards().hold(thread, arguments)) continue;
      last_hit_.store(i, std::memory_order_relaxed);
      if (after_another != nullptr) *after_another = true;
      return entries[i];
    }
    return nullptr;
  }

  /// A check that fails does so before anything is written: with the generators put back, the
  /// function itself gives eager's answer.
  detail::Flat call_with_checks(const EntryPtr& entry, const detail::Flat& arguments) {
    const auto keep = shared_from_this();
    const runtime::GeneratorStates before(entry->split().forward);
    try {
      return runtime::call(entry, arguments);
    } catch (const ops::CheckFailed& failed) {
      before.restore();
      if (!check_warned_.exchange(true)) {
        base::warn(base::str("a call of ", options_.name, " runs eagerly: ", failed.what()));
      }
      return call_eagerly(arguments);
    }
  }

  std::vector<EntryPtr> snapshot() const {
    std::shared_lock lock(mutex_);
    return entries_;
  }

  std::string miss_reason(const libtorch::ThreadState& thread,
                          const detail::Flat& arguments) const {
    const std::vector<EntryPtr> entries = snapshot();
    return miss_reason(entries, nearest(entries, thread, arguments), thread, arguments);
  }

  static std::string miss_reason(const std::vector<EntryPtr>& entries, size_t nearest,
                                 const libtorch::ThreadState& thread,
                                 const detail::Flat& arguments) {
    if (entries.empty()) return "first call: no entry yet";
    const std::string text = entries[nearest]->guards().difference(thread, arguments);
    return base::str("entry ", nearest, entries.size() > 1 ? " is nearest: " : ": ", text);
  }

  /// The entry that the fewest differences keep from serving the call; the newest of several.
  static size_t nearest(const std::vector<EntryPtr>& entries, const libtorch::ThreadState& thread,
                        const detail::Flat& arguments) {
    size_t best = 0, least = SIZE_MAX;
    for (size_t i = entries.size(); i-- > 0;) {
      const size_t distance = entries[i]->guards().distance(thread, arguments);
      if (distance >= least) continue;
      best = i;
      least = distance;
    }
    return best;
  }

  /// Whether calls that no entry serves run eagerly, and the program has been told.
  bool is_full() const {
    if (options_.on_overflow != OnOverflow::eager) return false;
    if (base::log_level() >= base::LogLevel::Info) return false;  // a line for each miss
    std::shared_lock lock(mutex_);
    return overflow_warned_ && static_cast<int64_t>(entries_.size()) >= options_.max_entries &&
           std::ranges::none_of(entries_,
                                [](const EntryPtr& entry) { return entry->guards().is_stale(); });
  }

  detail::Flat call_eagerly(const detail::Flat& arguments) {
    const auto keep = shared_from_this();
    TANDEM_CHECK(!program_->is_derived(), "call", "gradients with a history cannot run eagerly");
    eager_calls_.fetch_add(1, std::memory_order_relaxed);
    return program_->function(arguments);
  }

  /// What a call that no entry serves would do: the entry that it would make, or null.
  EntryPtr forecast_miss(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                         int64_t entries, std::string& forecast) {
    const std::string reason = "  because: " + miss_reason(thread, arguments) + "\n";
    const char* instead =
        options_.on_unsupported == OnUnsupported::eager ? "runs eagerly" : "is an error";
    if (auto error = compiles_.failure(thread, arguments)) {
      forecast =
          base::str("  ", instead, ", since it could not be compiled (remembered until reset()):\n",
                    error_text(error), reason);
      return nullptr;
    }
    if (entries >= options_.max_entries) {
      forecast = base::str(
          options_.on_overflow == OnOverflow::error ? "  is an error" : "  runs eagerly",
          ": another entry is needed, and max_entries allows ", options_.max_entries, "\n", reason);
      return nullptr;
    }
    CaptureCounts counts;
    StageLog log("explain", {});
    count_trace();
    try {
      EntryPtr entry = compile_entry(program_, arguments, options_, log, counts);
      forecast =
          base::str("  compiles a new entry (", entries, entries == 1 ? " exists, " : " exist, ",
                    options_.max_entries, " allowed)\n", reason);
      return entry;
    } catch (const UnsupportedError&) {
      forecast = base::str("  ", instead, ", since it cannot be compiled:\n",
                           error_text(std::current_exception()), reason);
    } catch (const std::exception&) {
      forecast = "  raises:\n" + error_text(std::current_exception());
    }
    return nullptr;
  }

  static std::string first_line(const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  }

  /// Indented, without a backtrace.
  static std::string error_text(const std::exception_ptr& error) {
    std::string text;
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& from_libtorch) {
      text = from_libtorch.what_without_backtrace();
    } catch (const std::exception& any) {
      text = any.what();
    }
    std::istringstream in(text);
    std::string lines;
    for (std::string line; std::getline(in, line);) lines += "    " + line + "\n";
    return lines;
  }

  /// Raises if the function is not any more what the entry was compiled for. False: it is now
  /// something that cannot be compiled, and the call shall run eagerly.
  bool check(const runtime::EntryState& entry, const detail::Flat& arguments) {
    const auto keep = shared_from_this();
    checks_.fetch_add(1, std::memory_order_relaxed);
    try {
      verify_entry(entry, *program_, arguments, options_);
    } catch (const UnsupportedError&) {
      entry.checks().failed();
      fail(std::current_exception());
      return false;
    } catch (...) {
      entry.checks().failed();
      throw;
    }
    entry.checks().passed();
    return true;
  }

  /// A closed-over leaf has its first gradient: now a trace sees if the function asks for it. Then
  /// the entry has never been right, and null is returned if the call shall run eagerly.
  EntryPtr look_again(const EntryPtr& entry, const libtorch::ThreadState& thread,
                      const detail::Flat& arguments) {
    const auto keep = shared_from_this();
    try {
      verify_entry(*entry, *program_, arguments, options_);
      return entry;
    } catch (const UnsupportedError&) {
      {
        std::unique_lock lock(mutex_);
        stats_.evictions += static_cast<int64_t>(std::erase(entries_, entry));
      }
      CompileRegistry::Ticket ticket =
          compiles_.begin(thread, arguments, guards_of(*program_, thread, arguments, options_));
      if (ticket) ticket.fail(std::current_exception(), arguments, entry->lifted());
      return fail(std::current_exception());
    } catch (...) {
      entry->first_gradients().wait_again();
      throw;
    }
  }

  /// Null: the call shall run eagerly. Threads that need the same entry wait for the first of them.
  EntryPtr compile(const libtorch::ThreadState& thread, const detail::Flat& arguments) {
    // Another thread, or the function itself, may drop the last handle to this object meanwhile.
    const auto keep = shared_from_this();
    for (;;) {
      if (auto error = compiles_.failure(thread, arguments)) return fail(error);
      // Every such call comes here: no guards of it are made, and no text about them.
      if (is_full()) return nullptr;
      CompileRegistry::Ticket ticket =
          compiles_.begin(thread, arguments, guards_of(*program_, thread, arguments, options_));
      // The thread before us may have been quicker, whether we have waited for it or not.
      if (EntryPtr entry = find(thread, arguments)) return entry;
      if (!ticket || compiles_.failure(thread, arguments)) continue;
      return compile(thread, arguments, ticket);
    }
  }

  EntryPtr compile(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                   CompileRegistry::Ticket& ticket) {
    const std::string reason = miss_reason(thread, arguments);
    base::log(base::LogLevel::Info, options_.name + ": miss: " + reason);
    drop_stale();
    int64_t number = 0;
    uint64_t generation = 0;
    {
      std::unique_lock lock(mutex_);
      if (static_cast<int64_t>(entries_.size()) >= options_.max_entries)
        return overflow(thread, arguments, lock);
      ++stats_.traces;
      number = next_number_++;
      generation = generation_;
    }
    StageLog log(base::str("function", dump_number_, ".entry", number), options_.dump_dir,
                 options_.on_event);
    CaptureCounts counts;
    std::exception_ptr error;
    try {
      EntryPtr entry = compile_entry(program_, arguments, options_, log, counts);
      keep(entry, reason, log, counts, generation);
      if (counts.unnamed_training) warn_of_training(*counts.unnamed_training);
      return entry;
    } catch (const Error&) {
      if (log.ended_by_user()) throw;
      error = std::current_exception();
      // Gradients of a call: the host may be in the state of the call again next time.
      if (!program_->is_derived()) ticket.fail(error, arguments, counts.lifted);
    } catch (const c10::Error& raised) {
      // Eager may raise it, too, or not: run eagerly, the function itself tells. Not remembered, as
      // nothing is that the function raises.
      if (options_.on_unsupported == OnUnsupported::error || program_->is_derived()) throw;
      error = std::make_exception_ptr(UnsupportedError(
          "trace", base::str("libtorch raises an error while the function is traced",
                             base::detail_line("libtorch", first_line(raised)))));
    }
    return fail(error);
  }

  void keep(const EntryPtr& entry, const std::string& reason, const StageLog& log,
            const CaptureCounts& counts, uint64_t generation) {
    double total = 0;
    for (const auto& [stage, seconds] : log.seconds()) total += seconds;
    {
      std::unique_lock lock(mutex_);
      Stats next = stats_;  // all or nothing, if memory runs out
      ++next.compiles;
      next.traces += counts.traces - 1;  // the first was counted when it began
      next.zero_fallbacks += counts.zero_fallbacks;
      next.misses.push_back({reason});
      for (const auto& [stage, seconds] : log.seconds()) next.seconds[stage] += seconds;
      for (const auto& [step, seconds] : log.step_seconds()) next.seconds[step] += seconds;
      // Full if other threads have compiled meanwhile.
      if (generation == generation_ &&
          static_cast<int64_t>(entries_.size()) < options_.max_entries) {
        entries_.push_back(entry);
        last_hit_.store(entries_.size() - 1, std::memory_order_relaxed);
      }
      stats_ = std::move(next);
    }
    const Split& split = entry->split();
    base::log(base::LogLevel::Info,
              base::str(options_.name, ": compiled ",
                        split.signature.training ? "a training" : "an inference", " entry in ",
                        total * 1e3, " ms: ", split.forward.node_count(), " forward and ",
                        split.backward.node_count(), " backward nodes"));
  }

  /// Entries that can serve no call any more: they would only keep memory, and a place.
  void drop_stale() {
    std::vector<EntryPtr> dropped;  // what it owns dies after the lock is gone
    std::unique_lock lock(mutex_);
    std::vector<EntryPtr> kept;
    for (const EntryPtr& entry : entries_) {
      (entry->guards().is_stale() ? dropped : kept).push_back(entry);
    }
    if (dropped.empty()) return;
    entries_.swap(kept);
    stats_.evictions += static_cast<int64_t>(dropped.size());
  }

  void count_trace() {
    std::unique_lock lock(mutex_);
    ++stats_.traces;
  }

  static void require_no_trace(const char* what) {
    TANDEM_REQUIRE(!tracing::is_tracing(), "call", what,
                   "() of a compiled function is called inside a function that is being traced",
                   "\n  remedy: call it outside; there the arguments have no data");
  }

  void warn_of_training(const tracing::UserCall& call) {
    if (mode_warned_.exchange(true)) return;
    base::warn(base::str(options_.name, " calls ", call.op_name(),
                         " in training mode, and no module is named: a later eval() is not noticed "
                         "at once",
                         base::detail_line("at", ir::to_string(call.line)),
                         "\n  remedy: name the module, compile(net, fn): then train() and eval() "
                         "are guarded"));
  }

  EntryPtr fail(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const UnsupportedError& unsupported) {
      if (options_.on_unsupported == OnUnsupported::error) throw;
      if (!unsupported_warned_.exchange(true)) {
        base::warn(base::str(options_.name, " runs eagerly: ", unsupported.what()));
      }
      return nullptr;
    }
  }

  EntryPtr overflow(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                    std::unique_lock<std::shared_mutex>& lock) {
    const std::vector<EntryPtr> entries = entries_;
    const bool first = !std::exchange(overflow_warned_, true);
    lock.unlock();
    if (!first && options_.on_overflow == OnOverflow::eager) return nullptr;
    const size_t near = nearest(entries, thread, arguments);
    const std::string text = base::str(
        options_.name, " has ", entries.size(), entries.size() == 1 ? " entry" : " entries",
        ", max_entries allows ", options_.max_entries, "; another would be needed because ",
        miss_reason(entries, near, thread, arguments));
    const std::string remedy = base::str("\n  remedy: raise Options::max_entries, or ",
                                         entries[near]->guards().advice(thread, arguments));
    if (options_.on_overflow == OnOverflow::error) throw UserError("call", text + remedy);
    base::warn("calls run eagerly: " + text + remedy);
    return nullptr;
  }

  const std::shared_ptr<const Program> program_;
  const Options options_;
  const int64_t dump_number_ = next_in_folder(options_.dump_dir);
  CompileRegistry compiles_;         // never entered with mutex_ held
  mutable std::shared_mutex mutex_;  // guards what follows
  std::vector<EntryPtr> entries_;
  Stats stats_;
  uint64_t generation_ = 0;  // counts reset()
  int64_t next_number_ = 0;  // of a compile, for the names of dumps
  bool overflow_warned_ = false;
  std::atomic<bool> unsupported_warned_{false}, check_warned_{false}, mode_warned_{false};
  std::atomic<int64_t> hits_{0}, other_calls_{0}, eager_calls_{0}, checks_{0};
  mutable std::atomic<size_t> last_hit_{0};  // a guess where to look first
};

}  // namespace

std::shared_ptr<detail::CompiledFunction> compile_gradients(std::shared_ptr<const Program> program,
                                                            Options options) {
  return std::make_shared<Function>(std::move(program), std::move(options));
}

}  // namespace tandem::pipeline

namespace tandem::detail {

std::shared_ptr<CompiledFunction> CompiledFunction::create(FlatFunction function, Options options) {
  options = pipeline::effective_options(std::move(options));
  for (auto& module : options.modules) module = runtime::hold_for_tandem(std::move(module));
  if (options.name.empty()) options.name = "a compiled function";
  return std::make_shared<pipeline::Function>(
      std::make_shared<const pipeline::Program>(std::move(function)), std::move(options));
}

}  // namespace tandem::detail
