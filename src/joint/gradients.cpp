#include "joint/gradients.h"

#include "base/error.h"
#include "joint/arrivals.h"
#include "tandem/error.h"
#include "tracing/ambient.h"
#include "tracing/traced_tensor.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <optional>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;

/// Autocast off for a scope. A backward runs after the program has left its autocast region, as
/// libtorch advises; what was computed in float32 there keeps its float32 formulas.
class WithoutAutocast {
 public:
  WithoutAutocast() : before_(tracing::ThreadSwitches::now()) {
    tracing::ThreadSwitches off = before_;
    off.cpu_autocast = off.cuda_autocast = false;
    off.restore();
  }
  ~WithoutAutocast() { before_.restore(); }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  tracing::ThreadSwitches before_;
};

std::vector<at::Tensor> run_engine(tracing::Recording& recording, const Differentiation& task,
                                   bool with_history = false) {
  recording.lines().set_outermost(__builtin_frame_address(0));
  // With a history they are results of a call of their own, made in the state of the backward.
  std::optional<WithoutAutocast> without_autocast;
  if (!with_history) without_autocast.emplace();
  // The graph is kept: a retry after an error walks it again.
  std::vector<at::Tensor> gradients =
      autograd::Engine::get_default_engine().execute(task.roots, task.tangents,
                                                     /*keep_graph=*/true,
                                                     /*create_graph=*/with_history,
                                                     /*accumulate_grad=*/false, task.wanted);
  for (at::Tensor& gradient : gradients) {
    // A custom backward may return memory that it made with torch::empty and filled.
    if (gradient.defined() && !tracing::is_traced(gradient))
      gradient = recording.stand_in(gradient);
  }
  return gradients;
}

}  // namespace

bool wants_gradient(const tracing::StandIn& stand_in) {
  return stand_in.requires_grad && stand_in.duplicate_of < 0 && stand_in.edge.is_valid();
}

Gradients differentiate(tracing::Recording& recording, const Differentiation& task) {
  Gradients gradients;
  gradients.values.resize(task.wanted.size());
  gradients.raises.resize(task.roots.size());
  if (task.roots.empty() || task.wanted.empty()) return gradients;

  const ir::NodeId mark = recording.graph().last_node();
  try {
    gradients.values = run_engine(recording, task);
    gradients.effects = reached_effects(recording, mark, task.roots);
    return gradients;
  } catch (const Error&) {
    throw;  // our own refusals are not eager's
  } catch (const c10::Error&) {
    recording.rewind(mark);
  }
  Differentiation good{.wanted = task.wanted};
  for (size_t i = 0; i < task.roots.size(); ++i) {
    Differentiation alone{{task.roots[i]}, {task.tangents[i]}, task.wanted};
    try {
      run_engine(recording, alone);
      good.roots.push_back(task.roots[i]);
      good.tangents.push_back(task.tangents[i]);
    } catch (const Error&) {
      throw;
    } catch (const c10::Error& error) {
      gradients.raises[i] = error.what_without_backtrace();
    }
    recording.rewind(mark);
  }
  if (!good.roots.empty()) gradients.values = run_engine(recording, good);
  gradients.effects = reached_effects(recording, mark, task.roots);
  return gradients;
}

std::vector<at::Tensor> differentiate_with_history(tracing::Recording& recording,
                                                   const Differentiation& task) {
  if (task.roots.empty() || task.wanted.empty()) return {task.wanted.size(), at::Tensor()};
  return run_engine(recording, task, /*with_history=*/true);
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
