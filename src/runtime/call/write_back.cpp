#include "runtime/call/write_back.h"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tandem::runtime {

at::Tensor handle_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(),
                                                 /*allow_tensor_metadata_change=*/false));
}

void copy_below_autograd(const at::Tensor& to, const at::Tensor& from) {
  at::AutoDispatchBelowADInplaceOrView below;
  // Of an expanded member of a group: its elements lie on top of each other, and hold the same.
  at::Tensor target = to, source = from;
  for (int64_t i = 0; i < to.dim(); ++i) {
    if (to.stride(i) != 0 || to.size(i) < 2) continue;
    target = target.narrow(i, 0, 1);
    source = source.narrow(i, 0, 1);
  }
  target.copy_(source);
}

void protect(const CallPlan& plan, std::span<at::Tensor> outputs) {
  const auto own = [&](int64_t position) {
    at::Tensor& output = outputs[static_cast<size_t>(position)];
    output = output.clone();
  };
  for (const WriteBack& write : plan.write_backs) {
    if (write.copy) own(write.position);
  }
  for (const FreshResult& fresh : plan.fresh) {
    if (fresh.copy) own(fresh.position);
  }
  for (const FreshResult& base : plan.bases) {
    if (base.copy) own(base.position);
  }
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const int64_t position = plan.first_saved + static_cast<int64_t>(i);
    if (plan.saved[i].copy) own(position);
    if (plan.saved[i].shallow && plan.saved[i].written < 0) {
      at::Tensor& output = outputs[static_cast<size_t>(position)];
      output = handle_of(output);
    }
  }
}

void keep_written_handles(const CallPlan& plan, std::span<const at::Tensor> inputs,
                          std::span<at::Tensor> outputs) {
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    if (plan.saved[i].written < 0) continue;
    outputs[static_cast<size_t>(plan.first_saved) + i] =
        handle_of(inputs[static_cast<size_t>(plan.saved[i].written)]);
  }
}

void write_back(const CallPlan& plan, std::span<const at::Tensor> inputs,
                std::span<at::Tensor> outputs) {
  for (const WriteBack& write : plan.write_backs) {
    copy_below_autograd(inputs[static_cast<size_t>(write.input)],
                        outputs[static_cast<size_t>(write.position)]);
  }
  for (const VersionBump& bump : plan.version_bumps) {
    const at::Tensor& input = inputs[static_cast<size_t>(bump.input)];
    if (input.is_inference()) continue;
    for (int64_t n = 0; n < bump.count; ++n) input.unsafeGetTensorImpl()->bump_version();
  }
  keep_written_handles(plan, inputs, outputs);
}

}  // namespace tandem::runtime
