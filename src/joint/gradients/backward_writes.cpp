#include "joint/gradients/backward_writes.h"

#include "base/error.h"
#include "joint/gradients/marks.h"
#include "libtorch/node_names.h"
#include "ops/op_table.h"
#include "ops/own/inputs_in_backward.h"
#include "signature/read_signature.h"
#include "signature/storage_of.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <unordered_map>

namespace tandem::joint {

namespace {

namespace functionalization = at::functionalization;

at::FunctionalTensorWrapper& wrapper_of(const at::Tensor& tensor) {
  return *functionalization::impl::unsafeGetFunctionalWrapper(tensor);
}

ir::ValueId value_behind(const at::Tensor& data) { return tracing::as_traced(data)->value(); }

/// Neither a duplicate, whose first one has it all, nor in memory with others, nor reshaped.
bool is_alone(const tracing::StandIn& one) {
  return one.duplicate_of < 0 && one.group < 0 && !wrapper_of(one.tensor).has_metadata_mutation();
}

}  // namespace

BackwardWrites::BackwardWrites(tracing::Trace& trace)
    : trace_(trace),
      recording_(trace.recording()),
      last_of_forward_(recording_.graph().last_node()) {
  for (size_t i = 0; i < trace.stand_ins().size(); ++i) found_.push_back(state_of(i));
  now_ = found_;
}

BackwardWrites::State BackwardWrites::state_of(size_t input) const {
  const at::Tensor& tensor = trace_.stand_ins()[input].tensor;
  return {wrapper_of(tensor).mutation_counter(), tracing::version_of(tensor),
          functionalization::impl::from_functional_tensor(tensor)};
}

/// Beside the counters, which autograd looks at.
void BackwardWrites::put(size_t input, const at::Tensor& data) {
  const at::Tensor& tensor = trace_.stand_ins()[input].tensor;
  const tracing::OutsideTrace outside;
  const at::AutoDispatchBelowADInplaceOrView below;
  wrapper_of(tensor).replace_(data);
  wrapper_of(tensor).commit_update();
  functionalization::impl::sync(tensor);
}

void BackwardWrites::restore() {
  for (size_t i = 0; i < found_.size(); ++i) {
    const tracing::StandIn& one = trace_.stand_ins()[i];
    if (wrapper_of(one.tensor).mutation_counter() == found_[i].writes) continue;
    if (is_alone(one)) put(i, found_[i].data);
    if (!one.tensor.is_inference()) {
      c10::VariableVersion counter = one.tensor.unsafeGetTensorImpl()->version_counter();
      counter.set_version(found_[i].version);
    }
    found_[i].writes = wrapper_of(one.tensor).mutation_counter();
    now_[i] = found_[i];
  }
}

bool BackwardWrites::is_gone(const Write& write) const {
  return write.mark != ir::kNoNode && recording_.graph().node(write.mark).erased();
}

/// What the input holds if the formula is run, else what it held before.
at::Tensor BackwardWrites::marked(size_t input, const at::Tensor& data, int64_t formula,
                                  ir::NodeId& mark) {
  ir::Graph& graph = recording_.graph();
  const auto functional = [&](const at::Tensor& inner) {
    return tracing::make_functional(recording_, value_behind(inner), inner);
  };
  const ir::Type type = graph.value(value_behind(data)).type();
  ir::ValueId before = value_behind(now_[input].data);
  if (!(graph.value(before).type() == type)) {
    before =
        tracing::current_value(with_strides_of(functional(data), functional(now_[input].data)));
  }
  const ir::Node& node = graph.add_op({.op = ops::kWritten.handle(),
                                       .operands = {value_behind(data), before, formula},
                                       .results = {type},
                                       .phase = ir::Phase::Backward});
  mark = node.id();
  return functionalization::impl::from_functional_tensor(
      tracing::make_functional(recording_, node.results()[0], data));
}

void BackwardWrites::note(int64_t formula) {
  for (size_t i = 0; i < found_.size(); ++i) {
    const tracing::StandIn& one = trace_.stand_ins()[i];
    const bool reshaped = one.tensor.sizes() != found_[i].data.sizes();
    if (wrapper_of(one.tensor).mutation_counter() == now_[i].writes && !reshaped) continue;
    functionalization::impl::sync(one.tensor);
    State after = state_of(i);
    Write& write = writes_.emplace_back();
    write = {.input = i, .formula = formula, .versions = after.version - now_[i].version};
    if (is_alone(one) && !reshaped) {
      put(i, marked(i, after.data, formula, write.mark));
      after = state_of(i);
    }
    now_[i] = std::move(after);
  }
}

void BackwardWrites::end_part(int64_t part) {
  const ir::NodeId before = parts_.empty() ? last_of_forward_ : parts_.back().last;
  parts_.push_back({part, before, recording_.graph().last_node()});
}

/// Of one input that the backward writes.
class BackwardWrites::Recorder {
 public:
  Recorder(const BackwardWrites& writes, const Formulas& formulas, size_t input)
      : graph_(writes.recording_.graph()),
        writes_(writes),
        formulas_(formulas),
        stand_in_(writes.trace_.stand_ins()[input]),
        found_(value_behind(writes.found_[input].data)) {
    for (const tracing::Recording::BackwardNode& one : writes.recording_.backward_nodes())
      recorded_[one.node] = one;
    add_itself();
  }

