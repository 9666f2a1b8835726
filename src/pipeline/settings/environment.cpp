#include "pipeline/settings/environment.h"

#include "base/error.h"
#include "base/log.h"
#include "pipeline/settings/options.h"
#include "runtime/peak_meter.h"
#include "tandem/stages.h"
#include "tracing/lines/source_lines.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

// Not in any header of the standard library.
extern char** environ;

namespace tandem::pipeline {
namespace {

constexpr std::string_view kPrefix = "TANDEM_";

/// One name: false if the value cannot be read.
struct Variable {
  const char* name;
  const char* legal;
  bool (*set)(Options& options, const std::string& value);
};

template <class T>
bool pick(T& field, const std::string& value,
          std::initializer_list<std::pair<const char*, T>> words) {
  for (const auto& [word, meaning] : words) {
    if (value == word) {
      field = meaning;
      return true;
    }
  }
  return false;
}

template <class T>
bool read_number(T& field, const std::string& value) {
  T number{};
  const char* end = value.data() + value.size();
  auto [rest, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || rest != end) return false;
  field = number;
  return true;
}

template <class T>
bool read_number(std::optional<T>& field, const std::string& value) {
  T number{};
  if (!read_number(number, value)) return false;
  field = number;
  return true;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

// Sorted by name. Fields that hold pointers or functions have no text, so they are not here.
constexpr Variable kVariables[] = {
    {"TANDEM_BACKEND", "the name of a backend",
     [](Options& options, const std::string& value) {
       options.backend = value;  // an unknown name is found when it is looked up
       return true;
     }},
    {"TANDEM_CACHE_DIR", "a folder",
     [](Options& options, const std::string& value) {
       options.cache_dir = value;
       return true;
     }},
    {"TANDEM_CHECK", "0 or 1",
     // Read by the backend when it is made: every kernel beside eager.
     [](Options&, const std::string& value) { return value == "0" || value == "1"; }},
    {"TANDEM_CPU", "the name of an instruction set",
     // Read by the backend that generates code, which knows the names.
     [](Options&, const std::string&) { return true; }},
    {"TANDEM_DUMP_DIR", "a folder",
     [](Options& options, const std::string& value) {
       options.dump_dir = value;
       return true;
     }},
    {"TANDEM_DYNAMIC", "automatic, never or always",
     [](Options& options, const std::string& value) {
       return pick(options.dynamic, value,
                   {{"automatic", Dynamic::automatic},
                    {"never", Dynamic::never},
                    {"always", Dynamic::always}});
     }},
    {"TANDEM_HIGHER_ORDER", "true or false",
     [](Options& options, const std::string& value) {
       return pick(options.higher_order, value, {{"true", true}, {"false", false}});
     }},
    {"TANDEM_INTEGER_SIZES", "checked, inferred or strict",
     [](Options& options, const std::string& value) {
       return pick(options.integer_sizes, value,
                   {{"checked", IntegerSizes::checked},
                    {"inferred", IntegerSizes::inferred},
                    {"strict", IntegerSizes::strict}});
     }},
    {"TANDEM_LOG", "warning, info or debug",
     [](Options&, const std::string& value) {
       base::LogLevel level{};
       if (!pick(level, value,
                 {{"warning", base::LogLevel::Warning},
                  {"info", base::LogLevel::Info},
                  {"debug", base::LogLevel::Debug}})) {
         return false;
       }
       base::set_log_level(level);
       return true;
     }},
    {"TANDEM_MAX_ENTRIES", "an integer, at least 1",
     [](Options& options, const std::string& value) {
       return read_number(options.max_entries, value) && options.max_entries >= 1;
     }},
    {"TANDEM_MEASURE_PEAK", "on or off",
     [](Options&, const std::string& value) {
       bool on = false;
       if (!pick(on, value, {{"on", true}, {"off", false}})) return false;
       runtime::PeakMeter::set_on(on);
       return true;
     }},
    {"TANDEM_MEMORY_BUDGET", "a number from 0 to 1",
     [](Options& options, const std::string& value) {
       return read_number(options.memory_budget, value) && *options.memory_budget >= 0 &&
              *options.memory_budget <= 1;
     }},
    {"TANDEM_MUTATIONS", "in_graph or epilogue",
     [](Options& options, const std::string& value) {
       return pick(options.mutations, value,
                   {{"in_graph", Mutations::in_graph}, {"epilogue", Mutations::epilogue}});
     }},
    {"TANDEM_ON_OVERFLOW", "eager or error",
     [](Options& options, const std::string& value) {
       return pick(options.on_overflow, value,
                   {{"eager", OnOverflow::eager}, {"error", OnOverflow::error}});
     }},
    {"TANDEM_ON_UNSUPPORTED", "error or eager",
     [](Options& options, const std::string& value) {
       return pick(options.on_unsupported, value,
                   {{"error", OnUnsupported::error}, {"eager", OnUnsupported::eager}});
     }},
    {"TANDEM_PARTITIONER", "default, min_cut or min_cut_recompute",
     [](Options& options, const std::string& value) {
       return pick<Partitioner>(options.partitioner, value,
                                {{"default", default_partition},
                                 {"min_cut", min_cut},
                                 {"min_cut_recompute", min_cut_recompute}});
     }},
    {"TANDEM_PASSES", "passes with commas between them, those to be left out with a - before them",
     [](Options&, const std::string& value) { return set_pass_switches(split_at_commas(value)); }},
    {"TANDEM_PEAK_LIMIT_BYTES", "an integer, at least 1",
     [](Options& options, const std::string& value) {
       return read_number(options.peak_limit_bytes, value) && *options.peak_limit_bytes >= 1;
     }},
    {"TANDEM_RANDOM", "eager or fast",
     [](Options& options, const std::string& value) {
       return pick(options.random, value, {{"eager", Random::eager}, {"fast", Random::fast}});
     }},
    {"TANDEM_ROUNDING", "eager or fast",
     [](Options& options, const std::string& value) {
       return pick(options.rounding, value, {{"eager", Rounding::eager}, {"fast", Rounding::fast}});
     }},
    {"TANDEM_SOURCE_LINES", "on or off",
     [](Options&, const std::string& value) {
       bool on = true;
       if (!pick(on, value, {{"on", true}, {"off", false}})) return false;
       tracing::set_source_lines(on);
       return true;
     }},
    {"TANDEM_STRICT", "0 or 1",
     // Read when a backend fails to compile a graph.
     [](Options&, const std::string& value) { return value == "0" || value == "1"; }},
    {"TANDEM_VERIFY_EVERY", "an integer, at least 0",
     [](Options& options, const std::string& value) {
       return read_number(options.verify_every, value) && options.verify_every >= 0;
     }},
};

const Variable* find_variable(std::string_view name) {
  for (const Variable& variable : kVariables) {
    if (name == variable.name) return &variable;
  }
  return nullptr;
}

/// Insertions, deletions and replacements that make `b` of `a`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

const char* nearest(std::string_view name) {
  const Variable* best = std::min_element(std::begin(kVariables), std::end(kVariables),
                                          [&](const Variable& a, const Variable& b) {
                                            return distance(name, a.name) < distance(name, b.name);
                                          });
  return best->name;
}

/// What is set and starts with TANDEM_, by name; empty values left out.
std::map<std::string, std::string> tandem_variables() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos || equals + 1 == text.size())
      continue;
    found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

/// Raises the error of a variable that cannot be right whatever the program says, with its name.
/// Comes back if there is none.
void name_the_variable() {
  for (const auto& [name, value] : tandem_variables()) {
    const Variable* variable = find_variable(name);
    if (variable == nullptr) continue;
    Options alone;
    variable->set(alone, value);
    try {
      check_options(alone);
    } catch (const UserError& error) {
      throw base::with_detail(error, "set by", name + "=" + value);
    } catch (const UnsupportedError& error) {
      throw base::with_detail(error, "set by", name + "=" + value);
    }
  }
}

}  // namespace

Options apply_environment(Options options) {
  base::set_log_level(base::LogLevel::Warning);
  tracing::set_source_lines(true);
  set_pass_switches({});
  for (const auto& [name, value] : tandem_variables()) {
    const Variable* variable = find_variable(name);
    if (variable == nullptr) {
      base::warn_once("environment " + name, "unknown environment variable " + name +
                                                 ", did you mean " + nearest(name) + "?");
      continue;
    }
    TANDEM_REQUIRE(variable->set(options, value), "options", "environment variable ", name,
                   " cannot be read: expected ", variable->legal, ", got \"", value, "\"",
                   "\n  remedy: correct it or unset it; it beats what the program says");
  }
  return options;
}

Options effective_options(Options options) {
  options = apply_environment(std::move(options));
  try {
    check_options(options);
  } catch (const Error&) {
    name_the_variable();
    throw;
  }
  return options;
}

std::string describe_environment() {
  std::string text;
  for (const auto& [name, value] : tandem_variables()) {
    // TANDEM_STRICT is for tests, and changes nothing as long as Tandem has no defect.
    if (find_variable(name) == nullptr || name == "TANDEM_STRICT") continue;
    if (!text.empty()) text += ", ";
    text += name + "=" + value;
  }
  return text;
}

std::string environment_setting(const std::string& name) {
  const auto variables = tandem_variables();
  const auto found = variables.find(name);
  return found == variables.end() ? "" : name + "=" + found->second;
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (const Variable& variable : kVariables) names.emplace_back(variable.name);
  return names;
}

}  // namespace tandem::pipeline
