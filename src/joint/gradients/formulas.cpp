#include "joint/gradients/formulas.h"

#include "joint/gradients/backward_writes.h"
#include "libtorch/node_names.h"
#include "ops/memory/memory_roots.h"
#include "ops/op_table.h"
#include "ops/own/inputs_in_backward.h"
#include "tracing/recording/traced_tensor.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_set>
#include <utility>

namespace tandem::joint {

namespace autograd = torch::autograd;

namespace {

/// Whether the backward has the value from the forward, and eager would have saved it.
bool is_of_forward(const ir::Graph& graph, ir::ValueId id) {
  const ir::Value& value = graph.value(id);
  if (value.is_input()) return graph.input_role(id).role != ir::Role::Tangent;
  const ir::Node& producer = graph.node(value.producer());
  return producer.phase() == ir::Phase::Forward && producer.kind() != ir::NodeKind::Constant &&
         !ops::kItself.is(producer);
}

/// The tensors of the call that lie in each memory.
std::unordered_map<ir::ValueId, std::vector<ir::CallTensor>> tensors_by_memory(
    const ir::Graph& joint, const std::vector<ir::ValueId>& roots) {
  std::unordered_map<ir::ValueId, std::vector<ir::CallTensor>> tensors;
  for (size_t i = 0; i < joint.inputs().size(); ++i)
    tensors[joint.inputs()[i]].push_back(ir::CallTensor::input(static_cast<int64_t>(i)));
  for (const ir::Output& output : joint.outputs()) {
    if (output.value == ir::kNoValue) continue;
    std::vector<ir::CallTensor>& here = tensors[roots[static_cast<size_t>(output.value)]];
    const int64_t index = output.role.index;
    if (output.role.role == ir::Role::Mutated) here.push_back(ir::CallTensor::input(index));
    if (output.role.role == ir::Role::Output) here.push_back(ir::CallTensor::output(index));
    if (output.role.role == ir::Role::Base) here.push_back(ir::CallTensor::base(index));
  }
  return tensors;
}

/// The end of the way to a leaf that the caller has, which other threads may be at.
bool is_of_caller(const autograd::Node& node) {
  const auto* end = dynamic_cast<const autograd::AccumulateGrad*>(&node);
  return end != nullptr && !tracing::is_traced(end->variable);
}

}  // namespace

int64_t Formulas::of(ir::NodeId node) const {
  const auto found = of_node_.find(node);
  return found == of_node_.end() ? -1 : found->second;
}

bool Formulas::is_in_several_parts(const autograd::Node* node) const {
  return std::ranges::count(nodes_, node) > 1;
}

void Formulas::note_reads(const ir::Graph& joint) {
  const std::vector<ir::ValueId> roots = ops::memory_roots(joint);
  std::vector<std::set<ir::ValueId>> memory(facts_.size());
  joint.for_each_node([&](const ir::Node& node) {
    const int64_t formula = of(node.id());
    if (formula < 0) return;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        if (id != ir::kNoValue && is_of_forward(joint, id))
          memory[static_cast<size_t>(formula)].insert(roots[static_cast<size_t>(id)]);
      });
    }
  });
  const auto tensors = tensors_by_memory(joint, roots);
  for (size_t i = 0; i < facts_.size(); ++i) {
    facts_[i].saves = !memory[i].empty();
    for (ir::ValueId root : memory[i]) {
      const auto found = tensors.find(root);
      if (found == tensors.end()) continue;
      facts_[i].reads.insert(facts_[i].reads.end(), found->second.begin(), found->second.end());
    }
  }
}

std::vector<ir::EffectFacts> Formulas::effects(const ir::Graph& joint) const {
  std::vector<ir::EffectFacts> facts;
  joint.for_each_node([&](const ir::Node& node) {
    if (node.phase() == ir::Phase::Backward && node.kind() == ir::NodeKind::Op &&
        ops::info(node.op()).must_happen())
      facts.push_back({of(node.id())});
  });
  return facts;
}

struct FormulaWatch::Before : autograd::FunctionPreHook {
  explicit Before(std::function<void()> note) : note(std::move(note)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    note();
    return gradients;
  }
  const std::function<void()> note;
};

struct FormulaWatch::After : autograd::FunctionPostHook {
  explicit After(std::function<void()> note) : note(std::move(note)) {}
  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    note();
    return outputs;
  }
  const std::function<void()> note;
};

