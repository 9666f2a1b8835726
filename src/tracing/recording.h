#pragma once

#include "ops/metadata/metadata.h"
#include "tandem/ir/graph.h"
#include "tracing/host_tensors.h"
#include "tracing/lent_histories.h"
#include "tracing/lines/source_lines.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace tandem::tracing {

/// The open list of nodes that the forward and then the backward are written to; `joint` closes it.
class Recording {
 public:
  Recording();

  uint64_t id() const { return id_; }
  ir::Graph& graph() { return graph_; }
  const ir::Graph& graph() const { return graph_; }
  ops::MetadataPropagator& metadata() { return metadata_; }
  const ops::MetadataPropagator& metadata() const { return metadata_; }

  ir::Phase phase() const { return phase_; }
  void set_phase(ir::Phase phase) { phase_ = phase; }

  /// A traced tensor for a value of the graph.
  at::Tensor wrap(ir::ValueId value, const ops::TensorMeta& meta);
  /// A traced tensor for a new input of the graph, with the metadata of `like`.
  at::Tensor add_input(const at::Tensor& like, ir::Descriptor role, std::string name);

  /// What the function shall see in place of a real tensor.
  using StandInOf = std::function<at::Tensor(const at::Tensor&)>;
  void set_stand_in_of(StandInOf stand_in_of) { stand_in_of_ = std::move(stand_in_of); }
  at::Tensor stand_in(const at::Tensor& real) { return stand_in_of_(real); }

  /// The real tensor that a stand-in stands for; null for any other tensor.
  using RealOf = std::function<const at::Tensor*(const at::Tensor&)>;
  void set_real_of(RealOf real_of) { real_of_ = std::move(real_of); }
  const at::Tensor* real_of(const at::Tensor& stand_in) const { return real_of_(stand_in); }

  /// Whether two inputs of the graph hold equal data; remembered, for a guard.
  using CompareInputs = std::function<bool(ir::ValueId, ir::ValueId)>;
  void set_compare_inputs(CompareInputs compare) { compare_inputs_ = std::move(compare); }
  bool compare_inputs(ir::ValueId a, ir::ValueId b) { return compare_inputs_(a, b); }

  /// Runs before each op of the function.
  void set_before_op(std::function<void()> before_op) { before_op_ = std::move(before_op); }
  void before_op() const {
    if (before_op_ && phase_ == ir::Phase::Forward) before_op_();
  }

  /// A draw or an effect of the backward, and the autograd node that was running (null: a hook).
  struct BackwardEffect {
    ir::NodeId node = ir::kNoNode;
    const torch::autograd::Node* in = nullptr;
  };
  void note_effect(BackwardEffect effect) { backward_effects_.push_back(effect); }
  /// Those of nodes that are gone included.
  const std::vector<BackwardEffect>& backward_effects() const { return backward_effects_; }

  /// Runs after each op of the function that has written.
  void set_after_write(std::function<void()> after_write) { after_write_ = std::move(after_write); }
  void after_write() {
    if (!after_write_ || phase_ != ir::Phase::Forward) return;
    after_write_();
    host_tensors_.lend(lent_histories_);
  }
  LentHistories& lent_histories() { return lent_histories_; }

  HostTensors& host_tensors() { return host_tensors_; }
  SourceLines& lines() { return lines_; }
  const SourceLines& lines() const { return lines_; }

  /// An in-place op of the function is under way.
  bool is_writing() const { return writing_; }
  void set_writing(bool writing) { writing_ = writing; }

  /// Forgets every node after `last` (kNoNode: all of them). For a backward that raised half-way.
  void rewind(ir::NodeId last);

 private:
  uint64_t id_;
  ir::Graph graph_;
  ops::MetadataPropagator metadata_;
  ir::Phase phase_ = ir::Phase::Forward;
  bool writing_ = false;
  StandInOf stand_in_of_;
  RealOf real_of_;
  CompareInputs compare_inputs_;
  std::function<void()> before_op_, after_write_;
  LentHistories lent_histories_;
  std::vector<BackwardEffect> backward_effects_;
  HostTensors host_tensors_;
  SourceLines lines_;
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
