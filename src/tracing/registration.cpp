#include "tracing/registration.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/op_table.h"
#include "tracing/lifting.h"
#include "tracing/recorder.h"

#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/_native_batch_norm_legit_no_training.h>
#include <torch/library.h>
#include <torch/version.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tandem::tracing {
namespace {

using Statistics = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// native_batch_norm writes its running statistics without saying so: functionalization would lose
/// the writes. Hands it to the op that declares them.
Statistics batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum,
                      double eps) {
  at::AutoDispatchBelowADInplaceOrView
      below;  // we come from below autograd; Functionalize stays on
  const bool has_statistics = running_mean && running_mean->defined();
  if (training && has_statistics) {
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  }
  if (training) return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  return at::_native_batch_norm_legit_no_training(input, weight, bias, *running_mean, *running_var,
                                                  momentum, eps);
}

void check_libtorch() {
  // `TORCH_VERSION=2.13.0,` among the build settings: the only place that says it at run time.
  const std::string config = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const size_t at = config.find(key);
  if (at == std::string::npos) return;
  const size_t from = at + key.size();
  const std::string running = config.substr(from, config.find_first_of(", \n", from) - from);
  const std::string built = TORCH_VERSION;
  TANDEM_REQUIRE(running.rfind(built.substr(0, built.find('+')), 0) == 0, "trace",
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

void register_hooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    check_libtorch();
    check_keys_are_free();
    library("_", libtorch::kRecordKey)
        .fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
    library("_", libtorch::kLiftKey)
        .fallback(torch::CppFunction::makeFromBoxedFunction<&lift_arguments>());
    library("aten", c10::DispatchKey::Functionalize)
        .impl("native_batch_norm", TORCH_FN(batch_norm));
    ops::register_missing_meta_kernels();
  });
}

}  // namespace tandem::tracing
