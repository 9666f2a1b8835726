#pragma once

#include "fuzz/program.h"

#include <string>
#include <vector>

namespace tandem::fuzz {

struct Verdict {
  enum class Kind { Passed, Refused, Unseen, Failed };  // Unseen: eager's own state raises
  Kind kind = Kind::Passed;
  std::string refusal{};  // text of the UnsupportedError
  std::vector<std::string> differences{};
  bool eager_raised = false;           // in the call
  bool eager_backward_raised = false;  // in a gradient
};

/// Runs the program eagerly and compiled, two calls each, and compares whatever a caller can see.
Verdict check(const ProgramSpec& program);

/// The graphs that the compiled form records in its first call, or why it records none.
std::string graph_text(const ProgramSpec& program);

}  // namespace tandem::fuzz
