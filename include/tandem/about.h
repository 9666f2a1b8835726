#pragma once

#include "tandem/export.h"

#include <string>
#include <vector>

namespace tandem {

/// A backend by name, and whether this build can use it.
struct BackendState {
  std::string name;
  std::string unavailable{};  // why not; empty if `backend(name)` gives it
};

/// An environment variable that the library reads.
struct Setting {
  std::string name;
  std::string value{};  // empty: not set
};

/// What this build of the library is and can do; the passes are in pass.h.
struct About {
  std::string version;
  std::string torch_version;  // of the libtorch that it was built with
  std::vector<BackendState> backends;
  std::vector<Setting> settings;  // sorted by name
};
TANDEM_API About about();

}  // namespace tandem
