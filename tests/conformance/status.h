#pragma once

#include "conformance/case.h"

#include <map>
#include <string>
#include <vector>

namespace tandem::conformance {

enum class Outcome { Passed, Failed, Later, Differs };

/// How every case of a run has ended; writes the status page.
class Status {
 public:
  void add(const std::string& category, const Case& item, Outcome outcome, const Session& session);

  bool has(const std::string& category, const std::string& name) const;
  int count(Outcome outcome) const;
  /// STATUS.md.
  std::string page(const std::vector<Category>& categories) const;

 private:
  struct Ended {
    Outcome outcome;
    Standing standing;
  };
  std::map<std::pair<std::string, std::string>, Ended> ended_{};
  std::map<std::string, Session::ModeCount> modes_{};
};

}  // namespace tandem::conformance
