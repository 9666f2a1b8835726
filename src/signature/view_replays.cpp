#include "signature/view_replays.h"

#include "base/error.h"
#include "ops/memory/flat_memory.h"
#include "ops/memory/view_replay.h"
#include "ops/op_table.h"
#include "signature/input_facts.h"
#include "signature/storage_of.h"
#include "tracing/inputs/lost_history.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>

namespace tandem::signature {
namespace {

/// The op between a view and what it shows; null for a value that is no view.
const ir::Node* view_op(const ir::Graph& graph, ir::ValueId value) {
  const ir::NodeId producer = graph.value(value).producer();
  if (producer == ir::kNoNode) return nullptr;
  const ir::Node& node = graph.node(producer);
  if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view) return nullptr;
  return node.operands()[0].get_if<ir::ValueId>() ? &node : nullptr;
}

ir::ValueId source_of(const ir::Node& view) { return *view.operands()[0].get_if<ir::ValueId>(); }

ir::ValueId add_detach(ir::Graph& graph, ir::ValueId value) {
  return graph
      .add_op({.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::detach", ""),
               .operands = {value},
               .results = {graph.value(value).type()}})
      .results()[0];
}

ir::ValueId add_strided(ir::Graph& graph, ir::ValueId value, const ir::TensorType& type,
                        int64_t offset) {
  return graph
      .add_op({.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::as_strided", ""),
               .operands = {value, type.sizes, type.strides, ir::Size(offset)},
               .results = {ir::Type(std::make_shared<const ir::TensorType>(type))}})
      .results()[0];
}

torch::autograd::Edge edge_of(const at::Tensor& tensor) {
  return torch::autograd::impl::gradient_edge(tensor);
}

/// Functionalization makes the same view several times: equal ones count as one value here.
class SameViews {
 public:
  explicit SameViews(const ir::Graph& graph) {
    std::map<std::pair<std::string, ir::ValueId>, std::vector<const ir::Node*>> known;
    graph.for_each_node([&](const ir::Node& node) {
      if (node.results().empty() || node.results()[0] == ir::kNoValue) return;
      if (!view_op(graph, node.results()[0])) return;
      const c10::OperatorName& name = node.op().operator_name();
      auto& equals = known[{name.name + "." + name.overload_name, (*this)(source_of(node))}];
      const auto equal = std::ranges::find_if(equals, [&](const ir::Node* other) {
        return std::equal(node.operands().begin() + 1, node.operands().end(),
                          other->operands().begin() + 1, other->operands().end());
      });
      if (equal == equals.end()) {
        equals.push_back(&node);
        return;
      }
      for (size_t i = 0; i < node.results().size(); ++i)
        first_[node.results()[i]] = (*equal)->results()[i];
    });
  }

  ir::ValueId operator()(ir::ValueId value) const {
    const auto it = first_.find(value);
    return it == first_.end() ? value : it->second;
  }

 private:
  std::map<ir::ValueId, ir::ValueId> first_;
};

bool has_path(const ir::Graph& graph, const SameViews& same, ir::ValueId root, ir::ValueId value) {
  while (same(value) != same(root)) {
    const ir::Node* view = view_op(graph, value);
    if (!view) return false;
    value = source_of(*view);
  }
  return true;
}

/// The memory that a traced tensor shows, as a whole.
const at::Tensor& memory_of(const at::Tensor& tensor) {
  return static_cast<at::functionalization::FunctionalStorageImpl*>(storage_of(tensor))->base();
}
ir::ValueId whole_of(const at::Tensor& tensor) { return tracing::current_value(memory_of(tensor)); }

/// Whether both take the numbers in their memory for the same.
bool reads_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

/// Builds one replay graph. Results of one `split` keep their common origin; two outputs that are
/// the same view of the same tensor stay two tensors.
class Builder {
 public:
  Builder(const ir::Graph& recorded, const SameViews& same, ir::ValueId root)
      : recorded_(recorded), same_(same), root_(same(root)) {
    replay_.graph.set_name("views");
    source_ =
        replay_.graph
            .add_input(recorded.value(root).tensor_type(), ir::Descriptor::user_input(0), "source")
            .id();
  }

