#include "pipeline/settings/options.h"

#include "base/error.h"
#include "passes/registry.h"
#include "tandem/backend.h"
#include "tandem/stages.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

std::string BackendRef::name() const {
  if (const auto* name = std::get_if<std::string>(&ref_)) return *name;
  const auto& object = std::get<std::shared_ptr<Backend>>(ref_);
  return object == nullptr ? "(null)" : std::string(object->name());
}

std::shared_ptr<Backend> BackendRef::resolve() const {
  if (const auto* name = std::get_if<std::string>(&ref_)) return tandem::backend(*name);
  const auto& object = std::get<std::shared_ptr<Backend>>(ref_);
  TANDEM_REQUIRE(object != nullptr, "options", "backend is a null pointer",
                 "\n  remedy: give a Backend object, or the name of one: \"eager\"");
  return object;
}

}  // namespace tandem

namespace tandem::pipeline {
namespace {

/// Raises if a field that is not built yet is set.
void require_default(bool is_default, const char* setting, const char* instead) {
  if (!is_default) {
    TANDEM_UNSUPPORTED("options", setting, " is not built yet", "\n  instead: ", instead);
  }
}

const char* word(IntegerSizes value) {
  return value == IntegerSizes::inferred ? "integer_sizes = inferred" : "integer_sizes = strict";
}

void check_values(const Options& options) {
  TANDEM_REQUIRE(options.partitioner, "options", "partitioner is empty",
                 "\n  remedy: leave it out, or give tandem::min_cut or a function of your own");
  TANDEM_REQUIRE(
      options.max_entries >= 1, "options", "max_entries is ", options.max_entries,
      ": expected at least 1",
      "\n  remedy: 1 keeps a single entry; to run without Tandem, call your function itself");
  TANDEM_REQUIRE(options.verify_every >= 0 || options.verify_every == automatic, "options",
                 "verify_every is ", options.verify_every,
                 ": expected 0 (never) or a number of calls", "\n  remedy: leave it out");
  if (options.memory_budget) {
    TANDEM_REQUIRE(*options.memory_budget >= 0 && *options.memory_budget <= 1, "options",
                   "memory_budget is ", *options.memory_budget, ": expected a share from 0 to 1",
                   "\n  remedy: for a limit in bytes use peak_limit_bytes");
  }
  if (options.peak_limit_bytes) {
    TANDEM_REQUIRE(*options.peak_limit_bytes > 0, "options", "peak_limit_bytes is ",
                   *options.peak_limit_bytes, ": expected more than 0",
                   "\n  remedy: leave it out for no limit");
  }
  for (size_t i = 0; i < options.modules.size(); ++i) {
    TANDEM_REQUIRE(options.modules[i] != nullptr, "options", "modules[", i, "] is a null pointer",
                   "\n  remedy: construct the module before compiling");
  }
  for (size_t i = 0; i < options.closes_over.size(); ++i) {
    TANDEM_REQUIRE(
        options.closes_over[i] != nullptr, "options", "closes_over[", i, "] is a null pointer",
        "\n  remedy: give the address of the tensor variable that the function closes over");
  }
}

void check_built(const Options& options) {
  require_default(options.integer_sizes == IntegerSizes::checked, word(options.integer_sizes),
                  "checked: the function is traced once for each set of sizes");
  require_default(!options.memory_budget, "memory_budget",
                  "leave it out; the partitioner decides what is saved");
  require_default(!options.peak_limit_bytes, "peak_limit_bytes", "leave it out; no limit is kept");
  require_default(options.optimizers.empty(), "optimizers",
                  "call the optimizer outside the compiled function");
  require_default(!options.cuda_graphs, "cuda_graphs", "leave it out; every kernel is launched");
  require_default(options.cache_dir.empty(), "cache_dir",
                  "leave it out; every process compiles for itself");
}

}  // namespace

namespace {

/// Read by every compile, written where the environment is read.
struct PassSwitches {
  std::mutex mutex;
  std::vector<std::string> words;
};
PassSwitches& pass_switches() {
  static PassSwitches switches;
  return switches;
}

bool names_a_pass(std::string_view word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  return std::ranges::any_of(passes::all_passes(),
                             [&](const PassInfo& pass) { return word == pass.name; });
}

}  // namespace

bool set_pass_switches(const std::vector<std::string>& words) {
  if (!std::ranges::all_of(words, names_a_pass)) return false;
  PassSwitches& switches = pass_switches();
  const std::lock_guard lock(switches.mutex);
  switches.words = words;
  return true;
}

bool runs(const PassInfo& pass, Rounding rounding) {
  return (pass.exact || rounding == Rounding::fast) && is_switched_on(pass);
}

bool is_switched_on(const PassInfo& pass) {
  bool on = pass.on_by_default;
  PassSwitches& switches = pass_switches();
  const std::lock_guard lock(switches.mutex);
  for (const std::string& word : switches.words) {
    if (word == pass.name) on = true;
    if (word == std::string("-") + pass.name) on = false;
  }
  return on;
}

void check_options(const Options& options) {
  check_values(options);
  check_built(options);
  options.backend.resolve();
}

}  // namespace tandem::pipeline
