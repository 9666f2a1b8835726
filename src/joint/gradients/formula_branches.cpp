#include "joint/gradients/formula_branches.h"

#include "base/error.h"
#include "joint/gradients/marks.h"
#include "ops/op_table.h"
#include "tandem/error.h"
#include "tracing/inputs/stand_in.h"
#include "tracing/recording/traced_tensor.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;

/// Gradients that come from the same roots are there together. Beyond this many kinds there are too
/// many branches.
constexpr size_t kMostKinds = 4;

/// By kind: whether gradients of that kind are there.
using Present = std::vector<bool>;

struct Branch {
  RootSet most;  // of all the backwards that take the branch, the one from the most roots
  autograd::variable_list outputs{};
  std::string error{};  // what the formula raises here

  bool gives(size_t output) const { return !error.empty() || outputs[output].defined(); }
};

class Recorder {
 public:
  Recorder(const FormulaBranches& formula, const autograd::variable_list& gradients,
           const autograd::variable_list& outputs)
      : formula_(formula),
        graph_(formula.trace.recording().graph()),
        gradients_(gradients),
        outputs_(outputs) {
    for (const RootSet& from : formula.entered) {
      if (any(from) && std::ranges::find(kinds_, from) == kinds_.end()) kinds_.push_back(from);
    }
  }

  bool has_too_many() const { return kinds_.size() > kMostKinds; }

  /// False if a branch of a formula of libtorch cannot be recorded.
  bool record() {
    check_nothing_happened(formula_.writes_before, formula_.before);
    const Present all(kinds_.size(), true);
    branches_[all] = {.most = formula_.reached, .outputs = outputs_};
    for (size_t number = 0; number + 1 < (size_t{1} << kinds_.size()); ++number) {
      Present present;
      for (size_t kind = 0; kind < kinds_.size(); ++kind) present.push_back(number >> kind & 1);
      RootSet most = formula_.reached;
      for (size_t kind = 0; kind < kinds_.size(); ++kind) {
        if (!present[kind]) most = without(std::move(most), kinds_[kind]);
      }
      if (can_happen(present, most) && !run(present, std::move(most))) return false;
    }
    return true;
  }

  /// The roots from which a result arrives; nullopt if it is more than one of them alone that
  /// decides.
  std::optional<RootSet> origins_of(size_t output) const {
    RootSet from(formula_.reached.size());
    for (size_t root = 0; root < from.size(); ++root) {
      if (!formula_.reached[root]) continue;
      Present present;
      for (const RootSet& kind : kinds_) present.push_back(kind[root]);
      const auto branch = branches_.find(present);
      from[root] = branch != branches_.end() && branch->second.gives(output);
    }
    for (const auto& [present, branch] : branches_) {
      // Wherever the branch is taken, one of these roots takes part; or nowhere.
      const RootSet others = without(branch.most, from);
      if (branch.gives(output) ? can_happen(present, others) : meet(branch.most, from))
        return std::nullopt;
    }
    return from;
  }

  at::Tensor choice(size_t output) const { return choice(output, {}); }

