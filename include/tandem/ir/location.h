#pragma once

#include "tandem/export.h"

#include <cstdint>
#include <memory>
#include <string>

namespace tandem::ir {

/// A line of the user's program.
struct SourceLine {
  std::string file{};  // as the compiler was given it; empty: unknown
  int64_t line = 0;    // 0: no debug information, `file` is the object and its nearest symbol
  friend bool operator==(const SourceLine&, const SourceLine&) = default;
};

/// What a trace noted of the place where an op was called.
class TANDEM_API LineSource {
 public:
  virtual ~LineSource();
  /// Finds the line at the first question and keeps it. Safe to ask from several threads.
  virtual const SourceLine& find() const = 0;
  /// Whether `find` has nothing to do any more.
  virtual bool found() const = 0;
};

/// Where in the user's program a node comes from.
///
/// A trace notes addresses only: they are turned into a file and a line when somebody asks, so that
/// a program that never looks pays next to nothing. Copies share what was found.
class TANDEM_API Location {
 public:
  Location() = default;
  Location(std::string file, int64_t line);
  explicit Location(std::shared_ptr<const LineSource> source) : source_(std::move(source)) {}

  bool known() const { return !line_found().file.empty(); }
  const std::string& file() const { return line_found().file; }
  /// 0 where only a symbol is known.
  int64_t line() const { return line_found().line; }

  /// Whether there is something to ask; costs nothing.
  bool noted() const { return source_ != nullptr; }
  /// Whether the questions above cost nothing.
  bool found() const { return !source_ || source_->found(); }

  friend bool operator==(const Location& a, const Location& b) {
    return a.source_ == b.source_ || a.line_found() == b.line_found();
  }

 private:
  const SourceLine& line_found() const;

  std::shared_ptr<const LineSource> source_;
};

/// `net.cpp:41`; without debug information `libnet.so(forward+0x1a)`; empty if unknown.
TANDEM_API std::string to_string(const Location& location);

}  // namespace tandem::ir