  /// Lets what eager reads by itself, not as something saved, be read when the backward runs.
  void read_in(const Part& part) {
    in_part_.clear();
    first_ = following(graph_, part.before);
    while (ops::kItself.is(graph_.node(first_))) first_ = graph_.next(first_);
    for (ir::NodeId id = first_; id != ir::kNoNode; id = graph_.next(id)) {
      ir::Node& node = graph_.node(id);
      const bool is_last = id == part.last;
      if (node.phase() == ir::Phase::Backward && !reads_what_was_saved(node)) replace_in(node);
      if (is_last) break;
    }
  }

  /// One node per formula that writes the input.
  void write_in(const Part& part, std::span<const Write> all, Formulas& formulas) {
    std::map<int64_t, uint32_t> versions;
    ir::ValueId data = ir::kNoValue;
    for (const Write& write : all) {
      versions[write.formula] += write.versions;
      data = graph_.node(write.mark).results()[0];
    }
    graph_.set_insert_point(graph_.next(part.last));
    for (const auto& [formula, count] : versions) {
      const ir::Node& node = graph_.add_op({.op = ops::kWriteInBackward.handle(),
                                            .operands = {itself_, data, int64_t{count}},
                                            .results = {},
                                            .phase = ir::Phase::Backward});
      formulas.note(node.id(), formula);
    }
    graph_.set_insert_point(ir::kNoNode);
  }

 private:
  void add_itself() {
    graph_.set_insert_point(following(graph_, writes_.last_of_forward_));
    itself_ = graph_
                  .add_op({.op = ops::kItself.handle(),
                           .operands = {stand_in_.input},
                           .results = {graph_.value(stand_in_.input).type()},
                           .phase = ir::Phase::Forward})
                  .results()[0];
    graph_.set_insert_point(ir::kNoNode);
  }

  /// libtorch's formulas read what they have saved, custom functions also what they close over.
  bool reads_what_was_saved(const ir::Node& node) const {
    const auto found = recorded_.find(node.id());
    if (found == recorded_.end() || found->second.by_hook) return false;
    const int64_t formula = formulas_.of(node.id());
    if (formula < 0) return false;
    const torch::autograd::Node& autograd_node = *formulas_.node_of(formula);
    if (!libtorch::is_custom_function(autograd_node)) return true;
    for (const at::Tensor& saved : libtorch::saved_tensors(autograd_node)) {
      const auto storage = signature::storage_of(saved);
      if (storage == signature::storage_of(stand_in_.tensor) ||
          storage == signature::storage_of(stand_in_.real))
        return true;
    }
    return false;
  }

  void replace_in(ir::Node& node) {
    for (size_t i = 0; i < node.operands().size(); ++i) {
      const ir::Operand& operand = node.operands()[i];
      if (const auto* id = operand.get_if<ir::ValueId>()) {
        const ir::ValueId now = in_backward(*id);
        if (now != *id) graph_.set_operand(node, i, now);
      } else if (const auto* ids = operand.get_if<ir::Operand::Values>()) {
        ir::Operand::Values replaced = *ids;
        for (ir::ValueId& id : replaced) id = in_backward(id);
        if (replaced != *ids) graph_.set_operand(node, i, std::move(replaced));
      }
    }
  }

  /// The value itself unless it is what the forward left in the input, or a view of that.
  ir::ValueId in_backward(ir::ValueId value) {
    if (value == ir::kNoValue) return value;
    if (const auto known = in_part_.find(value); known != in_part_.end()) return known->second;
    ir::ValueId now = value;
    if (value == found_) {
      now = add_read();
    } else if (const ir::NodeId producer = graph_.value(value).producer();
               producer != ir::kNoNode) {
      now = in_backward(value, graph_.node(producer));
    }
    in_part_[value] = now;
    return now;
  }

