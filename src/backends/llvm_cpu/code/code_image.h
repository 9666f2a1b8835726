#pragma once

#include "backends/llvm_cpu/code/object_code.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::backends::llvm_cpu {

/// Machine code of one function, linked: code, constants behind it, and a slot of 8 bytes for the
/// address of each function that it calls. It may lie anywhere in memory, and no byte of it is
/// written once the slots are filled. Data: another process may load it.
struct CodeImage {
  struct Import {
    int64_t slot = 0;  // where its address goes
    std::string function;
  };
  std::string bytes;
  int64_t entry = 0;  // where the function begins
  std::vector<Import> imports{};
};

/// Links what the code generator has just made. An InternalError if the object has anything in it
/// that a kernel does not need: data that is written, relocations that depend on the address.
CodeImage link(const ObjectCode& object);

}  // namespace tandem::backends::llvm_cpu
