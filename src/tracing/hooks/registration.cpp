#include "tracing/hooks/registration.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/op_table.h"
#include "tracing/hooks/hooks.h"
#include "tracing/hooks/interception.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace tandem::tracing {
namespace {

void check_libtorch() {
  const std::string running = libtorch::running_version(), built = libtorch::built_version();
  TANDEM_REQUIRE(running.empty() || running.starts_with(built), "trace",
                 "this program runs libtorch ", running, ", but Tandem was built for ", built,
                 "\n  remedy: build Tandem against the libtorch of the program (TORCH_DIR=...)");
}

void check_keys_are_free() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (c10::DispatchKey key : {libtorch::kRecordKey, libtorch::kLiftKey}) {
    TANDEM_REQUIRE(!dispatcher.hasBackendFallbackForDispatchKey(key), "trace",
                   "another library of this process uses the dispatch key ", c10::toString(key),
                   " that Tandem records with\n  remedy: do not load both into one process");
  }
}

/// Registrations live as long as the process: taking them back at exit would race with libtorch's
/// own end.
torch::Library& library(const char* name, c10::DispatchKey key) {
  static auto* const kept = new std::vector<std::unique_ptr<torch::Library>>;
  kept->push_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, name, key, __FILE__, __LINE__));
  return *kept->back();
}

}  // namespace

void functionalize_op(const std::string& name) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::unordered_set<std::string>;
  const std::lock_guard lock(*mutex);
  if (!known->insert(name).second) return;
  const size_t colons = name.find("::");
  library(name.substr(0, colons).c_str(), c10::DispatchKey::Functionalize)
      .impl(name.substr(colons + 2).c_str(),
            torch::CppFunction::makeFromBoxedFunction<&functionalize>());
}

void register_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    check_libtorch();
    check_keys_are_free();
    library("_", libtorch::kRecordKey)
        .fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
    library("_", libtorch::kLiftKey).fallback(torch::CppFunction::makeFromBoxedFunction<&lift>());
    for (const Interception& row : interceptions()) {
      if (row.stop != Stop::Functionalization || row.fits != nullptr) continue;
      for (const std::string& op : op_names(row)) functionalize_op(op);
    }
    ops::register_missing_meta_kernels();
  });
}

}  // namespace tandem::tracing