  /// The call leaves what the views are taken of in another shape. A strided view of that has the
  /// shape in which they were taken.
  void take_from(const ir::TypePtr& left, int64_t offset) {
    const ir::TypePtr& type = recorded_.value(root_).tensor_type();
    replay_.graph = ir::Graph();
    replay_.graph.set_name("views");
    const ir::ValueId input =
        replay_.graph.add_input(left, ir::Descriptor::user_input(0), "source").id();
    source_ = add_strided(replay_.graph, input, *type, offset);
  }

  void set_source(ir::CallTensor source, bool as_found, bool detached) {
    replay_.source = source;
    replay_.as_found = as_found;
    replay_.detached = detached;
  }

  /// `is_view`: whether autograd takes the result for one. What was detached and then reshaped in
  /// place is none.
  /// `owner`: the first output with the same root for autograd.
  void add_output(ir::ValueId value, int64_t index, bool is_view, size_t owner) {
    owner_ = owner;
    ir::ValueId rebuilt_value = rebuilt(value, 0);
    for (size_t round = 1; is_output(rebuilt_value) && rebuilt_value != source_; ++round)
      rebuilt_value = rebuilt(value, round);
    if (!is_view && is_made_by_view(rebuilt_value))
      rebuilt_value = add_detach(replay_.graph, rebuilt_value);
    replay_.graph.add_output(rebuilt_value, ir::Descriptor::output(index));
  }

  ir::ViewReplay take() { return std::move(replay_); }

 private:
  bool is_output(ir::ValueId value) const {
    return std::ranges::any_of(replay_.graph.outputs(),
                               [&](const ir::Output& output) { return output.value == value; });
  }

  bool is_made_by_view(ir::ValueId value) const {
    const ir::Node* view = view_op(replay_.graph, value);
    return view && view->op().schema().name() != "aten::detach";
  }

  /// In each round the last view op is another one.
  ir::ValueId rebuilt(ir::ValueId value, size_t round) {
    if (same_(value) == root_) return source_;
    // Functionalization makes views again after a write; those of one op belong together.
    const ir::ValueId first = same_(value);
    const bool several = view_op(recorded_, first)->results().size() > 1;
    // What was detached once is one tensor, however many views are taken of it.
    const bool detaches = view_op(recorded_, first)->op().schema().name() == "aten::detach";
    const ir::ValueId key = several || detaches ? first : value;
    const size_t owner = detaches ? owner_ : 0;
    if (const auto known = replacement_.find({key, round, owner}); known != replacement_.end())
      return known->second;
    const ir::Node& node = *view_op(recorded_, key);
    ir::OpSpec spec{.op = node.op(), .shape = node.result_shape(), .location = node.location()};
    spec.operands.assign(node.operands().begin(), node.operands().end());
    spec.operands[0] = rebuilt(source_of(node), 0);
    for (ir::ValueId result : node.results())
      spec.results.emplace_back(recorded_.value(result).type());
    const ir::Node& copy = replay_.graph.add_op(std::move(spec));
    for (size_t i = 0; i < node.results().size(); ++i)
      replacement_[{node.results()[i], round, owner}] = copy.results()[i];
    return replacement_.at({key, round, owner});
  }

  const ir::Graph& recorded_;
  const SameViews& same_;
  const ir::ValueId root_;
  ir::ValueId source_ = ir::kNoValue;
  ir::ViewReplay replay_;
  size_t owner_ = 0;
  std::map<std::tuple<ir::ValueId, size_t, size_t>, ir::ValueId> replacement_;  // per round, owner
};

bool is_replayed(const ir::OutputFacts& facts) {
  return facts.kind == ir::OutputKind::AliasOfInput || facts.kind == ir::OutputKind::AliasOfBase ||
         facts.kind == ir::OutputKind::AliasOfOutput;
}

/// Finds what each aliasing output is replayed from, and collects the replays.
class Replays {
 public:
  Replays(const tracing::Trace& trace, const std::vector<const tracing::StandIn*>& inputs,
          Reading& reading)
      : trace_(trace),
        graph_(trace.recording().graph()),
        inputs_(inputs),
        reading_(reading),
        same_(graph_) {}

