#include "tandem/ir/location.h"

#include <utility>

namespace tandem::ir {
namespace {

/// A line that was known from the start, such as one of a text.
class KnownLine final : public LineSource {
 public:
  explicit KnownLine(SourceLine line) : line_(std::move(line)) {}
  const SourceLine& find() const override { return line_; }
  bool found() const override { return true; }

 private:
  const SourceLine line_;
};

}  // namespace

LineSource::~LineSource() = default;

Location::Location(std::string file, int64_t line) {
  if (file.empty()) return;
  source_ = std::make_shared<const KnownLine>(SourceLine{std::move(file), line});
}

const SourceLine& Location::line_found() const {
  static const auto* const unknown = new SourceLine;
  return source_ ? source_->find() : *unknown;
}

std::string to_string(const Location& location) {
  if (!location.known() || location.line() == 0) return location.file();
  return location.file() + ":" + std::to_string(location.line());
}

}  // namespace tandem::ir
