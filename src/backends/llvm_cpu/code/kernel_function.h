#pragma once

#include <cstdint>

namespace tandem::backends::llvm_cpu {

/// A generated kernel: walks units [begin, end) of its schedule. `scratch` has the schedule's bytes
/// for this call alone, aligned to 64. `numbers` are the sizes of code that serves several
/// (form.h), else null. Returns 0, or 1 if an index was out of range.
using KernelFunction = int32_t (*)(void* const* buffers, int64_t begin, int64_t end, char* scratch,
                                   const int64_t* numbers);

}  // namespace tandem::backends::llvm_cpu