  void add(size_t index) {
    ir::OutputFacts& facts = reading_.signature.outputs[index];
    const at::Tensor& result = trace_.results().tensors[index];
    const ir::ValueId value = tracing::current_value(result);
    if (const auto output = returned_base(result, value)) {
      facts.kind = ir::OutputKind::AliasOfOutput;
      facts.source = *output;
    }
    if (facts.kind == ir::OutputKind::AliasOfBase &&
        reading_.signature.bases[static_cast<size_t>(facts.source)].reshaped) {
      replay_by_strides(facts.source, result, value, index);
      return;
    }
    if (facts.kind == ir::OutputKind::AliasOfBase) {
      replay(ir::CallTensor::base(facts.source), false,
             reading_.bases[static_cast<size_t>(facts.source)].value, value, index);
      return;
    }
    if (facts.kind == ir::OutputKind::AliasOfOutput) {
      const at::Tensor& source = trace_.results().tensors[static_cast<size_t>(facts.source)];
      replay(ir::CallTensor::output(facts.source), false, tracing::current_value(source), value,
             index);
      return;
    }
    if (const int64_t group = reading_.signature.inputs[static_cast<size_t>(facts.source)].group;
        group >= 0 && is_renewed(result, group)) {
      replay_of_group(facts, group, value, index);
      return;
    }
    // An input as the call leaves it comes first: it is what eager's view is taken of. Among those
    // that show the same, the one that autograd names.
    if (replay_of_input(facts, result, value, index, /*named=*/true)) return;
    if (replay_of_reshaped(facts, result, value, index)) return;
    if (replay_of_input(facts, result, value, index, /*named=*/false)) return;
    const int64_t group = reading_.signature.inputs[static_cast<size_t>(facts.source)].group;
    if (group >= 0) {
      if (!replay_of_member(facts, result, value, index))
        replay_of_group(facts, group, value, index);
    } else if (const auto member = member_above(result, value)) {
      facts.source = *member;
      replay(ir::CallTensor::input(*member), true,
             inputs_[static_cast<size_t>(*member)]->first_value, value, index);
    } else {
      replay(ir::CallTensor::input(facts.source), true, whole_of(result), value, index);
    }
  }

  void replay_of_group(ir::OutputFacts& facts, int64_t group, ir::ValueId value, size_t index) {
    facts.kind = ir::OutputKind::AliasOfGroup;
    facts.source = group;
    replay(ir::CallTensor::group(group), has_reshaped_root(group),
           whole_of(trace_.results().tensors[index]), value, index);
  }

  /// Replays a result from a base that was reshaped in place, by its strides: the sizes of the base
  /// do not matter. What reads the memory otherwise (conjugated, as parts of complex numbers) is
  /// taken by its own ops of the base as it was.
  void replay_by_strides(int64_t base, const at::Tensor& result, ir::ValueId value, size_t index) {
    const int64_t source = reading_.signature.bases[static_cast<size_t>(base)].output;
    const at::Tensor& left = trace_.results().tensors[static_cast<size_t>(source)];
    const ir::ValueId whole = tracing::current_value(left);
    if (!reads_alike(result, left)) {
      const ir::ValueId root = reading_.bases[static_cast<size_t>(base)].value;
      require_path(root, value, index);
      Builder builder(graph_, same_, root);
      builder.set_source(ir::CallTensor::base(base), false, false);
      builder.take_from(graph_.value(whole).tensor_type(), memory_of(result).storage_offset());
      builder.add_output(value, static_cast<int64_t>(index), result.is_view(), first_like(index));
      reading_.signature.replays.push_back(builder.take());
      return;
    }
    const ir::TypePtr& type = graph_.value(value).tensor_type();
    ir::ViewReplay replay;
    replay.source = ir::CallTensor::base(base);
    replay.graph.set_name("views");
    const ir::ValueId input =
        replay.graph
            .add_input(graph_.value(whole).tensor_type(), ir::Descriptor::user_input(0), "source")
            .id();
    ir::ValueId made = add_strided(replay.graph, input, *type, result.storage_offset());
    if (!result.is_view()) made = add_detach(replay.graph, made);
    replay.graph.add_output(made, ir::Descriptor::output(static_cast<int64_t>(index)));
    reading_.signature.replays.push_back(std::move(replay));
  }