 private:
  /// Whether a backward from some of the roots has gradients of just these kinds.
  bool can_happen(const Present& present, const RootSet& roots) const {
    if (!any(roots)) return false;
    bool none = true;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (present[kind] && !meet(kinds_[kind], roots)) return false;
      none = none && !present[kind];
    }
    // libtorch's own formulas do not run on nothing.
    return formula_.is_custom || !none;
  }

  bool run(const Present& present, RootSet most) {
    autograd::variable_list gradients = gradients_;
    for (size_t i = 0; i < gradients.size() && i < formula_.entered.size(); ++i) {
      const auto kind = std::ranges::find(kinds_, formula_.entered[i]) - kinds_.begin();
      if (static_cast<size_t>(kind) < kinds_.size() && !present[static_cast<size_t>(kind)])
        gradients[i] = at::Tensor();
    }
    Branch branch{.most = std::move(most)};
    tracing::Recording& recording = formula_.trace.recording();
    const ir::NodeId last = graph_.last_node();
    const uint64_t writes = formula_.is_custom ? writes_to_inputs(formula_.trace) : 0;
    try {
      branch.outputs = formula_.node(std::move(gradients));
      autograd::validate_outputs(formula_.node.next_edges(), branch.outputs,
                                 [&](const std::string& text) { return text; });
      branch.outputs.resize(outputs_.size());
    } catch (const Error&) {
      if (formula_.is_custom) throw;
      recording.rewind(last);
      return false;
    } catch (const c10::Error& error) {
      branch.error = error.what_without_backtrace();
    }
    check_nothing_happened(writes, last);
    if (!branch.error.empty()) recording.rewind(last);
    branches_[present] = std::move(branch);
    return true;
  }

  /// A branch is recorded beside the others; draws, effects and writes of inputs cannot be chosen.
  void check_nothing_happened(uint64_t writes, ir::NodeId last) const {
    bool happened = formula_.is_custom && writes != writes_to_inputs(formula_.trace);
    for (ir::NodeId id = following(graph_, last); id != ir::kNoNode; id = graph_.next(id)) {
      const ir::Node& node = graph_.node(id);
      happened =
          happened || (node.kind() == ir::NodeKind::Op && ops::info(node.op()).must_happen());
    }
    if (!happened) return;
    TANDEM_UNSUPPORTED("joint", "the backward of ", formula_.node.name(),
                       ", which sees which of its gradients are defined, draws random numbers, has "
                       "an effect or writes an input",
                       "\n  remedy: leave set_materialize_grads on, so that it gets zeros");
  }

  /// A tree of choices, kind by kind.
  at::Tensor choice(size_t output, Present present) const {
    const size_t kind = present.size();
    if (kind == kinds_.size()) return value_of(present, output);
    Present absent = present;
    present.push_back(true);
    absent.push_back(false);
    at::Tensor gradient = choice(output, std::move(present));
    at::Tensor otherwise = choice(output, std::move(absent));
    if (!otherwise.defined()) return gradient;
    if (!gradient.defined()) return otherwise;
    gradient = gradient.resolve_conj().resolve_neg();
    otherwise = with_strides_of(gradient, otherwise.resolve_conj().resolve_neg());
    const ir::ValueId chosen_value =
        add_either(graph_, tracing::current_value(gradient), tracing::current_value(otherwise),
                   chosen(formula_.tangents, kinds_[kind]));
    return tracing::make_functional(formula_.trace.recording(), chosen_value, gradient);
  }

  at::Tensor value_of(const Present& present, size_t output) const {
    const auto branch = branches_.find(present);
    if (branch == branches_.end()) return {};
    if (branch->second.error.empty()) {
      const at::Tensor& value = branch->second.outputs[output];
      return value.defined() ? as_traced_tensor(formula_.trace, value) : value;
    }
    if (!outputs_[output].defined()) return {};
    const at::Tensor like = as_traced_tensor(formula_.trace, outputs_[output]);
    return tracing::make_functional(
        formula_.trace.recording(),
        add_raises(graph_, tracing::current_value(like), branch->second.error), like);
  }

  const FormulaBranches& formula_;
  ir::Graph& graph_;
  const autograd::variable_list& gradients_;
  const autograd::variable_list& outputs_;
  std::vector<RootSet> kinds_;
  std::map<Present, Branch> branches_;
};

}  // namespace

bool record_branches(const FormulaBranches& formula, const autograd::variable_list& gradients,
                     autograd::variable_list& outputs, std::vector<RootSet>& from) {
  const autograd::variable_list all = outputs;
  Recorder recorder(formula, gradients, all);
  const auto give_up = [&] {
    if (formula.is_custom) {
      TANDEM_UNSUPPORTED("joint", "the backward of ", formula.node.name(),
                         ", which sees which of its gradients are defined, has too many branches, "
                         "or gives a gradient only if several of its own are defined",
                         "\n  remedy: leave set_materialize_grads on, so that it gets zeros");
    }
    return false;
  };
  if (recorder.has_too_many() || !recorder.record()) return give_up();
  std::vector<RootSet> origins;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::optional<RootSet> one = recorder.origins_of(i);
    if (!one) return give_up();
    origins.push_back(std::move(*one));
  }
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = recorder.choice(i);
  from = std::move(origins);
  return true;
}

}  // namespace tandem::joint
