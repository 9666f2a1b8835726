#pragma once

#include "tandem/log.h"

#include <string>

namespace tandem::base {

enum class LogLevel { Warning, Info, Debug };

/// How much is said; `Warning` until someone sets it (TANDEM_LOG, read by every compile).
LogLevel log_level();
void set_log_level(LogLevel level);

/// Something the user should know. Always said.
void warn(const std::string& text);
/// Said the first time that `key` comes in this process.
void warn_once(const std::string& key, const std::string& text);
/// A line per compile or miss (Info), or what a developer wants (Debug); dropped above the level.
void log(LogLevel level, const std::string& text);

/// The one sink of the process; `tandem::set_warning_sink` is its public name.
using LogSink = WarningSink;
LogSink set_log_sink(LogSink sink);

}  // namespace tandem::base
