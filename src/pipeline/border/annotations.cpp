#include "tandem/annotations.h"

#include "base/error.h"
#include "ops/effect_marks.h"
#include "tandem/checkpoint.h"
#include "tracing/trace.h"

#include <string>

namespace tandem {

void mark_effectful(const std::string& name) {
  TANDEM_REQUIRE(!tracing::is_tracing(), "options", "mark_effectful of ", name,
                 " is called inside a function that is being traced",
                 "\n  remedy: mark the op before the first call of the compiled function");
  ops::mark_effectful(name);
}

void set_metadata_rule(const std::string& name, MetadataRule) {
  TANDEM_UNSUPPORTED("options", "set_metadata_rule of ", name, " is not built yet",
                     "\n  instead: register a Meta kernel for the op with TORCH_LIBRARY_IMPL");
}

}  // namespace tandem

namespace tandem::detail {

void require_no_trace(const char* what) {
  if (!tracing::is_tracing()) return;
  TANDEM_UNSUPPORTED(
      "trace", what, " inside a compiled function is not built yet",
      "\n  instead: call the function itself; the partitioner decides what is saved");
}

}  // namespace tandem::detail
