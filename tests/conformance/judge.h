#pragma once

#include "conformance/program.h"

#include <map>
#include <string>
#include <vector>

namespace tandem::conformance {

/// One way of running a program compiled.
struct ModeResult {
  enum class Outcome { Passed, Failed, Later };
  std::string mode;
  Outcome outcome = Outcome::Passed;
  std::string refusal{};  // text of an UnsupportedError
  std::vector<std::string> differences{};
};

/// Runs the program eagerly and compiled and compares whatever a caller can see, in every mode:
/// write-back in the graph; a second call on fresh inputs, which must find its entry; a call from
/// another thread; what is left when all is dropped; write-back in the epilogue, twice; gradients
/// of gradients; cut by min_cut_recompute, twice; each pass left out in turn. A mode whose option
/// is not built yet is `Later`. If the first mode is refused, the others are not tried.
std::vector<ModeResult> judge(const MakeProgram& make, const Settings& settings = {});

/// The names of the modes, in the order in which they run.
std::vector<std::string> mode_names();

}  // namespace tandem::conformance
