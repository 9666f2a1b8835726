#include "backends/eager/eager_backend.h"
#include "backends/llvm_common/llvm_backend.h"
#include "backends/llvm_cpu/cpu_compiler.h"
#include "base/error.h"
#include "tandem/backend.h"

#include <memory>
#include <string>

namespace tandem {

std::shared_ptr<Backend> backend(std::string_view name) {
  if (name == "eager") return backends::eager::make_backend();
  if (name == "llvm") {
    return backends::llvm_common::make_backend(backends::llvm_cpu::make_cpu_compiler(),
                                               backends::eager::make_backend());
  }
  throw UserError(
      "lower", base::str("no backend is called \"", name, "\"\n  known:  eager, llvm",
                         "\n  remedy: use backend \"eager\", or pass a std::shared_ptr<Backend>"));
}

}  // namespace tandem