FormulaWatch::FormulaWatch(tracing::Trace& trace, const Watched& watched, Formulas& formulas,
                           BackwardWrites& writes)
    : trace_(trace),
      formulas_(formulas),
      writes_(writes),
      part_(watched.part),
      recorded_before_(trace.recording().backward_nodes().size()) {
  std::vector<autograd::Node*> open;
  std::unordered_set<autograd::Node*> passed;  // that something flows through
  const auto reach = [&](const autograd::Edge& edge) {
    const int64_t row = add(edge.function.get(), watched.part);
    const bool stops = std::ranges::find(watched.stops, edge) != watched.stops.end();
    if (!stops && passed.insert(edge.function.get()).second) open.push_back(edge.function.get());
    return static_cast<size_t>(row);
  };
  for (size_t i = 0; i < watched.roots.size(); ++i) {
    const size_t row = reach(watched.roots[i]);
    formulas_.facts_[row].tangents.push_back(static_cast<int64_t>(watched.tangents[i]));
  }
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    const auto row = static_cast<size_t>(rows_.at(node));
    for (const autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      const auto next = static_cast<int64_t>(reach(edge));
      std::vector<int64_t>& to = formulas_.facts_[row].next;
      if (std::ranges::count(to, next) == 0) to.push_back(next);
    }
  }
  for (size_t i = 0; i < watched.wanted.size(); ++i) {
    const auto row = rows_.find(watched.wanted[i].function.get());
    if (row != rows_.end()) ends_.emplace_back(row->second, i);
  }
  for (const auto& [node, row] : rows_) follow(const_cast<autograd::Node*>(node), row);
}

int64_t FormulaWatch::add(autograd::Node* node, int64_t part) {
  const auto [known, is_new] =
      rows_.try_emplace(node, static_cast<int64_t>(formulas_.facts_.size()));
  if (!is_new) return known->second;
  formulas_.facts_.push_back({.part = part});
  formulas_.nodes_.push_back(node);
  return known->second;
}

/// libtorch's own formulas write nothing, and what they record says by which node.
void FormulaWatch::follow(autograd::Node* node, int64_t formula) {
  const bool has_hooks = !node->tensor_pre_hooks().empty() || !node->pre_hooks().empty() ||
                         !node->post_hooks().empty();
  if ((!has_hooks && !libtorch::is_custom_function(*node)) || is_of_caller(*node)) return;
  const auto in_hooks = [this](autograd::Node* of) { trace_.recording().set_hooked_node(of); };
  auto enter = std::make_unique<Before>([=, this] { this->enter(node, formula); });
  auto begin = std::make_unique<Before>([=] { in_hooks(nullptr); });
  auto end = std::make_unique<After>([=] { in_hooks(node); });
  auto leave = std::make_unique<After>([=, this] { this->leave(formula); });
  hooked_.push_back({node, enter.get(), begin.get(), end.get(), leave.get()});
  node->tensor_pre_hooks().insert(node->tensor_pre_hooks().begin(), std::move(enter));
  node->add_pre_hook(std::move(begin));
  node->post_hooks().insert(node->post_hooks().begin(), std::move(end));
  node->add_post_hook(std::move(leave));
}

FormulaWatch::~FormulaWatch() {
  trace_.recording().set_hooked_node(nullptr);
  for (const Hooked& one : hooked_) {
    const auto is_ours = [&](const auto& hook) {
      const void* at = hook.get();
      return at == one.enter || at == one.begin || at == one.end || at == one.leave;
    };
    std::erase_if(one.node->tensor_pre_hooks(), is_ours);
    std::erase_if(one.node->pre_hooks(), is_ours);
    std::erase_if(one.node->post_hooks(), is_ours);
  }
}

void FormulaWatch::begin() {
  writes_.restore();
  current_ = -1;
  trace_.recording().set_hooked_node(nullptr);
}

void FormulaWatch::end() { enter(nullptr, -1); }

/// Of an end of the way only the hooks run, so nobody leaves it.
void FormulaWatch::enter(autograd::Node* node, int64_t formula) {
  if (current_ >= 0) writes_.note(current_);
  current_ = formula;
  trace_.recording().set_hooked_node(node);
}

void FormulaWatch::leave(int64_t formula) {
  writes_.note(formula);
  current_ = -1;
  trace_.recording().set_hooked_node(nullptr);
}

void FormulaWatch::finish(std::span<const int64_t> gradients) {
  for (const auto& [formula, wanted] : ends_) {
    if (gradients[wanted] >= 0)
      formulas_.facts_[static_cast<size_t>(formula)].gradients.push_back(gradients[wanted]);
  }
  const auto& recorded = trace_.recording().backward_nodes();
  for (size_t i = recorded_before_; i < recorded.size(); ++i) {
    if (trace_.recording().graph().node(recorded[i].node).erased()) continue;
    const auto row = rows_.find(recorded[i].in);
    if (row != rows_.end()) formulas_.note(recorded[i].node, row->second);
  }
  writes_.end_part(part_);
}

}  // namespace tandem::joint
