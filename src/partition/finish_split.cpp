#include "partition/finish_split.h"

#include "ops/own/inputs_in_backward.h"
#include "partition/keeping.h"
#include "tandem/ir/type.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tandem::partition {
namespace {

using As = Saved::As;

struct Write {
  size_t input = 0;
  ir::ValueId data = ir::kNoValue;
};

class Finisher {
 public:
  Finisher(Split& split, Mutations mutations)
      : split_(split), graph_(split.forward), keeping_(graph_, split.signature) {
    for (const ir::Output& output : graph_.outputs()) {
      const auto input = static_cast<size_t>(output.role.index);
      if (mutations == Mutations::epilogue || output.role.role != ir::Role::Mutated ||
          !writes_in_graph(split.signature, input)) {
        kept_.push_back(output);
        continue;
      }
      const ir::ValueId into = graph_.inputs()[input];
      overwritten_.insert(into);
      // Its own memory is written by nobody.
      if (keeping_.memory(output.value) != into) writes_.push_back({input, output.value});
    }
  }

  void run() {
    for (const ir::Output& output : kept_) {
      if (output.role.role == ir::Role::Saved) decide(output);
    }
    for (ir::Output& output : kept_) {
      if (output.value != ir::kNoValue && graph_.value(output.value).tensor_type() != nullptr)
        give_memory(output);
    }
    for (Write& write : writes_) {
      if (!overwritten_.contains(keeping_.memory(write.data))) continue;
      auto [copy, is_new] = copies_.try_emplace(write.data, ir::kNoValue);
      if (is_new) copy->second = add_clone(write.data);
      write.data = copy->second;
    }
    for (const Write& write : writes_) place(write);
    graph_.set_outputs(std::move(kept_));
    // The call keeps the tensor: the forward has nothing to compute for it.
    graph_.for_each_node_reversed([&](ir::Node& node) {
      if (ops::kItself.is(node)) graph_.erase(node);
    });
  }

 private:
  Saved& saved_of(const ir::Output& output) {
    const auto index = static_cast<size_t>(output.role.index);
    if (split_.saved.size() <= index) split_.saved.resize(index + 1);
    return split_.saved[index];
  }

  void decide(const ir::Output& output) {
    Saved& saved = saved_of(output);
    if (saved.how.as != As::Undecided) return;
    if (output.value == ir::kNoValue) {
      saved.how = {As::Value};
      return;
    }
    // The forward returns it for the backward to read: there is an answer.
    saved.how = *keeping_.how(output.value);
    if (saved.how.as != As::Copy) return;
    const ir::TypePtr& type = graph_.value(output.value).tensor_type();
    saved.bytes = type->is_static() ? type->bytes() : 0;
    saved.why = "a copy of an input that the call writes";
    if (saved.name.empty()) return;
    saved.name += "_copy";
    for (ir::ValueId input : split_.backward.inputs()) {
      if (split_.backward.input_role(input) == output.role)
        split_.backward.set_name(input, saved.name);
    }
  }

  void give_memory(ir::Output& output) {
    if (output.role.role == ir::Role::Saved) {
      const Saved& saved = saved_of(output);
      if (saved.how.as == As::Itself)
        output.value = graph_.inputs()[static_cast<size_t>(saved.how.of)];
      const bool is_returned = saved.how.as == As::Result || saved.how.as == As::Base;
      // In a split that is finished it is a copy by now, which nobody else can see.
      if (saved.how.as == As::Copy && keeping_.is_visible(output.value)) {
        output.value = add_clone(output.value, saved.name);
      } else if (is_returned && graph_.value(keeping_.memory(output.value)).is_input()) {
        output.value = copies_.at(output.value);
      }
      return;
    }
    if (output.role.role == ir::Role::Mutated &&
        facts(output.role.index).storage != ir::StorageChange::Replaced) {
      if (would_be_gone(output)) output.value = add_clone(output.value);
      return;
    }
    if (!belongs_to_another(output.value)) return;
    const ir::ValueId copy = add_clone(output.value);
    if (output.role.role != ir::Role::Mutated) copies_.try_emplace(output.value, copy);
    output.value = copy;
  }

  /// Whether the new data lies in memory of another written input, which may be overwritten before
  /// this output is copied. In the input's own memory it is safe: that copy changes nothing.
  bool would_be_gone(const ir::Output& output) const {
    const ir::ValueId own = graph_.inputs()[static_cast<size_t>(output.role.index)];
    return keeping_.memory(output.value) != own && keeping_.is_overwritten(output.value);
  }

  bool belongs_to_another(ir::ValueId value) {
    const ir::ValueId memory = keeping_.memory(value);
    const bool is_new = owned_.insert(memory).second;
    return !is_new || graph_.value(memory).is_input() ||
           graph_.node(graph_.value(memory).producer()).kind() == ir::NodeKind::Constant;
  }

  const ir::InputFacts& facts(int64_t input) const {
    return split_.signature.inputs[static_cast<size_t>(input)];
  }

  ir::ValueId add_clone(ir::ValueId value, const std::string& name = {}) {
    return add("aten::clone", {value, ir::Operand{}}, value, name);
  }

  ir::ValueId add(const char* op, std::vector<ir::Operand> operands, ir::ValueId like,
                  const std::string& name = {}) {
    return graph_
        .add_op({.op = c10::Dispatcher::singleton().findSchemaOrThrow(op, ""),
                 .operands = std::move(operands),
                 .results = {graph_.value(like).type()},
                 .phase = ir::Phase::Forward,
                 .location = location_of(like),
                 .names = {name}})
        .results()[0];
  }

  ir::Location location_of(ir::ValueId value) const {
    const ir::NodeId producer = graph_.value(value).producer();
    return producer == ir::kNoNode ? ir::Location() : graph_.node(producer).location();
  }

  void place(const Write& write) {
    const ir::ValueId input = graph_.inputs()[write.input];
    const ir::ValueId written = add("aten::copy_", {input, write.data, false}, input);
    const Saved::How how{As::WrittenInput, static_cast<int64_t>(write.input)};
    for (ir::Output& output : kept_) {
      if (output.role.role == ir::Role::Saved && saved_of(output).how == how)
        output.value = written;
    }
  }

  Split& split_;
  ir::Graph& graph_;
  const Keeping keeping_;
  std::vector<Write> writes_;
  std::vector<ir::Output> kept_;
  std::unordered_set<ir::ValueId> overwritten_;          // inputs, in the graph
  std::unordered_set<ir::ValueId> owned_;                // memory of results and bases
  std::unordered_map<ir::ValueId, ir::ValueId> copies_;  // that results are, or the data of writes
};

}  // namespace

bool writes_in_graph(const ir::Signature& signature, size_t input) {
  const ir::InputFacts& facts = signature.inputs[input];
  return facts.data_written && facts.duplicate_of < 0 && facts.group < 0 &&
         !facts.history_changed && !facts.metadata_changed &&
         facts.storage == ir::StorageChange::None &&
         facts.requires_grad == facts.requires_grad_after;
}

void finish_split(Split& split, Mutations mutations) { Finisher(split, mutations).run(); }

}  // namespace tandem::partition
