#include "partition/place_write_backs.h"

#include "ops/memory/memory_roots.h"
#include "tandem/ir/type.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tandem::partition {
namespace {

struct Write {
  size_t input = 0;
  ir::ValueId data = ir::kNoValue;
};

class Placer {
 public:
  Placer(ir::Graph& graph, const ir::Signature& signature)
      : graph_(graph), signature_(signature), roots_(ops::memory_roots(graph)) {}

  void run() {
    for (const ir::Output& output : graph_.outputs()) {
      const auto input = static_cast<size_t>(output.role.index);
      if (output.role.role == ir::Role::Mutated && writes_in_graph(signature_, input)) {
        writes_.push_back({input, output.value});
        overwritten_.insert(graph_.inputs()[input]);
      } else {
        kept_.push_back(output);
      }
    }
    if (writes_.empty()) return;
    for (ir::Output& output : kept_) {
      if (!is_new_data(output)) output.value = safe(output.value);
    }
    for (Write& write : writes_) {
      if (root(write.data) != graph_.inputs()[write.input]) write.data = safe(write.data);
    }
    for (const Write& write : writes_) place(write);
    graph_.set_outputs(std::move(kept_));
  }

 private:
  /// Copies that were made here have memory of their own.
  ir::ValueId root(ir::ValueId value) const {
    const auto index = static_cast<size_t>(value);
    return index < roots_.size() ? roots_[index] : value;
  }

  /// A saved value that is exactly what an input will hold: the input itself is kept.
  bool is_new_data(const ir::Output& output) const {
    if (output.role.role != ir::Role::Saved) return false;
    return std::ranges::any_of(writes_, [&](const Write& write) {
      return write.data == output.value && same_type(write);
    });
  }
  bool same_type(const Write& write) const {
    return *signature_.inputs[write.input].type == *graph_.value(write.data).tensor_type();
  }

  /// The value, or a copy of it if its memory is about to be overwritten.
  ir::ValueId safe(ir::ValueId value) {
    if (value == ir::kNoValue || graph_.value(value).tensor_type() == nullptr ||
        !overwritten_.contains(root(value))) {
      return value;
    }
    auto [it, is_new] = copies_.try_emplace(value, ir::kNoValue);
    if (is_new) it->second = add("aten::clone", {value, ir::Operand{}}, value);
    return it->second;
  }

  ir::ValueId add(const char* op, std::vector<ir::Operand> operands, ir::ValueId like) {
    return graph_
        .add_op({.op = c10::Dispatcher::singleton().findSchemaOrThrow(op, ""),
                 .operands = std::move(operands),
                 .results = {graph_.value(like).type()},
                 .phase = ir::Phase::Forward,
                 .location = location_of(like)})
        .results()[0];
  }

  ir::Location location_of(ir::ValueId value) const {
    const ir::NodeId producer = graph_.value(value).producer();
    return producer == ir::kNoNode ? ir::Location() : graph_.node(producer).location();
  }

  void place(const Write& write) {
    const ir::ValueId input = graph_.inputs()[write.input];
    if (root(write.data) == input) return;  // its own memory, written by nobody
    const ir::ValueId written = add("aten::copy_", {input, write.data, false}, input);
    for (ir::Output& output : kept_) {
      if (output.role.role == ir::Role::Saved && output.value == write.data && same_type(write))
        output.value = written;
    }
  }

  ir::Graph& graph_;
  const ir::Signature& signature_;
  const std::vector<ir::ValueId> roots_;
  std::vector<Write> writes_;
  std::vector<ir::Output> kept_;
  std::unordered_set<ir::ValueId> overwritten_;
  std::unordered_map<ir::ValueId, ir::ValueId> copies_;
};

}  // namespace

bool writes_in_graph(const ir::Signature& signature, size_t input) {
  const ir::InputFacts& facts = signature.inputs[input];
  return facts.data_written && facts.duplicate_of < 0 && facts.group < 0 &&
         !facts.history_changed && !facts.metadata_changed &&
         facts.storage == ir::StorageChange::None &&
         facts.requires_grad == facts.requires_grad_after;
}

void place_write_backs(ir::Graph& forward, const ir::Signature& signature) {
  Placer(forward, signature).run();
}

}  // namespace tandem::partition
