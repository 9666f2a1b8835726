#include "libtorch/version.h"

#include <ATen/Version.h>

namespace tandem::libtorch {

std::string built_version() {
  const std::string version = TORCH_VERSION;
  return version.substr(0, version.find('+'));
}

std::string running_version() {
  // `TORCH_VERSION=2.13.0,` among the build settings: the only place that says it at run time.
  const std::string config = at::show_config(), key = "TORCH_VERSION=";
  const size_t at = config.find(key);
  if (at == std::string::npos) return {};
  const size_t from = at + key.size();
  return config.substr(from, config.find_first_of(", \n", from) - from);
}

}  // namespace tandem::libtorch
