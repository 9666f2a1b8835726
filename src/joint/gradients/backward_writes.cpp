#include "joint/gradients/backward_writes.h"

#include "base/error.h"
#include "joint/gradients/gradients.h"
#include "ops/own/write_in_backward.h"
#include "signature/read_signature.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>

#include <algorithm>

namespace tandem::joint {
BackwardWrites::BackwardWrites(const tracing::Trace& trace) : trace_(trace), before_(count()) {}

std::vector<BackwardWrites::Count> BackwardWrites::count() const {
  std::vector<Count> counts;
  for (const tracing::StandIn& one : trace_.stand_ins()) {
    auto* wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(one.tensor);
    counts.push_back({wrapper->mutation_counter(), tracing::version_of(one.tensor)});
  }
  return counts;
}

std::vector<Reached> BackwardWrites::record(tracing::Recording& recording,
                                            const ir::Signature& signature,
                                            std::span<const ir::ValueId> tangents) {
  const std::vector<size_t> order = signature::calling_order(trace_);
  const std::vector<Count> now = count();
  std::vector<Reached> effects;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t position = order[i];
    if (now[position].writes == before_[position].writes) continue;
    const tracing::StandIn& written = trace_.stand_ins()[position];
    const ir::InputFacts& facts = signature.inputs[i];
    if (facts.duplicate_of >= 0) continue;
    if (facts.data_written || facts.metadata_changed || facts.storage != ir::StorageChange::None)
      refuse(written, ", which the forward changes, too");
    if (written.group >= 0) refuse(written, ", which shares memory with another input");
    const ir::ValueId data = tracing::current_value(written.tensor);
    Reached effect;
    for (ir::ValueId tangent : tangents) {
      std::vector<ir::ValueId> depends{data};
      drop_independent(recording.graph(), {&tangent, 1}, depends);
      effect.from.push_back(depends[0] != ir::kNoValue);
    }
    // Data that no tangent shows in is written whatever is differentiated.
    if (std::ranges::none_of(effect.from, [](bool from) { return from; }))
      effect.from.assign(tangents.size(), true);
    effect.node = recording.graph()
                      .add_op({.op = ops::kWriteInBackward.handle(),
                               .operands = {written.input, data,
                                            static_cast<int64_t>(now[position].version) -
                                                static_cast<int64_t>(before_[position].version)},
                               .results = {},
                               .phase = ir::Phase::Backward,
                               .location = {}})
                      .id();
    effects.push_back(std::move(effect));
  }
  before_ = now;
  return effects;
}

void BackwardWrites::check() const {
  const std::vector<Count> now = count();
  for (size_t i = 0; i < before_.size(); ++i) {
    if (before_[i].writes != now[i].writes)
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
