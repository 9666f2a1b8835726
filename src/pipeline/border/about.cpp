#include "tandem/about.h"

#include "base/build_info.h"
#include "pipeline/settings/environment.h"
#include "tandem/backend.h"
#include "tandem/error.h"

#include <cstdlib>

namespace tandem {
namespace {

BackendState state_of(const char* name) {
  try {
    backend(name);
    return {.name = name};
  } catch (const UnsupportedError& error) {
    const std::string text = error.what();
    const size_t start = error.stage().size() + 2;  // after `lower: `
    return {.name = name, .unavailable = text.substr(start, text.find('\n') - start)};
  }
}

}  // namespace

About about() {
  About about{.version = base::kVersion,
              .torch_version = base::kTorchVersion,
              .backends = {},
              .settings = {}};
  // The names that backend() knows; tests/cli compares them with its error.
  for (const char* name : {"eager", "llvm"}) about.backends.push_back(state_of(name));
  for (const std::string& name : pipeline::environment_names()) {
    const char* value = std::getenv(name.c_str());
    about.settings.push_back({.name = name, .value = value == nullptr ? "" : value});
  }
  return about;
}

}  // namespace tandem