  void finish() {
    for (auto& [key, builder] : builders_) reading_.signature.replays.push_back(builder.take());
  }

 private:
  /// The tensor that eager names as the base of a view may be another result. That one is no view
  /// itself, although it lies in memory that it shares: a detached alias, for one.
  std::optional<int64_t> returned_base(const at::Tensor& result, ir::ValueId value) const {
    if (!result.is_view() || result.requires_grad()) return std::nullopt;
    const at::Tensor base(result._base());
    for (size_t i = 0; i < trace_.results().tensors.size(); ++i) {
      const at::Tensor& other = trace_.results().tensors[i];
      const ir::OutputFacts& facts = reading_.signature.outputs[i];
      if (!other.defined() || !other.is_same(base) || !is_replayed(facts)) continue;
      if (!has_path(tracing::current_value(other), value)) return std::nullopt;
      return static_cast<int64_t>(i);
    }
    return std::nullopt;
  }

  /// The base of the group is an input that is reshaped in place: it is viewed as it came.
  bool has_reshaped_root(int64_t group) const {
    const tracing::Group& of = trace_.groups()[reading_.groups[static_cast<size_t>(group)]];
    return std::ranges::any_of(of.members, [&](size_t member) {
      const tracing::StandIn& one = trace_.stand_ins()[member];
      return one.tensor.is_same(of.tensor) && is_reshaped(one);
    });
  }

  /// A view that was written has its history from the base, whatever it was taken of.
  bool is_renewed(const at::Tensor& result, int64_t group) const {
    if (!result.is_view() || !result.requires_grad() || result.is_leaf()) return false;
    const tracing::Group& of = trace_.groups()[reading_.groups[static_cast<size_t>(group)]];
    if (!of.is_root || !of.tensor.requires_grad()) return false;
    const torch::autograd::Edge base = edge_of(of.tensor);
    for (auto node = result.grad_fn(); node && node->num_outputs() == 1;) {
      const torch::autograd::Edge next = node->next_edge(0);
      if (next == base) return true;
      for (size_t member : of.members) {
        const at::Tensor& tensor = trace_.stand_ins()[member].tensor;
        if (tensor.requires_grad() && next == edge_of(tensor)) return false;
      }
      node = next.function;
    }
    return false;
  }

  bool replay_of_input(ir::OutputFacts& facts, const at::Tensor& result, ir::ValueId value,
                       size_t index, bool named) {
    bool detaches = false;
    for (ir::ValueId at = value;;) {
      // A view that shows the same as an input is not a view of that input.
      const bool beside = named && at == value && result.is_view();
      if (const auto input = beside ? std::nullopt : input_with(at, result, named)) {
        facts.source = *input;
        require_replayable(facts, *input, index);
        const bool detached = !detaches && is_stranger(result, at == value, *input);
        // Eager's view was taken before the write. Taken after it, it would have a gradient.
        const ir::InputFacts& source = reading_.signature.inputs[static_cast<size_t>(*input)];
        const bool before_writes = !source.metadata_changed && tracing::leads_nowhere(result);
        replay(ir::CallTensor::input(*input), before_writes, at, value, index, detached);
        return true;
      }
      const ir::Node* view = view_op(graph_, at);
      if (!view) return false;
      detaches = detaches || view->op().schema().name() == "aten::detach";
      at = source_of(*view);
    }
  }

  /// The result is a view of an input as the input came, before it was reshaped in place. Another
  /// input that shows the same now is not what eager's view is taken of.
  bool replay_of_reshaped(ir::OutputFacts& facts, const at::Tensor& result, ir::ValueId value,
                          size_t index) {
    if (!result.is_view() || facts.made_leaf) return false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const ir::InputFacts& input = reading_.signature.inputs[i];
      if (!input.metadata_changed || input.data_written || input.group >= 0 ||
          !result._base().is_same(inputs_[i]->tensor) ||
          !has_path(inputs_[i]->first_value, value)) {
        continue;
      }
      facts.source = static_cast<int64_t>(i);
      replay(ir::CallTensor::input(facts.source), true, inputs_[i]->first_value, value, index);
      return true;
    }
    return false;
  }

