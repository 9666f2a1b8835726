#include "runtime/version_check.h"

#include "base/error.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem::runtime {
namespace {

std::string origin_of(const at::Tensor& tensor) {
  const auto& node = tensor.grad_fn();
  return node ? base::str("output ", tensor.output_nr(), " of ", node->name()) : std::string();
}

}  // namespace

void throw_modified(const at::Tensor& tensor, const std::string& origin, uint32_t version,
                    uint32_t expected) {
  TORCH_CHECK(
      false,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: [",
      tensor.toString(), " ", tensor.sizes(), "]",
      origin.empty() ? "" : ", which is " + origin + ",", " is at version ", version,
      "; expected version ", expected, " instead. Hint: ",
      torch::autograd::AnomalyMode::is_enabled()
          ? "the backtrace further above shows the operation that failed to compute its gradient. "
            "The variable in question was changed in there or anywhere later. Good luck!"
          : "enable anomaly detection to find the operation that failed to compute its gradient, "
            "with torch.autograd.set_detect_anomaly(True).");
}

uint32_t version_to_save(const at::Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  // The constructor raises eager's own text for a tensor without a counter.
  if (!counter.enabled()) torch::autograd::SavedVariable(tensor, /*is_output=*/false);
  return counter.current_version();
}

void check_saved(const at::Tensor& tensor, uint32_t version, bool had_history) {
  const uint32_t now = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  if (now != version) throw_modified(tensor, origin_of(tensor), now, version);
  TORCH_CHECK(!had_history || tensor.grad_fn(), "No grad_fn for non-leaf saved tensor");
}

}  // namespace tandem::runtime
