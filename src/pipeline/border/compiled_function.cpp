#include "base/error.h"
#include "base/log.h"
#include "base/of_thread.h"
#include "ops/own/check_not_equal.h"
#include "pipeline/compile_registry.h"
#include "pipeline/entry_table.h"
#include "pipeline/pipeline.h"
#include "pipeline/reports/explain.h"
#include "pipeline/reports/report.h"
#include "pipeline/settings/environment.h"
#include "pipeline/settings/options.h"
#include "pipeline/settings/size_marks.h"
#include "pipeline/verify/marked_sizes.h"
#include "pipeline/verify/op_difference.h"
#include "pipeline/verify/verify_entry.h"
#include "runtime/backward/generator_states.h"
#include "runtime/call/call.h"
#include "runtime/guards/module_guard.h"
#include "runtime/guards/sizes_key.h"
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
using Table = std::shared_ptr<const EntryTable>;

/// So many kinds of calls that need an entry more than max_entries allows are remembered. After
/// them every call that finds no entry runs eagerly without a trace.
constexpr size_t kMostOverflows = 64;

std::vector<const runtime::EntryState*> states_of(const std::vector<VariantPtr>& variants) {
  std::vector<const runtime::EntryState*> states;
  for (const VariantPtr& variant : variants) states.push_back(variant->state.get());
  return states;
}

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
    VariantPtr variant = find(thread, arguments, &after_another);
    if (variant) {
      const int64_t now = hits_.fetch_add(1, std::memory_order_relaxed) + 1;
      variant->last_use.store(now, std::memory_order_relaxed);
      const bool is_due = variant->entry->checks.is_due(variant->calls, after_another);
      // Never without verify_every: gradients of a call are asked for in a state of their own.
      const bool appeared =
          options_.verify_every != 0 && variant->state->first_gradients().appeared();
      if (is_due || appeared) variant = check(variant, thread, arguments, appeared);
    } else {
      other_calls_.fetch_add(1, std::memory_order_relaxed);
      variant = compile(thread, arguments);
      if (variant) variant->entry->checks.count_first(variant->calls);
    }
    if (!variant) return call_eagerly(arguments);
    return variant->state->has_checks() ? call_with_checks(variant->state, arguments)
                                        : runtime::call(variant->state, arguments);
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
    const Table table = snapshot();
    Explanation page;
    page.argument_names = program_->tensor_names(arguments);
    EntryPtr would_make;
    if (const VariantPtr found = find_in(*table, thread, arguments)) {
      const size_t entry = table->entry_of(*found);
      page.forecast = base::str("  runs entry ", entry, ", which exists; nothing is compiled\n");
      page.variants = states_of(table->variants_of(entry));
      page.entry = found->state.get();
    } else {
      would_make = forecast_miss(thread, arguments, *table, page);
      page.entry = would_make.get();
    }
    return explain_page(page, options_, stats());
  }

  std::string report() const override {
    std::string text = options_.name + "\n" + describe_stats(stats());
    const Table table = snapshot();
    for (size_t i = 0; i < table->entry_count(); ++i) {
      text +=
          base::str("\nentry ", i, ": ",
                    describe_entry(states_of(table->variants_of(i)), *table->last_used(i)->state));
    }
    return text;
  }

  Stats stats() const override {
    std::shared_lock lock(mutex_);
    Stats stats = stats_;
    stats.hits = hits_.load(std::memory_order_relaxed);
    stats.calls = stats.hits + other_calls_.load(std::memory_order_relaxed);
    stats.eager_calls = eager_calls_.load(std::memory_order_relaxed);
    stats.entries = static_cast<int64_t>(table_->entry_count());
    stats.variants = static_cast<int64_t>(table_->variants().size());
    stats.checks = checks_.load(std::memory_order_relaxed);
    stats.traces += program_->derived_traces->load(std::memory_order_relaxed);
    stats.backend_fallbacks = program_->backend_fallbacks->load(std::memory_order_relaxed);
    return stats;
  }

  std::vector<Entry> entries() const override {
    const Table table = snapshot();
    std::vector<Entry> entries;
    for (size_t i = 0; i < table->entry_count(); ++i)
      entries.emplace_back(table->last_used(i)->state);
    return entries;
  }

  /// A compile that is under way still serves its call, but is not kept.
  void reset() override {
    Table dropped = std::make_shared<const EntryTable>();  // dies after the lock is gone
    decltype(overflows_) forgotten;
    {
      std::unique_lock lock(mutex_);
      table_.swap(dropped);
      overflows_.swap(forgotten);
      ++generation_;
      overflow_warned_ = false;
      unsupported_warned_ = false;
      check_warned_ = false;
      mode_warned_ = false;
    }
    compiles_.forget();
  }

  void release_cached_memory() override {
    const Table table = snapshot();
    for (const VariantPtr& variant : table->variants()) {
      variant->state->forward().release_cached_memory();
      if (variant->state->signature().training) variant->state->backward().release_cached_memory();
    }
  }

 private:
  /// What is known of the entry that a recording belongs to.
  struct Home {
    size_t entry = EntryTable::kNone;
    std::string other_ops{};  // why it is none of those with other sizes: `; it calls ...`
  };

  /// What was hit last is most likely what comes next. `after_another` says whether that was
  /// another entry.
  VariantPtr find(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                  bool* after_another = nullptr) const {
    // guard_on is the user's: it may call reset(), so no lock is held then.
    if (options_.guard_on) return find_in(*snapshot(), thread, arguments, after_another);
    std::shared_lock lock(mutex_);
    return find_in(*table_, thread, arguments, after_another);
  }

  VariantPtr find_in(const EntryTable& table, const libtorch::ThreadState& thread,
                     const detail::Flat& arguments, bool* after_another = nullptr) const {
    const size_t last = last_hit_.load(std::memory_order_relaxed);
    const size_t found = table.find(thread, arguments, last);
    if (found == EntryTable::kNone) return nullptr;
    const std::vector<VariantPtr>& variants = table.variants();
    if (found != last) {
      last_hit_.store(found, std::memory_order_relaxed);
      if (after_another != nullptr)
        *after_another = last >= variants.size() || variants[last]->entry != variants[found]->entry;
    }
    return variants[found];
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

  Table snapshot() const {
    std::shared_lock lock(mutex_);
    return table_;
  }

  /// Other sizes of a call may be served by one entry.
  bool generalises() const { return options_.dynamic != Dynamic::never; }

  static std::string miss_reason(const EntryTable& table, const libtorch::ThreadState& thread,
                                 const detail::Flat& arguments) {
    if (table.entry_count() == 0) return "first call: no entry yet";
    const VariantPtr near = nearest(table.variants(), thread, arguments);
    return base::str("entry ", table.entry_of(*near),
                     table.entry_count() > 1 ? " is nearest: " : ": ",
                     near->guards().difference(thread, arguments));
  }

  /// The variant that the fewest differences keep from serving the call; the newest of several.
  static VariantPtr nearest(const std::vector<VariantPtr>& variants,
                            const libtorch::ThreadState& thread, const detail::Flat& arguments) {
    VariantPtr best;
    size_t least = SIZE_MAX;
    for (size_t i = variants.size(); i-- > 0;) {
      const size_t distance = variants[i]->guards().distance(thread, arguments);
      if (distance >= least) continue;
      best = variants[i];
      least = distance;
    }
    return best;
  }

  /// Whether such a call runs eagerly for lack of an entry, and the program has been told.
  bool is_full(const libtorch::ThreadState& thread, const detail::Flat& arguments) const {
    if (options_.on_overflow != OnOverflow::eager) return false;
    if (base::log_level() >= base::LogLevel::Info) return false;  // a line for each miss
    decltype(overflows_) overflows;
    bool all = false;
    {
      std::shared_lock lock(mutex_);
      if (!overflow_warned_) return false;
      for (size_t i = 0; i < table_->entry_count(); ++i) {
        if (table_->newest(i).guards().is_stale()) return false;
      }
      all = has_all_entries(*table_);
      if (all && (!generalises() || overflows_.size() >= kMostOverflows)) return true;
      overflows = overflows_;
    }
    return std::ranges::any_of(overflows, [&](const Overflow& one) {
      return one.whatever_the_numbers ? one.guards->hold_but_for_numbers(thread, arguments)
                                      : all && one.guards->hold(thread, arguments);
    });
  }

  bool has_all_entries(const EntryTable& table) const {
    return static_cast<int64_t>(table.entry_count()) >= options_.max_entries;
  }

  /// Numbers that are others in each call (a schedule, a counter) would be traced for ever.
  bool has_all_numbers(const EntryTable& table, const libtorch::ThreadState& thread,
                       const detail::Flat& arguments) const {
    return generalises() && table.with_other_numbers(thread, arguments) >= options_.max_entries;
  }

  detail::Flat call_eagerly(const detail::Flat& arguments) {
    const auto keep = shared_from_this();
    TANDEM_CHECK(!program_->is_derived(), "call", "gradients with a history cannot run eagerly");
    eager_calls_.fetch_add(1, std::memory_order_relaxed);
    return program_->function(arguments);
  }

  /// What a call that no entry serves would do: the variant that it would make, or null.
  EntryPtr forecast_miss(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                         const EntryTable& table, Explanation& page) {
    std::string& forecast = page.forecast;
    std::string reason = miss_reason(table, thread, arguments);
    const auto because = [&] { return "  because: " + reason + "\n"; };
    const char* instead =
        options_.on_unsupported == OnUnsupported::eager ? "runs eagerly" : "is an error";
    if (auto error = compiles_.failure(thread, arguments)) {
      forecast =
          base::str("  ", instead, ", since it could not be compiled (remembered until reset()):\n",
                    error_text(error), because());
      return nullptr;
    }
    const auto full = [&](const char* needed) {
      forecast = base::str(
          options_.on_overflow == OnOverflow::error ? "  is an error" : "  runs eagerly",
          ": another ", needed, ", and max_entries allows ", options_.max_entries, "\n", because());
    };
    const EntryTable alive = table.without(stale_in(table));
    const runtime::Guards key = guards_of(*program_, thread, arguments, options_);
    const SizeMarks marks = marks_in(arguments);
    if (has_all_entries(alive) && !may_join(alive, key, marks)) {
      full("entry is needed");
      return nullptr;
    }
    if (has_all_numbers(alive, thread, arguments)) {
      full("number is to be served at these sizes");
      return nullptr;
    }
    CaptureCounts counts;
    StageLog log("explain", {});
    count_trace();
    try {
      Prepared prepared = prepare_entry(program_, arguments, options_, log, counts);
      const Home home = home_of(alive, prepared.guards, prepared.captured, marks);
      reason += home.other_ops;
      if (home.entry == EntryTable::kNone && has_all_entries(alive)) {
        full("entry is needed");
        return nullptr;
      }
      const size_t entries = alive.entry_count();
      if (home.entry == EntryTable::kNone) {
        forecast =
            base::str("  compiles a new entry (", entries, entries == 1 ? " exists, " : " exist, ",
                      options_.max_entries, " allowed)\n", because());
      } else {
        const std::vector<VariantPtr> variants = alive.variants_of(home.entry);
        forecast = base::str("  adds these sizes to entry ", home.entry, ", which has ",
                             variants.size(), variants.size() == 1 ? " set" : " sets",
                             " of them: the function is traced, no entry is compiled\n", because());
        page.variants = states_of(variants);
      }
      EntryPtr made =
          finish_entry(prepared, program_, arguments, options_, sizes_vary(home, marks), log);
      page.variants.push_back(made.get());
      return made;
    } catch (const UnsupportedError&) {
      forecast = base::str("  ", instead, ", since it cannot be compiled:\n",
                           error_text(std::current_exception()), because());
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

  /// Raises if the function is no longer what the entry was compiled for. If it is something that
  /// cannot be compiled, the entry goes, and null is returned if the call shall run eagerly.
  /// `appeared`: a closed-over leaf has its first gradient, so now a trace sees if the function
  /// asks for it.
  VariantPtr check(const VariantPtr& variant, const libtorch::ThreadState& thread,
                   const detail::Flat& arguments, bool appeared) {
    const runtime::EntryState& state = *variant->state;
    runtime::CheckSchedule& checks = variant->entry->checks;
    // It stays due: a later call has arguments that can be compared.
    if (base::thread_has_ended || !state.was_made_for(arguments)) {
      if (appeared) state.first_gradients().wait_again();
      checks.put_off();
      return variant;
    }
    const auto keep = shared_from_this();
    checks_.fetch_add(1, std::memory_order_relaxed);
    try {
      verify_entry(state, *program_, arguments, options_);
    } catch (const UnsupportedError&) {
      checks.failed();
      drop_entry(*variant);
      CompileRegistry::Ticket ticket =
          compiles_.begin(thread, arguments, guards_of(*program_, thread, arguments, options_));
      if (ticket) ticket.fail(std::current_exception(), arguments, state.lifted());
      return fail(std::current_exception());
    } catch (...) {
      if (appeared) state.first_gradients().wait_again();
      checks.failed();
      throw;
    }
    checks.passed(variant->calls);
    return variant;
  }

  /// What the function does by now is nothing for any of its variants.
  void drop_entry(const Variant& variant) {
    Table dropped;  // what it owns dies after the lock is gone
    std::unique_lock lock(mutex_);
    const size_t entry = table_->entry_of(variant);
    if (entry == EntryTable::kNone) return;
    ++stats_.evictions;
    dropped = std::make_shared<const EntryTable>(table_->without(table_->variants_of(entry)));
    table_.swap(dropped);
    lock.unlock();
  }

  /// Null: the call shall run eagerly. Threads that need the same variant wait for the first of
  /// them.
  VariantPtr compile(const libtorch::ThreadState& thread, const detail::Flat& arguments) {
    // Another thread, or the function itself, may drop the last handle to this object meanwhile.
    const auto keep = shared_from_this();
    for (;;) {
      if (auto error = compiles_.failure(thread, arguments)) return fail(error);
      // Every such call comes here: no guards of it are made, and no text about them.
      if (is_full(thread, arguments)) return nullptr;
      CompileRegistry::Ticket ticket =
          compiles_.begin(thread, arguments, guards_of(*program_, thread, arguments, options_));
      // The thread before us may have been quicker, whether we have waited for it or not.
      if (VariantPtr variant = find(thread, arguments)) return variant;
      if (!ticket || compiles_.failure(thread, arguments)) continue;
      return compile(thread, arguments, ticket);
    }
  }

  /// What is known of a miss before and after its trace.
  struct Made {
    std::string reason;
    uint64_t generation = 0;
    uint64_t sizes = 0;
    SizeMarks marks{};
    uint64_t shape_free = 0;
    Home home{};
  };

  VariantPtr compile(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                     CompileRegistry::Ticket& ticket) {
    Made made{.reason = miss_reason(*snapshot(), thread, arguments),
              .sizes = runtime::sizes_key(arguments),
              .marks = marks_in(arguments)};
    drop_stale();
    const Table table = snapshot();
    const auto log_miss = [&] {
      base::log(base::LogLevel::Info, options_.name + ": miss: " + made.reason);
    };
    if (has_all_entries(*table) && !may_join(*table, ticket.key(), made.marks)) {
      log_miss();
      return overflow(thread, arguments, *table, made.reason, ticket.key());
    }
    if (has_all_numbers(*table, thread, arguments)) {
      log_miss();
      return overflow_of_numbers(thread, arguments, *table, made.reason, ticket.key());
    }
    int64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      ++stats_.traces;
      number = next_number_++;
      made.generation = generation_;
    }
    StageLog log(base::str("function", dump_number_, ".entry", number), options_.dump_dir,
                 options_.on_event);
    CaptureCounts counts;
    std::optional<Prepared> prepared;
    std::exception_ptr error;
    try {
      prepared.emplace(prepare_entry(program_, arguments, options_, log, counts));
      made.shape_free = prepared->captured.shape_free;
      made.home = home_of(*snapshot(), prepared->guards, prepared->captured, made.marks);
      made.reason += made.home.other_ops;
      if (made.home.entry == EntryTable::kNone) {
        log_miss();
        if (const Table now = snapshot(); has_all_entries(*now))
          return overflow(thread, arguments, *now, made.reason, ticket.key());
      }
      EntryPtr state = finish_entry(*prepared, program_, arguments, options_,
                                    sizes_vary(made.home, made.marks), log);
      VariantPtr variant = keep(std::move(state), made, log, counts);
      if (counts.unnamed_training) warn_of_training(*counts.unnamed_training);
      return variant;
    } catch (const Error&) {
      if (!prepared) log_miss();
      if (log.ended_by_user()) throw;
      error = std::current_exception();
      // Gradients of a call: the host may be in the state of the call again next time.
      if (!program_->is_derived())
        ticket.fail(error, arguments, prepared ? prepared->captured.joint.lifted : counts.lifted);
    } catch (const c10::Error& raised) {
      if (!prepared) log_miss();
      // Eager may raise it, too, or not: run eagerly, the function itself tells. Not remembered, as
      // nothing is that the function raises.
      if (options_.on_unsupported == OnUnsupported::error || program_->is_derived()) throw;
      error = std::make_exception_ptr(UnsupportedError(
          "trace", base::str("libtorch raises an error while the function is traced",
                             base::detail_line("libtorch", first_line(raised)))));
    }
    return fail(error);
  }

  VariantPtr keep(EntryPtr state, const Made& made, const StageLog& log,
                  const CaptureCounts& counts) {
    double total = 0;
    for (const auto& [stage, seconds] : log.seconds()) total += seconds;
    std::shared_ptr<EntryShare> entry;
    std::shared_ptr<Variant> variant;
    std::string words;
    Table before;        // dies after the lock is gone
    VariantPtr dropped;  // so does this
    {
      std::unique_lock lock(mutex_);
      // Another thread may have made the entry meanwhile, or dropped it.
      const size_t home = generalises() ? table_->home(state->guards(), made.shape_free, made.marks)
                                        : EntryTable::kNone;
      const bool is_new = home == EntryTable::kNone;
      if (is_new) {
        entry = std::make_shared<EntryShare>(made.shape_free, options_.verify_every);
      } else {
        entry = table_->newest(home).entry;
        words = base::str("sizes ", entry->made.load(), " of entry ", home, ": ",
                          state->guards().other_numbers(table_->newest(home).guards()));
      }
      variant = std::make_shared<Variant>(std::move(state), entry, made.sizes);
      variant->last_use.store(hits_.load(std::memory_order_relaxed), std::memory_order_relaxed);
      entry->checks.add(variant->calls, /*has_others=*/!is_new);
      ++entry->made;
      Stats next = stats_;               // all or nothing, if memory runs out
      next.traces += counts.traces - 1;  // the first was counted when it began
      next.zero_fallbacks += counts.zero_fallbacks;
      if (is_new) {
        ++next.compiles;
        next.misses.push_back({made.reason});
      }
      for (const auto& [stage, seconds] : log.seconds()) next.seconds[stage] += seconds;
      for (const auto& [step, seconds] : log.step_seconds()) next.seconds[step] += seconds;
      // Full if other threads have compiled meanwhile.
      if (made.generation == generation_ && !(is_new && has_all_entries(*table_))) {
        before =
            std::make_shared<const EntryTable>(table_->with(variant, home, made.marks, dropped));
        table_.swap(before);
        last_hit_.store(table_->variants().size() - 1, std::memory_order_relaxed);
      }
      stats_ = std::move(next);
    }
    if (words.empty()) {
      const Split& split = variant->state->split();
      words = base::str("compiled ", split.signature.training ? "a training" : "an inference",
                        " entry in ", total * 1e3, " ms: ", split.forward.node_count(),
                        " forward and ", split.backward.node_count(), " backward nodes");
    } else {
      words += base::str(", in ", total * 1e3, " ms");
    }
    base::log(base::LogLevel::Info, options_.name + ": " + words);
    return variant;
  }

  /// The marks that count.
  SizeMarks marks_in(const detail::Flat& arguments) const {
    return generalises() ? marks_of(arguments) : SizeMarks();
  }

  bool may_join(const EntryTable& table, const runtime::Guards& key, const SizeMarks& marks) const {
    return generalises() && !table.candidates(key, marks).empty();
  }

  Home home_of(const EntryTable& table, const runtime::Guards& guards, const Captured& captured,
               const SizeMarks& marks) const {
    Home home;
    if (!generalises()) return home;
    home.entry = table.home(guards, captured.shape_free, marks);
    if (home.entry != EntryTable::kNone) return home;
    for (size_t entry : table.candidates(guards, marks)) {
      const Variant& other = table.nearest(entry, guards);
      if (other.guards().differing_numbers(guards) == 0) continue;
      const Difference difference =
          other.entry->shape_free == captured.shape_free
              ? Difference{.what = base::str("reads other tensors than entry ", entry)}
              : op_difference(*other.state, base::str("entry ", entry), captured);
      SizeMarks all = table.marks_of(entry);
      all.insert(all.end(), marks.begin(), marks.end());
      refuse_if_marked(guards, other.guards(), all, difference);
      home.other_ops = "; " + to_string(difference);
    }
    return home;
  }

  bool sizes_vary(const Home& home, const SizeMarks& marks) const {
    if (!generalises()) return false;
    return home.entry != EntryTable::kNone || options_.dynamic == Dynamic::always ||
           std::ranges::any_of(marks,
                               [](const SizeMark& mark) { return mark.dynamic.has_value(); });
  }

  std::vector<VariantPtr> stale_in(const EntryTable& table) const {
    std::vector<VariantPtr> stale;
    for (const VariantPtr& variant : table.variants()) {
      if (variant->guards().is_stale()) stale.push_back(variant);
    }
    return stale;
  }

  /// Variants that can serve no call any more: they would only keep memory, and a place.
  void drop_stale() {
    Table before;  // dies after the lock is gone
    decltype(overflows_) forgotten;
    std::unique_lock lock(mutex_);
    const std::vector<VariantPtr> stale = stale_in(*table_);
    if (stale.empty()) return;
    before = std::make_shared<const EntryTable>(table_->without(stale));
    table_.swap(before);
    stats_.evictions += static_cast<int64_t>(before->entry_count() - table_->entry_count());
    overflows_.swap(forgotten);
    lock.unlock();
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

  VariantPtr fail(const std::exception_ptr& error) {
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

  VariantPtr overflow(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                      const EntryTable& table, const std::string& reason,
                      const runtime::Guards& key) {
    if (!is_first_overflow(key, /*whatever_the_numbers=*/false)) return nullptr;
    return refuse_entry(
        base::str(options_.name, " has ", table.entry_count(),
                  table.entry_count() == 1 ? " entry" : " entries", ", max_entries allows ",
                  options_.max_entries, "; another would be needed because ", reason),
        nearest(table.variants(), thread, arguments)
            ->guards()
            .advice(thread, arguments, generalises()));
  }

  /// The same for a call that differs from as many others in numbers only.
  VariantPtr overflow_of_numbers(const libtorch::ThreadState& thread, const detail::Flat& arguments,
                                 const EntryTable& table, const std::string& reason,
                                 const runtime::Guards& key) {
    if (!is_first_overflow(key, /*whatever_the_numbers=*/true)) return nullptr;
    return refuse_entry(
        base::str(options_.name, " serves ", table.with_other_numbers(thread, arguments),
                  " different numbers at these sizes, as many as max_entries allows; one more "
                  "would be needed because ",
                  reason),
        "pass the number that changes as a tensor");
  }

  /// Remembers the call. False: the program knows already that such calls run eagerly.
  bool is_first_overflow(const runtime::Guards& key, bool whatever_the_numbers) {
    std::unique_lock lock(mutex_);
    const bool first = !std::exchange(overflow_warned_, true);
    if (generalises() && overflows_.size() < kMostOverflows)
      overflows_.push_back({std::make_shared<const runtime::Guards>(key), whatever_the_numbers});
    return first || options_.on_overflow == OnOverflow::error;
  }

  VariantPtr refuse_entry(const std::string& text, const std::string& advice) {
    const std::string remedy = "\n  remedy: raise Options::max_entries, or " + advice;
    if (options_.on_overflow == OnOverflow::error) throw UserError("call", text + remedy);
    base::warn("calls run eagerly: " + text + remedy);
    return nullptr;
  }

  /// A call that had no place. `whatever_the_numbers`: nor has one that differs in numbers only.
  struct Overflow {
    std::shared_ptr<const runtime::Guards> guards;
    bool whatever_the_numbers = false;
  };

  const std::shared_ptr<const Program> program_;
  const Options options_;
  const int64_t dump_number_ = next_in_folder(options_.dump_dir);
  CompileRegistry compiles_;         // never entered with mutex_ held
  mutable std::shared_mutex mutex_;  // guards what follows
  Table table_ = std::make_shared<const EntryTable>();
  std::vector<Overflow> overflows_;
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
