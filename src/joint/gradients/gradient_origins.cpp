#include "joint/gradients/gradient_origins.h"

#include "base/error.h"
#include "joint/gradients/formula_branches.h"
#include "joint/gradients/linear_formula.h"
#include "joint/gradients/marks.h"
#include "libtorch/node_names.h"
#include "ops/own/arrives.h"
#include "tandem/error.h"
#include "tracing/inputs/stand_in.h"
#include "tracing/recording/traced_tensor.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace tandem::joint {
namespace {

/// libtorch's formulas are linear in their gradients. But zeros stay zeros only until they are
/// divided by one, and a formula of several gradients skips such a term if its gradient is not
/// there.
bool may_divide(const ir::Node& node) {
  if (node.kind() != ir::NodeKind::Op) return false;
  constexpr std::string_view kOps[] = {"aten::div", "aten::reciprocal", "aten::rsqrt", "aten::pow",
                                       "aten::linalg_solve"};
  return std::ranges::any_of(
      kOps, [&](std::string_view op) { return node.op().operator_name().name.starts_with(op); });
}

}  // namespace

namespace autograd = torch::autograd;

struct GradientOrigins::Enter : autograd::FunctionPreHook {
  Enter(GradientOrigins& origins, Visit& visit) : origins(origins), visit(visit) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    return origins.enter(visit, gradients);
  }
  GradientOrigins& origins;
  Visit& visit;
};

struct GradientOrigins::Leave : autograd::FunctionPostHook {
  Leave(GradientOrigins& origins, Visit& visit) : origins(origins), visit(visit) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& inputs) override {
    return origins.leave(visit, outputs, inputs);
  }
  GradientOrigins& origins;
  Visit& visit;
};

GradientOrigins::GradientOrigins(tracing::Trace& trace, Watched watched, Parts& parts)
    : trace_(trace),
      graph_(trace.recording().graph()),
      watched_(std::move(watched)),
      roots_(watched_.roots),
      tangents_(watched_.tangents),
      parts_(parts),
      none_(roots_.size()) {
  // From one root comes everything that is there, unless a stop keeps it back.
  if (roots_.size() < 2 && watched_.parts < 2 && watched_.stops.empty()) return;
  std::vector<autograd::Node*> open;
  for (const autograd::Edge& root : roots_) open.push_back(root.function.get());
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || visits_.contains(node)) continue;
    watch(visits_[node] = {.node = node});
    for (const autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
}

