#include "joint/gradients/gradients.h"

#include "base/error.h"
#include "joint/gradients/marks.h"
#include "libtorch/thread_state.h"
#include "ops/op_table.h"
#include "ops/own/inputs_in_backward.h"
#include "tandem/error.h"
#include "tracing/gradients/trace_engine.h"
#include "tracing/inputs/inputs.h"
#include "tracing/recording/traced_tensor.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <map>
#include <optional>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;

std::vector<at::Tensor> run_engine(tracing::Recording& recording, const Differentiation& task,
                                   bool in_backward = false) {
  recording.lines().set_outermost(__builtin_frame_address(0));
  // In a backward the gradients are results of a call of their own, computed in its state.
  // Otherwise autocast is off: a backward runs after the program has left its autocast region, as
  // libtorch advises. What was computed in float32 in the region keeps its float32 formulas.
  std::optional<libtorch::ThreadStateScope> without_autocast;
  if (!in_backward) without_autocast.emplace(libtorch::ThreadState::now().with_autocast({}));
  const bool with_history = in_backward && c10::GradMode::is_enabled();
  if (task.origins) task.origins->begin(task.roots);
  if (task.formulas) task.formulas->begin();
  // The graph is kept: a retry after an error walks it again.
  const tracing::DataSizes::UsersCode running(recording.data_sizes().get());
  std::vector<at::Tensor> gradients =
      tracing::engine_behind().execute(task.roots, task.tangents,
                                       /*keep_graph=*/true,
                                       /*create_graph=*/with_history,
                                       /*accumulate_grad=*/false, task.wanted);
  if (task.formulas) task.formulas->end();
  for (at::Tensor& gradient : gradients) {
    // A custom backward may return memory that it made with torch::empty and filled.
    if (gradient.defined() && !tracing::is_traced(gradient))
      gradient = recording.inputs().stand_in(gradient);
  }
  return gradients;
}

/// Beyond this many targets, those that raise are not told apart: each trial is a run of the
/// engine.
constexpr size_t kMostTrials = 64;

/// Runs of the engine for their errors only.
class Trial {
 public:
  Trial(tracing::Recording& recording, ir::NodeId mark, const Differentiation& task)
      : recording_(recording), mark_(mark), task_(task) {}

  /// What the engine raises on the way from one root to the chosen edges; empty: nothing.
  std::string text_of(size_t root, const std::vector<bool>& chosen) const {
    Differentiation part{
        {task_.roots[root]}, {task_.tangents[root]}, {}, task_.origins, task_.formulas};
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i]) part.wanted.push_back(task_.wanted[i]);
    }
    std::string text;
    try {
      run_engine(recording_, part);
    } catch (const Error&) {
      throw;
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    }
    recording_.rewind(mark_);
    return text;
  }

  /// Which of the chosen edges raise when they are asked for alone. All together are known to
  /// raise.
  void find_raising(size_t root, const std::vector<bool>& chosen,
                    std::vector<bool>& raising) const {
    const auto count = static_cast<size_t>(std::ranges::count(chosen, true));
    if (count < 2 || task_.wanted.size() > kMostTrials) {
      for (size_t i = 0; i < chosen.size(); ++i) raising[i] = raising[i] || chosen[i];
      return;
    }
    std::vector<bool> first(chosen.size()), second(chosen.size());
    size_t seen = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i]) (seen++ < count / 2 ? first : second)[i] = true;
    }
    for (const std::vector<bool>& half : {first, second}) {
      if (!text_of(root, half).empty()) find_raising(root, half, raising);
    }
  }

  /// Whether some root raises for some edges and not for others.
  bool is_divided(const Gradients& gradients) const {
    return std::ranges::any_of(gradients.raises_in, [&](const std::vector<bool>& one) {
      const auto count = std::ranges::count(one, true);
      return count > 0 && static_cast<size_t>(count) < one.size();
    });
  }

 private:
  tracing::Recording& recording_;
  const ir::NodeId mark_;
  const Differentiation& task_;
};

/// Of the run that is over.
void note_origins(const Differentiation& task, size_t wanted, Gradients& gradients) {
  if (task.origins) gradients.origins[wanted] = task.origins->of(task.wanted[wanted]);
}

