#pragma once

#include "conformance/observe.h"

#include <string>
#include <vector>

namespace tandem::conformance {

/// Two records of one name. Empty if equal; otherwise what differs, with both values.
std::string difference(const Record& eager, const Record& compiled, const Settings& settings);

/// Everything in which the two calls differ, the first few of each kind; empty: nothing.
std::vector<std::string> differences(const Observation& eager, const Observation& compiled,
                                     const Settings& settings);

}  // namespace tandem::conformance