GradientOrigins::RunTwice GradientOrigins::run_twice() const {
  if (not_linear_.empty()) return {};
  std::vector<const autograd::Node*> open;
  for (const autograd::Edge& edge : watched_.passed) {
    if (any(of(edge))) open.push_back(edge.function.get());
  }
  std::unordered_set<const autograd::Node*> seen;
  while (!open.empty()) {
    const autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto found = not_linear_.find(node); found != not_linear_.end())
      return {found->first, found->second};
    for (const autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return {};
}

void GradientOrigins::watch(Visit& visit) {
  // The engine captures at the ends and runs none of them; an accumulator may be the caller's own.
  if (visit.node->num_outputs() == 0) return;
  visit.is_custom = libtorch::is_custom_function(*visit.node);
  visit.materializes = visit.is_custom && libtorch::materializes_gradients(*visit.node);
  auto hook = std::make_unique<Enter>(*this, visit);
  visit.enter = hook.get();
  visit.node->add_pre_hook(std::move(hook));
  visit.leave = visit.node->add_post_hook(std::make_unique<Leave>(*this, visit));
}

GradientOrigins::~GradientOrigins() {
  for (auto& [node, visit] : visits_) {
    if (visit.enter == nullptr) continue;
    std::erase_if(node->pre_hooks(), [&](const auto& hook) { return hook.get() == visit.enter; });
    node->del_post_hook(visit.leave);
  }
}

void GradientOrigins::begin(std::span<const autograd::Edge> roots) {
  for (auto& [node, visit] : visits_) {
    visit.reached = none_;
    visit.slots.clear();
  }
  depends_.clear();
  caught_up_ = left_ = graph_.last_node();
  for (size_t i = 0; i < roots_.size(); ++i) {
    RootSet& own = depends_[tangents_[i]];
    own = none_;
    own[i] = true;
    if (std::ranges::find(roots, roots_[i]) == roots.end()) continue;
    const auto found = visits_.find(roots_[i].function.get());
    if (found == visits_.end()) continue;
    Visit& visit = found->second;
    if (visit.slots.size() <= roots_[i].input_nr) visit.slots.resize(roots_[i].input_nr + 1, none_);
    add(visit.slots[roots_[i].input_nr], own);
    add(visit.reached, own);
  }
}

RootSet GradientOrigins::of(const autograd::Edge& edge) const {
  if (visits_.empty()) return RootSet(roots_.size(), true);
  const auto found = visits_.find(edge.function.get());
  if (found == visits_.end() || found->second.slots.size() <= edge.input_nr) return none_;
  return found->second.slots[edge.input_nr];
}

bool GradientOrigins::is_stop(const autograd::Edge& edge) const {
  return std::ranges::find(watched_.stops, edge) != watched_.stops.end();
}

/// Eager calls a tensor's hooks as soon as the engine gets to its node, also for a gradient that is
/// not there. They may raise then, or make one.
void GradientOrigins::show_hooks_what_is_missing(Visit& visit, autograd::variable_list& passed) {
  for (const auto& hook : visit.node->tensor_pre_hooks()) {
    const std::optional<size_t> of_tensor = libtorch::gradient_of_hook(*hook);
    if (!of_tensor || *of_tensor >= passed.size()) continue;
    const size_t i = *of_tensor;
    if (!passed[i].defined() || visit.entered[i] == visit.reached) continue;
    const at::Tensor gradient = as_traced_tensor(trace_, passed[i]);
    const ir::ValueId value = tracing::current_value(gradient);
    const ir::NodeId last = graph_.last_node();
    const uint64_t writes = writes_to_inputs(trace_);
    ir::ValueId otherwise = ir::kNoValue;
    try {
      const at::Tensor made = (*hook)(autograd::variable_list(passed.size()))[i];
      if (writes != writes_to_inputs(trace_)) {
        TANDEM_UNSUPPORTED("joint", "a hook on a result of ", visit.node->name(),
                           ", which sees whether its gradient is there, writes an input",
                           "\n  remedy: write it in a custom function, which gets zeros");
      }
      if (!made.defined()) continue;
      otherwise = tracing::current_value(
          with_strides_of(gradient, as_traced_tensor(trace_, made).resolve_conj().resolve_neg()));
    } catch (const Error&) {
      throw;
    } catch (const c10::Error& error) {
      trace_.recording().rewind(last);
      otherwise = add_raises(graph_, value, error.what_without_backtrace());
    }
    const ir::ValueId choice =
        add_either(graph_, value, otherwise, chosen(tangents_, visit.entered[i]));
    visit.entered[i] = visit.reached;
    passed[i] = tracing::make_functional(
        trace_.recording(), add_arrives(graph_, choice, chosen(tangents_, visit.reached)),
        gradient);
  }
}

autograd::variable_list GradientOrigins::enter(Visit& visit,
                                               const autograd::variable_list& gradients) {
  autograd::variable_list passed = gradients;
  visit.entered.assign(gradients.size(), none_);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const bool was_brought = i < visit.slots.size() && any(visit.slots[i]);
    // Otherwise a hook has made it.
    visit.entered[i] = was_brought ? visit.slots[i] : visit.reached;
  }
  if (!watched_.marks) return passed;
  if (!visit.node->tensor_pre_hooks().empty()) check_runs_once(visit, left_, passed);
  show_hooks_what_is_missing(visit, passed);
  for (size_t i = 0; i < passed.size(); ++i) {
    if (!passed[i].defined() || !visit.materializes) continue;
    const RootSet& from = visit.entered[i];
    const at::Tensor gradient = as_traced_tensor(trace_, passed[i]);
    ir::ValueId value = tracing::current_value(gradient);
    if (from == visit.reached && from == depends(value)) continue;
    if (from != visit.reached)
      value = add_either(graph_, value, ir::kNoValue, chosen(tangents_, from));
    passed[i] = tracing::make_functional(
        trace_.recording(), add_arrives(graph_, value, chosen(tangents_, visit.reached)), gradient);
  }
  visit.before = graph_.last_node();
  if (visit.is_custom && !visit.materializes) visit.writes = writes_to_inputs(trace_);
  return passed;
}

/// Whether the formula may take another branch where some of its gradients are not there.
bool GradientOrigins::looks_at_what_is_defined(const Visit& visit) const {
  if (visit.materializes) return false;
  const RootSet* one = nullptr;
  bool differ = false;
  for (const RootSet& from : visit.entered) {
    if (!any(from)) continue;
    if (visit.is_custom && from != visit.reached) return true;
    differ = differ || (one != nullptr && *one != from);
    one = &from;
  }
  if (!differ || libtorch::is_formula_of_formula(*visit.node)) return false;
  for (ir::NodeId id = following(graph_, visit.before); id != ir::kNoNode; id = graph_.next(id)) {
    if (may_divide(graph_.node(id))) return true;
  }
  return false;
}