  /// The same of a member of a written group, which is a view of the base in the trace. Without a
  /// gradient, a view that is taken before the write shows the new data as well as one after it.
  bool replay_of_member(ir::OutputFacts& facts, const at::Tensor& result, ir::ValueId value,
                        size_t index) {
    if (!result.is_view() || result.requires_grad() || facts.made_leaf) return false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const ir::InputFacts& input = reading_.signature.inputs[i];
      if (!input.metadata_changed || input.group < 0 || input.duplicate_of >= 0 ||
          !result._base().is_same(inputs_[i]->tensor))
        continue;
      const std::optional<ir::ValueId> root = taken_as_came(*inputs_[i], value);
      if (!root) continue;
      facts.source = static_cast<int64_t>(i);
      replay(ir::CallTensor::input(facts.source), true, *root, value, index);
      return true;
    }
    return false;
  }

  /// On the way from a view to its memory, what shows the same part as the input did when it came.
  std::optional<ir::ValueId> taken_as_came(const tracing::StandIn& input, ir::ValueId value) const {
    const ir::Node* first = view_op(graph_, input.first_value);
    if (!first || first->op().schema().name() != "aten::as_strided") return std::nullopt;
    for (const ir::Node* view = view_op(graph_, value); view;
         value = source_of(*view), view = view_op(graph_, value)) {
      if (view->op() == first->op() &&
          std::equal(view->operands().begin() + 1, view->operands().end(),
                     first->operands().begin() + 1, first->operands().end()))
        return value;
    }
    return std::nullopt;
  }

  /// Of several inputs on one memory that nobody writes, one that the view can be taken of as it
  /// came: the one that autograd names, if it can.
  std::optional<int64_t> member_above(const at::Tensor& result, ir::ValueId value) const {
    std::optional<int64_t> found;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const tracing::StandIn& one = *inputs_[i];
      if (one.group < 0 || reading_.signature.inputs[i].duplicate_of >= 0 ||
          storage_of(one.tensor) != storage_of(result) || !has_path(one.first_value, value)) {
        continue;
      }
      const bool named = result.is_view() && result._base().is_same(one.tensor);
      if (!found || named) found = static_cast<int64_t>(i);
    }
    return found;
  }

  std::optional<int64_t> input_with(ir::ValueId value, const at::Tensor& result, bool named) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (named && !ops::root_of(result).is_same(ops::root_of(inputs_[i]->tensor))) continue;
      if (reading_.signature.inputs[i].duplicate_of < 0 &&
          storage_of(inputs_[i]->tensor) == storage_of(result) &&
          same_(reading_.new_data[i]) == same_(value) && !passes_by(result, *inputs_[i])) {
        return static_cast<int64_t>(i);
      }
    }
    return std::nullopt;
  }

  /// The function has taken the same view of the base that the input is. Its gradient goes to the
  /// base, not through the input.
  bool passes_by(const at::Tensor& result, const tracing::StandIn& input) const {
    if (!result.is_view() || !result.requires_grad() || result.is_leaf()) return false;
    if (input.group < 0 || !input.tensor.requires_grad() || input.histories.empty()) return false;
    const tracing::Group& group = trace_.groups()[static_cast<size_t>(input.group)];
    if (input.tensor.is_same(group.tensor)) return false;
    const auto last = edge_of(input.tensor).function;
    auto node = result.grad_fn();
    while (node && node != last && !tracing::is_history_of(input, node.get())) {
      if (node == group.edge.function) return true;
      if (node->num_outputs() != 1) return false;
      node = node->next_edge(0).function;
    }
    return false;
  }

  /// data() gives a tensor on the same memory that autograd does not know to be related.
  bool is_stranger(const at::Tensor& result, bool shows_all, int64_t input) const {
    const ir::InputFacts& facts = reading_.signature.inputs[static_cast<size_t>(input)];
    if (facts.storage == ir::StorageChange::Replaced && facts.set_to < 0 && !result.is_view()) {
      TANDEM_UNSUPPORTED("signature", "a result shares the memory that set_() gave to ",
                         trace_.name_of(*inputs_[static_cast<size_t>(input)]),
                         base::detail_line("at", trace_.line_of(result)),
                         "\n  remedy: return the input itself, or a copy of it (clone())");
    }
    if (shows_all) return true;
    const at::Tensor& of = inputs_[static_cast<size_t>(input)]->tensor;
    return facts.requires_grad_after && !result.requires_grad() &&
           !ops::root_of(result).is_same(ops::root_of(of));
  }

  /// A leaf is made before the inputs change, since histories of others lead to it.
  void require_replayable(const ir::OutputFacts& facts, int64_t input, size_t index) const {
    if (!facts.made_leaf ||
        !reading_.signature.inputs[static_cast<size_t>(input)].metadata_changed) {
      return;
    }
    TANDEM_UNSUPPORTED("signature", "output ", index, " is a leaf on the memory of ",
                       trace_.name_of(*inputs_[static_cast<size_t>(input)]),
                       ", which the function also reshapes in place",
                       base::detail_line("at", trace_.line_of(trace_.results().tensors[index])),
                       "\n  remedy: return a copy of it (clone()), or reshape out of place");
  }

  bool has_path(ir::ValueId root, ir::ValueId value) const {
    return signature::has_path(graph_, same_, root, value);
  }

  void require_path(ir::ValueId root, ir::ValueId value, size_t index) const {
    if (has_path(root, value)) return;
    TANDEM_UNSUPPORTED("signature", "output ", index,
                       " shares memory with an input or another output in a way that view ops "
                       "do not explain",
                       base::detail_line("at", trace_.line_of(trace_.results().tensors[index])),
                       "\n  remedy: return a copy of it (clone())");
  }

  void replay(ir::CallTensor source, bool as_found, ir::ValueId root, ir::ValueId value,
              size_t index, bool detached = false) {
    require_path(root, value, index);
    // What is detached has a handle of its own, its views with it.
    const std::tuple key{source.kind, source.index, as_found, detached ? first_like(index) + 1 : 0};
    auto it = builders_.find(key);
    if (it == builders_.end()) {
      it = builders_.try_emplace(key, graph_, same_, root).first;
      it->second.set_source(source, as_found, detached);
    }
    // Of inference tensors autograd knows nothing, and a view of one must stay what it is.
    const bool of_inference =
        source.is_input() && inputs_[static_cast<size_t>(source.index)]->real.is_inference();
    it->second.add_output(value, static_cast<int64_t>(index),
                          of_inference || trace_.results().tensors[index].is_view(),
                          first_like(index));
  }

  /// The first result that autograd takes for a view of the same tensor.
  size_t first_like(size_t index) const {
    const auto& results = trace_.results().tensors;
    size_t first = 0;
    while (!results[first].defined() ||
           !ops::root_of(results[first]).is_same(ops::root_of(results[index]))) {
      ++first;
    }
    return first;
  }

  const tracing::Trace& trace_;
  const ir::Graph& graph_;
  const std::vector<const tracing::StandIn*>& inputs_;
  Reading& reading_;
  const SameViews same_;
  std::map<std::tuple<ir::CallTensor::Kind, int64_t, bool, size_t>, Builder> builders_;
};

}  // namespace

