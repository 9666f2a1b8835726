#include "joint/gradients/gradient_origins.h"

#include "libtorch/node_names.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>

namespace tandem::joint {
namespace {

namespace autograd = torch::autograd;

struct NoteDefined : autograd::FunctionPostHook {
  NoteDefined(bool& has_run, std::vector<bool>& defined) : has_run(has_run), defined(defined) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients,
                                     const autograd::variable_list&) override {
    has_run = true;
    defined.clear();
    for (const at::Tensor& gradient : gradients) defined.push_back(gradient.defined());
    return gradients;
  }

  bool& has_run;
  std::vector<bool>& defined;
};

}  // namespace

GradientOrigins::GradientOrigins(std::span<const autograd::Edge> roots,
                                 std::span<const autograd::Edge> stops)
    : roots_(roots.begin(), roots.end()) {
  for (const autograd::Edge& stop : stops) stops_.push_back({stop.function.get(), stop.input_nr});
  if (roots.size() < 2) return;  // one root: what the engine brings is what arrives
  std::unordered_set<autograd::Node*> nodes;
  std::vector<autograd::Node*> open;
  for (const autograd::Edge& root : roots) open.push_back(root.function.get());
  bool any_custom = false;
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !nodes.insert(node).second) continue;
    any_custom = any_custom || libtorch::is_custom_function(*node);
    for (const autograd::Edge& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  if (!any_custom) return;
  for (autograd::Node* node : nodes) {
    Seen& seen = seen_[node];
    seen.is_custom = libtorch::is_custom_function(*node);
    seen.hook = node->add_post_hook(std::make_unique<NoteDefined>(seen.has_run, seen.defined));
  }
}

GradientOrigins::~GradientOrigins() {
  for (auto& [node, seen] : seen_) node->del_post_hook(seen.hook);
}

std::vector<bool> GradientOrigins::of(const autograd::Edge& edge) const {
  std::vector<bool> from;
  for (const autograd::Edge& root : roots_) from.push_back(arrives(root, edge));
  return from;
}

/// The engine calls every node on the way, also with nothing but undefined gradients: libtorch's
/// own nodes then return undefined ones, a custom function's backward runs on zeros.
bool GradientOrigins::arrives(const autograd::Edge& root, const autograd::Edge& wanted) const {
  const Slot target{wanted.function.get(), wanted.input_nr};
  enum class State : uint8_t { Reached, Active };
  std::map<autograd::Node*, State> states;
  std::vector<autograd::Node*> open;
  bool found = false;
  const auto bring = [&](const autograd::Edge& edge, bool defined) {
    const Slot slot{edge.function.get(), edge.input_nr};
    found = found || (defined && slot == target);
    if (std::ranges::find(stops_, slot) != stops_.end()) defined = false;
    const State state = defined ? State::Active : State::Reached;
    const auto [it, is_new] = states.try_emplace(slot.node, state);
    if (!is_new && it->second >= state) return;
    it->second = state;
    open.push_back(slot.node);
  };
  bring(root, true);
  while (!open.empty() && !found) {
    autograd::Node* node = open.back();
    open.pop_back();
    const auto at = seen_.find(node);
    const Seen* seen = at == seen_.end() ? nullptr : &at->second;
    for (uint32_t i = 0; i < node->num_outputs(); ++i) {
      const autograd::Edge& edge = node->next_edge(i);
      if (!edge.is_valid()) continue;
      bool defined = (seen && seen->is_custom) || states.at(node) == State::Active;
      if (seen && seen->has_run) defined = defined && i < seen->defined.size() && seen->defined[i];
      bring(edge, defined);
    }
  }
  return found;
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
