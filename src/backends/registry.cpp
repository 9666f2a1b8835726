#include "backends/eager/eager_backend.h"
#include "backends/llvm_cpu/cpu_compiler.h"
#include "base/error.h"
#include "loops/host/kernel_backend.h"
#include "tandem/backend.h"

#include <cstdlib>
#include <memory>
#include <string>

namespace tandem {
namespace {

/// TANDEM_CHECK=1. The pipeline has refused other values.
bool wants_check() {
  const char* value = std::getenv("TANDEM_CHECK");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

std::shared_ptr<Backend> backend(std::string_view name) {
  if (name == "eager") return backends::eager::make_backend();
  if (name == "llvm") {
    return loops::make_backend(backends::llvm_cpu::make_cpu_compiler(),
                               backends::eager::make_backend(), wants_check());
  }
  throw UserError(
      "lower", base::str("no backend is called \"", name, "\"\n  known:  eager, llvm",
                         "\n  remedy: use backend \"eager\", or pass a std::shared_ptr<Backend>"));
}

}  // namespace tandem
