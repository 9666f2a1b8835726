#pragma once

#include "backends/llvm_cpu/schedule.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem::backends::llvm_cpu {

/// Machine code of one kernel as an ELF object, and the name of its function.
struct ObjectCode {
  std::string symbol;
  std::vector<char> bytes;
};

/// What the generator made of a kernel, for people.
struct KernelText {
  std::string llvm_ir;  // after the passes
  std::string assembly;
};

/// Generates code, one kernel after the other; each thread needs its own.
class CodeGenerator {
 public:
  explicit CodeGenerator(InstructionSet set);
  ~CodeGenerator();
  CodeGenerator(CodeGenerator&&) noexcept;
  CodeGenerator& operator=(CodeGenerator&&) noexcept;

  /// An UnsupportedError if an op of the kernel has no code.
  ObjectCode object(const Schedule& schedule, const std::string& symbol);
  KernelText text(const Schedule& schedule, const std::string& symbol);

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace tandem::backends::llvm_cpu
