#include "partition/tangents/tangent_use.h"

#include <algorithm>

namespace tandem::partition {
namespace {

using Flags = std::vector<bool>;

bool any(const Flags& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

void add(Flags& to, const Flags& flags) {
  for (size_t i = 0; i < flags.size(); ++i) to[i] = to[i] || flags[i];
}

/// Where a value comes from. What depends on a tangent is a gradient; the rest is computed from
/// saved values alone.
struct Origin {
  Flags tangents, saved;
};

class Search {
 public:
  explicit Search(const ir::Graph& graph) : graph_(graph) {
    for (ir::ValueId input : graph.inputs()) {
      (is_saved(input) ? saved_count_ : tangent_count_) += 1;
    }
    use_.readers.assign(saved_count_, Flags(tangent_count_));
    origins_.assign(graph.value_limit(), {Flags(tangent_count_), Flags(saved_count_)});
    size_t tangent = 0, saved = 0;
    for (ir::ValueId input : graph.inputs()) {
      Origin& origin = origins_[static_cast<size_t>(input)];
      if (is_saved(input)) {
        origin.saved[saved++] = true;
      } else {
        origin.tangents[tangent++] = true;
      }
    }
  }

  TangentUse run() && {
    graph_.for_each_node([&](const ir::Node& node) { visit(node); });
    for (const ir::Output& output : graph_.outputs()) {
      if (output.value == ir::kNoValue) continue;
      const Origin& origin = origins_[static_cast<size_t>(output.value)];
      // A gradient that looks at no tangent is computed for every one of them.
      if (!any(origin.tangents)) note_readers(origin.saved, Flags(tangent_count_, true));
    }
    return std::move(use_);
  }

 private:
  bool is_saved(ir::ValueId input) const {
    return graph_.input_role(input).role == ir::Role::Saved;
  }

  void note_readers(const Flags& saved, const Flags& tangents) {
    for (size_t i = 0; i < saved.size(); ++i) {
      if (saved[i]) add(use_.readers[i], tangents);
    }
  }

  void visit(const ir::Node& node) {
    Origin origin{Flags(tangent_count_), Flags(saved_count_)};
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        if (id == ir::kNoValue) return;
        add(origin.tangents, origins_[static_cast<size_t>(id)].tangents);
        add(origin.saved, origins_[static_cast<size_t>(id)].saved);
      });
    }
    if (any(origin.tangents) && any(origin.saved)) note_readers(origin.saved, origin.tangents);
    if (any(origin.tangents)) origin.saved.assign(saved_count_, false);
    for (ir::ValueId id : node.results()) {
      if (id != ir::kNoValue) origins_[static_cast<size_t>(id)] = origin;
    }
  }

  const ir::Graph& graph_;
  size_t tangent_count_ = 0, saved_count_ = 0;
  std::vector<Origin> origins_;  // by value
  TangentUse use_;
};

}  // namespace

TangentUse tangent_use(const ir::Graph& backward) { return Search(backward).run(); }

}  // namespace tandem::partition
