#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

namespace tandem::base {
namespace {

struct Log {
  std::atomic<LogLevel> level{LogLevel::Warning};
  std::mutex mutex;  // of what follows
  LogSink sink;
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

void write_locked(Log& log, LogLevel level, const std::string& text) {
  const std::string line = std::string("tandem: ") + word(level) + ": " + text;
  if (log.sink) {
    log.sink(line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace

LogLevel log_level() { return the_log().level.load(std::memory_order_relaxed); }

void set_log_level(LogLevel level) { the_log().level.store(level, std::memory_order_relaxed); }

void warn(const std::string& text) { log(LogLevel::Warning, text); }

void warn_once(const std::string& key, const std::string& text) {
  Log& log = the_log();
  std::lock_guard lock(log.mutex);
  if (log.said.insert(key).second) write_locked(log, LogLevel::Warning, text);
}

void log(LogLevel level, const std::string& text) {
  if (level > log_level()) return;
  Log& log = the_log();
  std::lock_guard lock(log.mutex);
  write_locked(log, level, text);
}

LogSink set_log_sink(LogSink sink) {
  Log& log = the_log();
  std::lock_guard lock(log.mutex);
  return std::exchange(log.sink, std::move(sink));
}

}  // namespace tandem::base