  ir::ValueId in_backward(ir::ValueId value, const ir::Node& producer) {
    if (producer.phase() != ir::Phase::Forward || producer.kind() != ir::NodeKind::Op ||
        !ops::info(producer.op()).is_view || producer.results().size() != 1)
      return value;
    const auto* source = producer.operands()[0].get_if<ir::ValueId>();
    if (source == nullptr) return value;
    const ir::ValueId now = in_backward(*source);
    if (now == *source) return value;
    std::vector<ir::Operand> operands(producer.operands().begin(), producer.operands().end());
    operands[0] = now;
    return add_first({.op = producer.op(),
                      .operands = std::move(operands),
                      .results = {graph_.value(value).type()},
                      .phase = ir::Phase::Backward,
                      .location = producer.location()});
  }

  ir::ValueId add_read() {
    const ir::TypePtr& type = graph_.value(found_).tensor_type();
    return add_first({.op = ops::kReadInBackward.handle(),
                      .operands = {itself_, type->strides},
                      .results = {ir::Type(*type)},
                      .phase = ir::Phase::Backward});
  }

  ir::ValueId add_first(ir::OpSpec spec) {
    graph_.set_insert_point(first_);
    const ir::ValueId value = graph_.add_op(std::move(spec)).results()[0];
    graph_.set_insert_point(ir::kNoNode);
    return value;
  }

  ir::Graph& graph_;
  const BackwardWrites& writes_;
  const Formulas& formulas_;
  const tracing::StandIn& stand_in_;
  const ir::ValueId found_;
  ir::ValueId itself_ = ir::kNoValue;
  ir::NodeId first_ = ir::kNoNode;  // of the part
  std::unordered_map<ir::NodeId, tracing::Recording::BackwardNode> recorded_;
  std::unordered_map<ir::ValueId, ir::ValueId> in_part_;
};

void BackwardWrites::record(const ir::Signature& signature, Formulas& formulas) {
  restore();
  std::erase_if(writes_, [&](const Write& write) { return is_gone(write); });
  if (writes_.empty()) return;
  const std::vector<size_t> order = signature::calling_order(trace_);
  for (size_t i = 0; i < order.size(); ++i) {
    std::vector<Write> here;
    std::ranges::copy_if(writes_, std::back_inserter(here),
                         [&](const Write& write) { return write.input == order[i]; });
    const tracing::StandIn& written = trace_.stand_ins()[order[i]];
    if (here.empty() || written.duplicate_of >= 0) continue;
    const ir::InputFacts& facts = signature.inputs[i];
    if (written.group >= 0) refuse(written, ", which shares memory with another input");
    if (facts.metadata_changed || facts.storage != ir::StorageChange::None)
      refuse(written, ", whose sizes, strides or memory the forward changes");
    for (const Write& write : here) {
      if (write.mark == ir::kNoNode) refuse(written, ", and changes its sizes");
      if (formulas.is_in_several_parts(formulas.node_of(write.formula))) {
        refuse(written,
               ", and both a result and an argument that the function rewrites lead there");
      }
    }
    Recorder recorder(*this, formulas, order[i]);
    // From the last: what is put behind a part is not to lie in the next one.
    for (const Part& part : parts_ | std::views::reverse) {
      if (part.before == part.last) continue;
      recorder.read_in(part);
      std::vector<Write> in_part;
      for (const Write& write : here) {
        if (formulas.facts()[static_cast<size_t>(write.formula)].part == part.part)
          in_part.push_back(write);
      }
      if (!in_part.empty()) recorder.write_in(part, in_part, formulas);
    }
  }
}

void BackwardWrites::check() const {
  for (size_t i = 0; i < found_.size(); ++i) {
    if (wrapper_of(trace_.stand_ins()[i].tensor).mutation_counter() != found_[i].writes)
      refuse(trace_.stand_ins()[i], " in a backward with create_graph");
  }
}

void BackwardWrites::refuse(const tracing::StandIn& stand_in, const char* why) const {
  TANDEM_UNSUPPORTED("joint", "the backward (a hook or custom function) writes ",
                     trace_.name_of(stand_in), why,
                     "\n  remedy: write it in the forward, or in a hook on a result of the "
                     "compiled function");
}

}  // namespace tandem::joint