autograd::variable_list GradientOrigins::leave(Visit& visit, const autograd::variable_list& outputs,
                                               const autograd::variable_list& inputs) {
  autograd::variable_list found = outputs;
  RootSet arrived = none_;
  for (const RootSet& from : visit.entered) add(arrived, from);
  // A custom function's backward runs with zeros where nothing arrives, and gives gradients.
  if (visit.is_custom || !any(arrived)) arrived = visit.reached;
  if (visit.is_custom && watched_.marks) check_runs_once(visit, visit.before, found);
  // Behind a stop: eager does not come here with this part of the backward.
  if (!any(arrived)) std::ranges::fill(found, at::Tensor());
  std::vector<RootSet> from(found.size(), arrived);
  if (!watched_.marks) {
    pass_on(visit, found, from);
    return found;
  }
  bool has_branches = false;
  if (any(arrived) && looks_at_what_is_defined(visit)) {
    const FormulaBranches formula{.trace = trace_,
                                  .node = *visit.node,
                                  .is_custom = visit.is_custom,
                                  .tangents = tangents_,
                                  .reached = visit.reached,
                                  .entered = visit.entered,
                                  .before = visit.before,
                                  .writes_before = visit.writes};
    has_branches = record_branches(formula, inputs, found, from);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) continue;
    const at::Tensor gradient = as_traced_tensor(trace_, found[i]);
    const ir::ValueId value = tracing::current_value(gradient);
    const RootSet& data = depends(value);
    // A branch may be a constant, so what data it depends on says nothing.
    if (!has_branches && (visit.is_custom ? data == from[i] : any(data))) continue;
    found[i] = tracing::make_functional(
        trace_.recording(), add_arrives(graph_, value, chosen(tangents_, from[i])), gradient);
  }
  left_ = graph_.last_node();
  pass_on(visit, found, from);
  return found;
}

/// A formula of the user's that two parts of the backward reach runs in both, where eager runs it
/// once on the sum.
void GradientOrigins::check_runs_once(const Visit& visit, ir::NodeId after,
                                      const autograd::variable_list& results) {
  if (!any(visit.reached)) return;
  const auto [known, is_new] = parts_.try_emplace(visit.node, watched_.part);
  const bool in_two_parts = !is_new && known->second != watched_.part;
  if (!in_two_parts && watched_.passed.empty()) return;
  std::vector<ir::ValueId> values;
  for (const at::Tensor& result : results) {
    if (result.defined())
      values.push_back(tracing::current_value(as_traced_tensor(trace_, result)));
  }
  const auto is_gradient = [&](ir::ValueId value) { return any(depends(value)); };
  // What sees which of its gradients are there is another formula for each of them.
  const bool looks = visit.is_custom && !visit.materializes && visit.entered.size() > 1;
  if (!looks && is_linear(graph_, after, is_gradient, values)) return;
  if (!in_two_parts) return add(not_linear_[visit.node], visit.reached);
  TANDEM_UNSUPPORTED(
      "joint", "the formula of a custom function or hook (of ", visit.node->name(),
      ") is not linear, and both a result and an argument that the function rewrites lead to it",
      "\n  remedy: write the argument outside, or return its new data as a result");
}

void GradientOrigins::pass_on(const Visit& visit, const autograd::variable_list& found,
                              const std::vector<RootSet>& from) {
  for (uint32_t i = 0; i < visit.node->num_outputs(); ++i) {
    const autograd::Edge& edge = visit.node->next_edge(i);
    const auto next = visits_.find(edge.function.get());
    if (!edge.is_valid() || next == visits_.end()) continue;
    if (!is_stop(edge)) add(next->second.reached, visit.reached);
    if (i >= found.size() || !found[i].defined()) continue;
    std::vector<RootSet>& slots = next->second.slots;
    if (slots.size() <= edge.input_nr) slots.resize(edge.input_nr + 1, none_);
    add(slots[edge.input_nr], from[i]);
  }
}

ir::ValueId GradientOrigins::marked(ir::ValueId value, const RootSet& from) {
  if (value == ir::kNoValue || visits_.empty() || !any(from) || depends(value) == from)
    return value;
  return add_arrives(graph_, value, chosen(tangents_, from));
}

const RootSet& GradientOrigins::depends(ir::ValueId value) {
  catch_up();
  const auto found = depends_.find(value);
  return found == depends_.end() ? none_ : found->second;
}

void GradientOrigins::catch_up() {
  for (ir::NodeId id = following(graph_, caught_up_); id != ir::kNoNode; id = graph_.next(id)) {
    caught_up_ = id;
    const ir::Node& node = graph_.node(id);
    RootSet from;
    const auto read = [&](ir::ValueId value) {
      const auto found = depends_.find(value);
      if (found != depends_.end()) add(from, found->second);
    };
    for (size_t i = ops::kArrives.is(node) ? 1 : 0; i < node.operands().size(); ++i)
      node.operands()[i].for_each_value(read);
    if (from.empty()) continue;
    for (ir::ValueId result : node.results()) {
      if (result != ir::kNoValue) depends_[result] = from;
    }
  }
}

std::vector<bool> depends_on(const ir::Graph& graph, std::span<const ir::ValueId> tangents,
                             std::span<const ir::ValueId> values) {
  std::vector<bool> depends(graph.value_limit());
  for (ir::ValueId tangent : tangents) depends[static_cast<size_t>(tangent)] = true;
  graph.for_each_node([&](const ir::Node& node) {
    bool any = false;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        any = any || (id != ir::kNoValue && depends[static_cast<size_t>(id)]);
      });
    }
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue && any) depends[static_cast<size_t>(id)] = true;
    }
  });
  std::vector<bool> found;
  for (ir::ValueId value : values)
    found.push_back(value != ir::kNoValue && depends[static_cast<size_t>(value)]);
  return found;
}

}  // namespace tandem::joint
