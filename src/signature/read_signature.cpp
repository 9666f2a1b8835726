#include "signature/read_signature.h"

#include "signature/input_checks.h"
#include "signature/input_facts.h"
#include "signature/view_replays.h"
#include "tracing/recording/traced_tensor.h"

namespace tandem::signature {
namespace {

/// Turns positions among the stand-ins into positions among the inputs.
void reorder(ir::InputFacts& facts, const std::vector<int64_t>& position) {
  for (int64_t* other : {&facts.duplicate_of, &facts.counter_of, &facts.set_to}) {
    if (*other >= 0) *other = position[static_cast<size_t>(*other)];
  }
}

/// Of one counter, the input that comes first moves it.
void order_counters(std::vector<ir::InputFacts>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t other = inputs[i].counter_of;
    if (other <= static_cast<int64_t>(i)) continue;
    for (ir::InputFacts& facts : inputs) {
      if (&facts != &inputs[i] && facts.counter_of == other)
        facts.counter_of = static_cast<int64_t>(i);
    }
    inputs[static_cast<size_t>(other)].counter_of = static_cast<int64_t>(i);
    inputs[i].counter_of = -1;
  }
}

void add_groups(const tracing::Trace& trace, const std::vector<int64_t>& position,
                Reading& reading) {
  ir::Signature& signature = reading.signature;
  for (size_t i = 0; i < trace.groups().size(); ++i) {
    const tracing::Group& group = trace.groups()[i];
    if (!is_written(group)) {
      for (size_t stand_in : group.members) {
        // A view renews its grad_fn when the version of its base moves, too.
        if (group.is_root && !is_reshaped(trace.stand_ins()[stand_in]))
          signature.inputs[static_cast<size_t>(position[stand_in])].history_changed = false;
      }
      continue;
    }
    ir::GroupFacts facts = group_facts(trace, group);
    for (size_t stand_in : group.members) {
      const int64_t member = position[stand_in];
      ir::InputFacts& input = signature.inputs[static_cast<size_t>(member)];
      facts.members.push_back(member);
      input.group = static_cast<int64_t>(signature.groups.size());
      // A view renews its grad_fn whenever its base was written, also without autograd.
      if (group.is_root) {
        const tracing::StandIn& one = trace.stand_ins()[stand_in];
        const bool is_view = !one.tensor.is_same(group.tensor);
        const bool renewed = one.apart ? input.history_changed : input.requires_grad_after;
        input.history_changed =
            facts.history_changed || (input.history_changed && is_reshaped(one));
        input.histories = (is_view ? renewed : facts.history_changed) ? 2 : 1;
      }
    }
    signature.groups.push_back(std::move(facts));
    reading.groups.push_back(i);
  }
}

/// The function ran, but for its results only. Its reads still belong to histories of their own.
void drop_effects(const std::vector<const tracing::StandIn*>& inputs, ir::Signature& signature) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    ir::InputFacts& facts = signature.inputs[i];
    facts.histories = histories_of(*inputs[i]);
    facts.data_written = facts.history_changed = facts.metadata_changed = false;
    facts.version_delta = 0;
    facts.requires_grad_after = facts.requires_grad;
    facts.is_leaf_after = facts.is_leaf;
    facts.storage = ir::StorageChange::None;
    facts.set_to = -1;
  }
  for (ir::GroupFacts& facts : signature.groups) facts.history_changed = false;
  signature.grad_mode_after.reset();
}

/// Of an input that was reshaped and written.
void note_geometry(const at::Tensor& reshaped, ir::InputFacts& facts) {
  if (!reshaped.defined()) return;
  ir::TensorType type = *facts.type_after;
  type.strides.assign(reshaped.strides().begin(), reshaped.strides().end());
  facts.type_after = std::make_shared<const ir::TensorType>(std::move(type));
  facts.offset_after = reshaped.storage_offset();
}

}  // namespace

std::vector<size_t> calling_order(const tracing::Trace& trace) {
  std::vector<size_t> order;
  const size_t count = trace.stand_ins().size();
  for (size_t i = trace.argument_count(); i < count; ++i) order.push_back(i);
  for (size_t i = 0; i < trace.argument_count(); ++i) order.push_back(i);
  return order;
}

Reading read_signature(tracing::Trace& trace, Effects effects) {
  const std::vector<size_t> order = calling_order(trace);
  const auto& stand_ins = trace.stand_ins();
  Reading reading;
  reading.effects = effects;
  ir::Signature& signature = reading.signature;
  signature.lifted_count = static_cast<int64_t>(stand_ins.size() - trace.argument_count());

  std::vector<int64_t> position(stand_ins.size());
  std::vector<const tracing::StandIn*> inputs;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int64_t>(i);
  for (size_t stand_in : order) {
    inputs.push_back(&stand_ins[stand_in]);
    signature.inputs.push_back(input_facts(trace, stand_ins[stand_in]));
    reorder(signature.inputs.back(), position);
  }
  order_counters(signature.inputs);
  add_groups(trace, position, reading);
  for (ir::EqualityFacts facts : trace.inputs().equalities()) {
    facts.a = position[static_cast<size_t>(facts.a)];
    facts.b = position[static_cast<size_t>(facts.b)];
    signature.equalities.push_back(facts);
  }
  signature.grad_mode_after = trace.grad_mode_after();
  if (effects == Effects::Dropped) drop_effects(inputs, signature);
  check_inputs(trace, signature, order);

  const ir::Graph& graph = trace.recording().graph();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::ValueId value = tracing::current_value(inputs[i]->tensor);
    reading.new_data.push_back(value);
    ir::InputFacts& facts = signature.inputs[i];
    if (facts.metadata_changed || facts.storage != ir::StorageChange::None) {
      facts.type_after = graph.value(value).tensor_type();
      facts.offset_after = inputs[i]->tensor.storage_offset();
      if (facts.data_written && facts.storage == ir::StorageChange::None && facts.group < 0)
        note_geometry(reshaped_as_in_run(trace, *inputs[i]), facts);
    }
  }
  reading.bases = add_output_facts(trace, inputs, signature);
  add_view_replays(trace, inputs, reading);
  return reading;
}

}  // namespace tandem::signature
