#pragma once

#include "backends/llvm_cpu/schedule.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::backends::llvm_cpu {

/// A schedule taken apart: what the code looks like, and the numbers that it is handed at each
/// launch. Schedules of one form share their code, which is generated from the form alone, so no
/// size can slip into it.
///
/// Numbers are extents, pieces of walks, offsets, strides, bounds of indices, and those constants
/// of the body that no instruction is chosen by. 0 and 1 stay in the form: they mean "nothing",
/// "broadcast" and "side by side". Accesses of one layout have their strides in common, so that
/// addresses that are the same are computed once.
struct Form {
  Schedule
      schedule;  // in place of a number: its place in `numbers`. No units, grain, tiles, scratch
  std::vector<int64_t> numbers;  // floats as their bits
};

Form form_of(Schedule schedule);
/// The schedule that the form was made of, but for what only a launch needs.
Schedule filled_in(const Form& form);
/// Equal for forms that have the same code.
std::string form_key(const Schedule& form);

/// Places stand where no size does.
inline constexpr int64_t kFirstPlace = INT64_MIN / 2;
inline bool is_place(int64_t number) {
  return number >= kFirstPlace && number < kFirstPlace + (int64_t{1} << 32);
}
inline size_t place_of(int64_t number) { return static_cast<size_t>(number - kFirstPlace); }

}  // namespace tandem::backends::llvm_cpu
