#include "commands.h"
#include "tandem/about.h"
#include "tandem/pass.h"

#include <fmt/format.h>

#include <iostream>

namespace tandem::cli {

void print_info() {
  const About about = tandem::about();
  std::cout << fmt::format("tandem {}, built with torch {}\n", about.version, about.torch_version);
  std::cout << "\nbackends\n";
  for (const BackendState& backend : about.backends) {
    std::cout << fmt::format("  {:<22} {}\n", backend.name,
                             backend.unavailable.empty() ? "ready" : backend.unavailable);
  }
  std::cout << "\npasses\n";
  for (const PassInfo& pass : registered_passes()) {
    std::cout << fmt::format("  {:<22} {}\n", pass.name, pass.summary);
  }
  std::cout << "\nenvironment\n";
  for (const Setting& setting : about.settings) {
    std::cout << fmt::format("  {:<26} {}\n", setting.name,
                             setting.value.empty() ? "not set" : setting.value);
  }
}

}  // namespace tandem::cli
