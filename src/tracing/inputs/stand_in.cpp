#include "tracing/inputs/stand_in.h"

#include "base/error.h"
#include "libtorch/version.h"
#include "ops/memory/flat_memory.h"
#include "tracing/inputs/lost_history.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem::tracing {
namespace {

namespace autograd = torch::autograd;

/// Where the gradient of a non-leaf argument leaves the recorded graph. The engine stops here: it
/// is asked for this edge, never to run the node.
struct InputNode : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&&) override {
    TANDEM_CHECK(false, "joint", "the backward ran past an argument");
  }
};

void enter(const at::Tensor& tensor) {
  auto node = libtorch::make_node<InputNode>();
  node->add_input_metadata(tensor);
  autograd::impl::set_gradient_edge(tensor, autograd::Edge(std::move(node), 0));
}

at::Tensor functional(Recording& recording, const at::Tensor& like, ir::Descriptor role,
                      std::string name) {
  OutsideTrace outside;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::functionalization::impl::to_functional_tensor(
      recording.add_input(like, std::move(role), std::move(name)));
}

}  // namespace

void require_plain(const at::Tensor& tensor) {
  const auto* meta = autograd::impl::get_autograd_meta(tensor);
  if (meta && meta->fw_grad_) {
    TANDEM_UNSUPPORTED(
        "trace",
        "a tensor with a forward-mode derivative (a dual tensor) enters the compiled "
        "function",
        "\n  remedy: unpack it outside, or call the function itself in forward-mode code");
  }
  // Functionalization passes it through as it is, so no trace could follow it.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    TANDEM_UNSUPPORTED("trace",
                       "a wrapped number (a tensor that gives way to the dtype of others, as a "
                       "number does) enters the compiled function",
                       "\n  remedy: pass the number itself (at::Scalar), or a tensor that is none "
                       "(clone())");
  }
  if (tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested()) return;
  TANDEM_UNSUPPORTED("trace", "a tensor with layout ", tensor.layout(),
                     (tensor.is_quantized() ? " (quantized)"
                      : tensor.is_nested()  ? " (nested)"
                                            : ""),
                     " enters the compiled function; only dense strided tensors can be traced",
                     "\n  remedy: convert it with to_dense() or dequantize() outside the function");
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

StandIn make_stand_in(Recording& recording, const at::Tensor& real, ir::Descriptor role,
                      std::string name, bool caller_in_inference_mode) {
  require_plain(real);
  StandIn stand_in;
  stand_in.real = real;
  {
    c10::InferenceMode mode(real.is_inference() && !caller_in_inference_mode);
    stand_in.tensor = functional(recording, real, std::move(role), std::move(name));
  }
  stand_in.input = recording.graph().inputs().back();
  take_autograd_state(stand_in, real);
  note_first_state(stand_in);
  return stand_in;
}

void take_autograd_state(StandIn& stand_in, const at::Tensor& real) {
  if (!real.requires_grad()) return;
  if (real.is_leaf()) {
    if (real.is_view() && !ops::root_of(real).requires_grad()) set_apart(stand_in.tensor);
    stand_in.tensor.set_requires_grad(true);  // autograd itself refuses in-place writes to it
  } else {
    // Not a view or clone of a leaf: in-place ops stay legal and no extra node appears.
    enter(stand_in.tensor);
    stand_in.renews = real.is_view();
  }
  stand_in.histories = {autograd::impl::gradient_edge(stand_in.tensor)};
}

autograd::Edge unwritten_history(const StandIn& stand_in) {
  return stand_in.histories.empty() ? autograd::Edge() : stand_in.histories.back();
}

bool is_history_of(const StandIn& stand_in, const autograd::Node* node) {
  return std::ranges::any_of(
      stand_in.histories, [&](const autograd::Edge& edge) { return edge.function.get() == node; });
}

void renew_history(StandIn& stand_in) {
  if (!stand_in.renews || version_of(stand_in.tensor) == stand_in.history_version) return;
  stand_in.history_version = version_of(stand_in.tensor);
  // A write that autograd has seen is its history from then on.
  if (!(autograd::impl::gradient_edge(stand_in.tensor) == unwritten_history(stand_in))) return;
  enter(stand_in.tensor);
  stand_in.histories.push_back(autograd::impl::gradient_edge(stand_in.tensor));
}

void note_first_state(StandIn& stand_in) {
  stand_in.first_value = current_value(stand_in.tensor);
  stand_in.requires_grad = stand_in.real.requires_grad();
  stand_in.is_leaf = stand_in.real.is_leaf();
  // Otherwise the call would switch the flag of the real tensor, which the function did not.
  TANDEM_CHECK(stand_in.tensor.requires_grad() == stand_in.requires_grad &&
                   stand_in.tensor.is_leaf() == stand_in.is_leaf,
               "trace", "autograd takes what stands for ", tensor_text(stand_in.real),
               " for something else");
  stand_in.version = stand_in.history_version = version_of(stand_in.tensor);
  // Held weakly. A strong handle would make a growing resize_ throw. Without any handle another
  // storage could get this address.
  stand_in.storage = stand_in.tensor.storage().getWeakStorageImpl();
  stand_in.storage_bytes = stand_in.tensor.storage().nbytes();
}

at::Tensor make_tangent(Recording& recording, const at::Tensor& like, int64_t index) {
  return functional(recording, like, ir::Descriptor::tangent(index),
                    "tangent" + std::to_string(index));
}

at::Tensor make_functional(Recording& recording, ir::ValueId value, const at::Tensor& like) {
  OutsideTrace outside;
  at::AutoDispatchBelowADInplaceOrView below;
  const TracedTensor* traced = as_traced(like);
  if (traced == nullptr)
    traced = as_traced(at::functionalization::impl::from_functional_tensor(like));
  TANDEM_CHECK(traced != nullptr, "joint", "a gradient is not traced");
  return at::functionalization::impl::to_functional_tensor(recording.wrap(value, traced->meta()));
}

}  // namespace tandem::tracing
