#include "backends/eager/eager_backend.h"
#include "base/error.h"
#include "tandem/backend.h"

#include <memory>
#include <string>

namespace tandem {

std::shared_ptr<Backend> backend(std::string_view name) {
  if (name == "eager") return backends::eager::make_backend();
  if (name == "llvm") {
    TANDEM_UNSUPPORTED("lower", "backend \"llvm\" is not built yet",
                       "\n  remedy: use backend \"eager\", which runs libtorch's own kernels");
  }
  throw UserError(
      "lower", base::str("no backend is called \"", name, "\"\n  known:  eager, llvm",
                         "\n  remedy: use backend \"eager\", or pass a std::shared_ptr<Backend>"));
}

}  // namespace tandem
