#include "tracing/recording/recording.h"

#include "ops/op_table.h"
#include "tracing/recording/traced_tensor.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>

namespace tandem::tracing {
namespace {

thread_local Recording* tls_recording = nullptr;

uint64_t next_id() {
  static std::atomic<uint64_t> counter{1};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Recording::Recording(Inputs* inputs) : id_(next_id()), inputs_(inputs) {}

at::Tensor Recording::wrap(ir::ValueId value, const ops::TensorMeta& meta) {
  has_lazy_values_ = has_lazy_values_ || meta.conjugate || meta.negative;
  return at::detail::make_tensor<TracedTensor>(*this, value, meta);
}

at::Tensor Recording::add_input(const at::Tensor& like, ir::Descriptor role, std::string name) {
  ops::TensorMeta meta = metadata_.meta_of(like);
  // A backward is given tangents as plain tensors, whatever their results are.
  if (role.role == ir::Role::Tangent) meta.conjugate = meta.negative = false;
  ir::Value& value = graph_.add_input(meta.type, std::move(role), std::move(name));
  return wrap(value.id(), meta);
}

void Recording::note_call(const c10::OperatorHandle& op) {
  calls_.add(ops::info(op).name_hash).add(c10::GradMode::is_enabled());
}

void Recording::note_backward_node(ir::NodeId node) {
  const torch::autograd::Node* running = torch::autograd::get_current_node().get();
  const bool by_hook = running == nullptr || running == hooked_node_;
  backward_nodes_.push_back({node, running ? running : hooked_node_, by_hook});
}

void Recording::note_user_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> operands) {
  if (phase_ == ir::Phase::Forward) user_calls_.emplace_back(op, operands, lines_.current());
}

void Recording::rewind(ir::NodeId last) {
  while (graph_.last_node() != last) graph_.erase(graph_.node(graph_.last_node()));
}

Recording* current_recording() { return tls_recording; }

RecordingScope::RecordingScope(Recording* recording) : previous_(tls_recording) {
  tls_recording = recording;
}

RecordingScope::~RecordingScope() { tls_recording = previous_; }

}  // namespace tandem::tracing