/// Computes the gradient of each edge from the roots that do not raise on the way to it. Edges with
/// the same roots share a run.
void differentiate_what_does_not_raise(tracing::Recording& recording, const Differentiation& task,
                                       Gradients& gradients) {
  std::map<std::vector<bool>, std::vector<size_t>> edges_by_roots;
  for (size_t i = 0; i < task.wanted.size(); ++i) {
    std::vector<bool> roots;
    for (const std::vector<bool>& raises : gradients.raises_in) roots.push_back(!raises[i]);
    edges_by_roots[std::move(roots)].push_back(i);
  }
  for (const auto& [roots, edges] : edges_by_roots) {
    Differentiation part{.origins = task.origins, .formulas = task.formulas};
    for (size_t i = 0; i < roots.size(); ++i) {
      if (!roots[i]) continue;
      part.roots.push_back(task.roots[i]);
      part.tangents.push_back(task.tangents[i]);
    }
    if (part.roots.empty()) continue;
    for (size_t i : edges) part.wanted.push_back(task.wanted[i]);
    const std::vector<at::Tensor> values = run_engine(recording, part);
    for (size_t i = 0; i < edges.size(); ++i) {
      gradients.values[edges[i]] = values[i];
      note_origins(task, edges[i], gradients);
    }
  }
}

/// Whether something was recorded after the mark that must happen as often as eager does it.
bool has_happened(const ir::Graph& graph, ir::NodeId mark) {
  for (ir::NodeId id = following(graph, mark); id != ir::kNoNode; id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (node.kind() == ir::NodeKind::Op &&
        (ops::info(node.op()).must_happen() || ops::kWritten.is(node)))
      return true;
  }
  return false;
}

}  // namespace

bool wants_gradient(const tracing::StandIn& stand_in) {
  return stand_in.requires_grad && stand_in.duplicate_of < 0 &&
         tracing::unwritten_history(stand_in).is_valid();
}

Gradients differentiate(tracing::Recording& recording, const Differentiation& task) {
  Gradients gradients;
  gradients.values.resize(task.wanted.size());
  gradients.raises.resize(task.roots.size());
  gradients.origins.resize(task.wanted.size());
  if (task.roots.empty() || task.wanted.empty()) return gradients;

  const ir::NodeId mark = recording.graph().last_node();
  try {
    gradients.values = run_engine(recording, task);
    for (size_t i = 0; i < task.wanted.size(); ++i) note_origins(task, i, gradients);
    return gradients;
  } catch (const Error&) {
    throw;  // our own refusals are not eager's
  } catch (const c10::Error&) {
    recording.rewind(mark);
  }
  const Trial trial(recording, mark, task);
  std::vector<bool> all(task.wanted.size(), true);
  for (size_t i = 0; i < task.roots.size(); ++i) {
    gradients.raises[i] = trial.text_of(i, all);
    gradients.raises_in.emplace_back(task.wanted.size());
    if (!gradients.raises[i].empty()) trial.find_raising(i, all, gradients.raises_in[i]);
  }
  differentiate_what_does_not_raise(recording, task, gradients);
  if (trial.is_divided(gradients) && has_happened(recording.graph(), mark)) {
    // In several runs of the engine, formulas that draw or write would do so several times.
    recording.rewind(mark);
    for (std::vector<bool>& one : gradients.raises_in) {
      if (std::ranges::count(one, true) > 0) one = all;
    }
    differentiate_what_does_not_raise(recording, task, gradients);
  }
  return gradients;
}

std::vector<at::Tensor> differentiate_in_backward(tracing::Recording& recording,
                                                  const Differentiation& task) {
  if (task.roots.empty() || task.wanted.empty()) return {task.wanted.size(), at::Tensor()};
  return run_engine(recording, task, /*in_backward=*/true);
}

void drop_independent(const ir::Graph& graph, std::span<const ir::ValueId> tangents,
                      std::vector<ir::ValueId>& gradients) {
  const std::vector<bool> depends = depends_on(graph, tangents, gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!depends[i]) gradients[i] = ir::kNoValue;
  }
}

void check_nothing_lifted(const tracing::Trace& trace, size_t inputs_before) {
  if (trace.stand_ins().size() == inputs_before) return;
  TANDEM_UNSUPPORTED(
      "joint", "the backward (a hook or custom function) closes over ",
      trace.name_of(trace.stand_ins().back()), ", which the forward never used",
      "\n  remedy: use the tensor in the forward, or save it with save_for_backward");
}

}  // namespace tandem::joint
