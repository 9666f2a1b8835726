#pragma once

#include "ops/metadata/metadata.h"
#include "shapes/stable_hash.h"
#include "tandem/ir/graph.h"
#include "tracing/lines/source_lines.h"
#include "tracing/recording/data_sizes.h"
#include "tracing/recording/user_call.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace tandem::tracing {

class Inputs;

/// The open list of nodes that the forward and then the backward are written to; `joint` closes it.
class Recording {
 public:
  /// `inputs`: the tensors that come in from outside. Null: none do, all are made here.
  explicit Recording(Inputs* inputs = nullptr);

  uint64_t id() const { return id_; }
  ir::Graph& graph() { return graph_; }
  const ir::Graph& graph() const { return graph_; }
  ops::MetadataPropagator& metadata() { return metadata_; }
  const ops::MetadataPropagator& metadata() const { return metadata_; }
  bool has_inputs() const { return inputs_ != nullptr; }
  Inputs& inputs() { return *inputs_; }
  SourceLines& lines() { return lines_; }
  const SourceLines& lines() const { return lines_; }

  ir::Phase phase() const { return phase_; }
  void set_phase(ir::Phase phase) { phase_ = phase; }

  /// A traced tensor for a value of the graph.
  at::Tensor wrap(ir::ValueId value, const ops::TensorMeta& meta);
  /// A traced tensor for a new input of the graph, with the metadata of `like`.
  at::Tensor add_input(const at::Tensor& like, ir::Descriptor role, std::string name);

  /// What the backward has recorded, and the autograd node that was running, or whose hooks were.
  struct BackwardNode {
    ir::NodeId node = ir::kNoNode;
    const torch::autograd::Node* in = nullptr;
    bool by_hook = false;
  };
  void note_backward_node(ir::NodeId node);
  /// Those that are gone included.
  const std::vector<BackwardNode>& backward_nodes() const { return backward_nodes_; }
  /// The node whose hooks may be running; null: none's.
  void set_hooked_node(const torch::autograd::Node* node) { hooked_node_ = node; }

  /// An op that the function itself calls, in the grad mode of that moment: what the graph shows of
  /// neither a no-grad region nor a detach().
  void note_call(const c10::OperatorHandle& op);
  /// Of the calls since `forget_calls`.
  uint64_t calls_hash() const { return calls_.value(); }
  void forget_calls() {
    calls_ = {};
    user_calls_.clear();
  }

  /// The same call, with what it is told: outside of the backward.
  void note_user_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> operands);
  const std::vector<UserCall>& user_calls() const { return user_calls_; }

  /// An op of the function is under way that writes a traced tensor.
  bool is_writing() const { return writing_; }
  void set_writing(bool writing) { writing_ = writing; }

  /// Functionalization has asked for the metadata of a product in place by a number, and calls the
  /// out-of-place form next.
  bool multiplies_in_place() const { return multiplies_in_place_; }
  void set_multiplies_in_place(bool multiplies) { multiplies_in_place_ = multiplies; }
  /// Whether some tensor has been a lazy conjugate or negation so far.
  bool has_lazy_values() const { return has_lazy_values_; }

  /// Null: an op whose results have sizes that depend on data is refused.
  const std::shared_ptr<DataSizes>& data_sizes() const { return data_sizes_; }
  /// They may depend on data, and are what the run with this number draws.
  void draw_data_sizes(size_t run) { data_sizes_ = std::make_shared<DataSizes>(run, lines_); }

  /// Forgets every node after `last` (kNoNode: all of them). For a backward that raised half-way.
  void rewind(ir::NodeId last);

 private:
  uint64_t id_;
  Inputs* const inputs_;
  ir::Graph graph_;
  ops::MetadataPropagator metadata_;
  ir::Phase phase_ = ir::Phase::Forward;
  bool writing_ = false;
  shapes::StableHash calls_;
  std::vector<UserCall> user_calls_;
  bool multiplies_in_place_ = false;
  bool has_lazy_values_ = false;
  std::vector<BackwardNode> backward_nodes_;
  const torch::autograd::Node* hooked_node_ = nullptr;
  SourceLines lines_;
  std::shared_ptr<DataSizes> data_sizes_;
};

/// The recording of the trace that runs on this thread; null if none does. libtorch hands its
/// fallbacks no context, so this is the one place where Tandem must find it by thread.
Recording* current_recording();

/// Makes `recording` the current one for a scope.
class RecordingScope {
 public:
  explicit RecordingScope(Recording* recording);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  Recording* previous_;
};

}  // namespace tandem::tracing
