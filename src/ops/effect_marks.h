#pragma once

#include <ATen/core/operator_name.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::ops {

/// Calls of the op `mylib::log`, all overloads, or of one overload `mylib::log.text`, are effects
/// from now on. A UserError if there is no such op, or if it returns a view. Any thread.
void mark_effectful(const std::string& name);

bool is_marked_effectful(const c10::OperatorName& name);

/// Every overload that is marked, as in `mylib::log.text`, sorted.
std::vector<std::string> marked_effectful();

/// Grows with every op that is marked: what was compiled before may have dropped its calls.
uint64_t effect_marks();

}  // namespace tandem::ops
