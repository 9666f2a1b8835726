#pragma once

#include "tandem/ir/location.h"

#include <string>

namespace tandem::pipeline {

/// What a function does now and did not when it was compiled, in the words of its author.
struct Difference {
  std::string what{};  // `dropout p=0.5, now 0.1`
  ir::Location line{};
  std::string compiled{}, now{};  // where `what` does not say it
  std::string cause{}, remedy{};
};

}  // namespace tandem::pipeline