at::Tensor reshaped_as_in_run(const tracing::Trace& trace, const tracing::StandIn& input) {
  const ir::Graph& graph = trace.recording().graph();
  const ir::ValueId value = tracing::current_value(input.tensor), whole = whole_of(input.tensor);
  const SameViews same(graph);
  if (!has_path(graph, same, whole, value)) return {};
  Builder builder(graph, same, whole);
  builder.add_output(value, 0, /*is_view=*/true, 0);
  const tracing::OutsideTrace outside;
  const at::NoGradGuard no_grad;
  return ops::replay_views(builder.take(), input.real.detach(), {false}).front();
}

void add_view_replays(const tracing::Trace& trace,
                      const std::vector<const tracing::StandIn*>& inputs, Reading& reading) {
  if (std::ranges::none_of(reading.signature.outputs, is_replayed)) return;
  // The values first: looking one up may record the regeneration of a view.
  for (const at::Tensor& result : trace.results().tensors) {
    if (result.defined()) tracing::current_value(result);
  }
  Replays replays(trace, inputs, reading);
  for (size_t i = 0; i < reading.signature.outputs.size(); ++i) {
    if (is_replayed(reading.signature.outputs[i])) replays.add(i);
  }
  replays.finish();
}

}  // namespace tandem::signature
