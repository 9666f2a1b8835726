#pragma once

#include "fuzz/program.h"

#include <string>

namespace tandem::fuzz {

/// One op as C++: `v7 = v3.add(v4, 0.5);`, several results through a list.
std::string statement_text(const Statement& statement);

}  // namespace tandem::fuzz
