#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace tandem::base {
namespace {

struct Log {
  std::atomic<LogLevel> level{LogLevel::Warning};
  std::mutex mutex;  // of what follows; never held while a sink runs
  std::shared_ptr<const LogSink> sink = std::make_shared<LogSink>();
  std::set<std::string> said;
};

// Made at first use and never destroyed: threads may still log while the process ends.
Log& the_log() {
  static Log* log = new Log;
  return *log;
}

const char* word(LogLevel level) {
  switch (level) {
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Info:
      return "info";
    case LogLevel::Debug:
      return "debug";
  }
  return "debug";
}

void write(Log& log, LogLevel level, const std::string& text) {
  const std::string line = std::string("tandem: ") + word(level) + ": " + text;
  std::shared_ptr<const LogSink> sink;
  {
    std::lock_guard lock(log.mutex);
    sink = log.sink;
  }
  if (*sink) {
    try {
      (*sink)(line);
      return;
    } catch (...) {  // a broken sink must not break the call that warns
    }
  }
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace

LogLevel log_level() { return the_log().level.load(std::memory_order_relaxed); }

void set_log_level(LogLevel level) { the_log().level.store(level, std::memory_order_relaxed); }

void warn(const std::string& text) { log(LogLevel::Warning, text); }

void warn_once(const std::string& key, const std::string& text) {
  Log& log = the_log();
  {
    std::lock_guard lock(log.mutex);
    if (!log.said.insert(key).second) return;
  }
  write(log, LogLevel::Warning, text);
}

void log(LogLevel level, const std::string& text) {
  if (level <= log_level()) write(the_log(), level, text);
}

LogSink set_log_sink(LogSink sink) {
  Log& log = the_log();
  auto next = std::make_shared<const LogSink>(std::move(sink));
  {
    std::lock_guard lock(log.mutex);
    log.sink.swap(next);
  }
  return *next;
}

}  // namespace tandem::base

namespace tandem {

WarningSink set_warning_sink(WarningSink sink) { return base::set_log_sink(std::move(sink)); }

}  // namespace tandem
