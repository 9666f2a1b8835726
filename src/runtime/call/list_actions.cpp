#include "runtime/call/list_actions.h"

#include "base/error.h"

#include <algorithm>
#include <set>

namespace tandem::runtime {
namespace {

using ir::CallTensor;
using enum Action::Do;

CallTensor input_at(size_t index) { return CallTensor::input(static_cast<int64_t>(index)); }
CallTensor output_at(size_t index) { return CallTensor::output(static_cast<int64_t>(index)); }

class Lister {
 public:
  Lister(const Split& split, CallPlan& plan)
      : signature_(split.signature),
        forward_(split.forward),
        plan_(plan),
        new_data_(signature_.inputs.size(), -1),
        is_there_(signature_.outputs.size(), false) {
    for (size_t i = 0; i < forward_.outputs().size(); ++i) {
      const ir::Descriptor& role = forward_.outputs()[i].role;
      if (role.role == ir::Role::Mutated)
        new_data_[static_cast<size_t>(role.index)] = static_cast<int64_t>(i);
    }
  }

  void run() {
    const std::vector<Change> changes = ordered(all_changes());
    hold_inputs(Saved::As::InputAsFound);
    take_new_memory();
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const ir::InputFacts& input = facts(i);
      if (input.duplicate_of < 0 && !input.requires_grad && input.requires_grad_after &&
          input.is_leaf_after) {
        add({.what = RequireGrad, .at = input_at(i)});
      }
    }
    replay_views(When::Early);
    if (signature_.training) make_nodes();
    for (size_t i = 0; i < plan_.taken_targets; ++i) {
      if (plan_.targets[i].number == 0) take_edge(i);
    }
    for (const Change& change : changes) {
      if (change.at.is_group()) {
        change_group(change);
      } else {
        change_input(change);
      }
    }
    for (size_t i = 0; i < plan_.taken_targets; ++i) {
      if (!taken_.contains(i)) take_edge(i);
    }
    if (signature_.training) connect_results();
    replay_views(When::Late);
    if (autograd_sees()) ask_histories(changes);
    place_same_tensors();
    if (signature_.grad_mode_after)
      add({.what = SetGradMode, .number = *signature_.grad_mode_after});
  }

 private:
  /// An input or group that the call changes in a way that shows in autograd or in its metadata.
  struct Change {
    CallTensor at;
    size_t part = 0;  // of its node, if it is rewritten
  };
  enum class When { Early, Late };

  void add(Action action) { plan_.actions.push_back(std::move(action)); }

  const ir::InputFacts& facts(size_t input) const { return signature_.inputs[input]; }
  const ir::InputFacts& facts(const CallTensor& input) const {
    return facts(static_cast<size_t>(input.index));
  }

  /// By exactly what eager's counter moves. Members of a group move with it, tensors that share a
  /// counter with the first of them.
  static int64_t own_delta(const ir::InputFacts& input) {
    return input.counter_of < 0 && input.group < 0 ? input.version_delta : 0;
  }

  static bool is_switched(const ir::InputFacts& input) {
    return input.requires_grad != input.requires_grad_after;
  }

  std::vector<Change> all_changes() const {
    std::vector<Change> changes;
    for (size_t i = 0; i < signature_.groups.size(); ++i)
      changes.push_back({CallTensor::group(static_cast<int64_t>(i))});
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      const ir::InputFacts& input = facts(i);
      if (input.duplicate_of >= 0) continue;
      if (new_data_[i] >= 0 || own_delta(input) != 0 || input.history_changed ||
          input.metadata_changed || input.storage != ir::StorageChange::None ||
          is_switched(input)) {
        changes.push_back({input_at(i)});
      }
    }
    for (Change& change : changes) {
      for (const ir::TangentFacts& tangent : signature_.tangents) {
        if (tangent.part > 0 && tangent.of.tensor == change.at)
          change.part = static_cast<size_t>(tangent.part);
      }
    }
    // A storage is given to another input before its own memory is given back: resized ones come
    // last.
    std::ranges::stable_partition(changes, [&](const Change& change) {
      return !change.at.is_input() || facts(change.at).storage != ir::StorageChange::Resized;
    });
    return changes;
  }

  /// A change comes after the changes to whose outcome its node leads. Histories have no cycles, so
  /// one change is always ready.
  std::vector<Change> ordered(std::vector<Change> changes) const {
    std::vector<Change> order;
    while (!changes.empty()) {
      const auto ready = std::ranges::find_if(changes, [&](const Change& change) {
        return std::ranges::none_of(changes, [&](const Change& other) {
          return &other != &change && waits_for(change, other.at);
        });
      });
      TANDEM_CHECK(ready != changes.end(), "lower", "rewritten inputs wait for each other");
      order.push_back(*ready);
      changes.erase(ready);
    }
    return order;
  }

  bool waits_for(const Change& change, const CallTensor& other) const {
    if (change.part == 0) return false;
    return std::ranges::any_of(plan_.parts[change.part].edges, [&](const auto& edge) {
      const ir::History& target = plan_.targets[edge.target];
      if (target.number == 0) return false;
      return target.tensor == other || (other.is_group() && target.tensor.is_input() &&
                                        facts(target.tensor).group == other.index);
    });
  }

  /// Holds the inputs that are saved themselves, in the shape that they have at this time.
  void hold_inputs(Saved::As as) {
    for (size_t i = 0; i < plan_.saved.size(); ++i) {
      if (plan_.saved[i].as != as) continue;
      add({.what = HoldInput,
           .at = CallTensor::input(plan_.saved[i].of),
           .number = plan_.first_saved + static_cast<int64_t>(i)});
    }
  }

  void take_new_memory() {
    for (size_t i = 0; i < forward_.outputs().size(); ++i) {
      const ir::Descriptor& role = forward_.outputs()[i].role;
      const auto position = static_cast<int64_t>(i);
      if (role.role == ir::Role::Base) {
        add({.what = Take, .at = CallTensor::base(role.index), .number = position});
      } else if (role.role == ir::Role::Output) {
        const auto result = static_cast<size_t>(role.index);
        is_there_[result] = true;
        add({.what = Take, .at = output_at(result), .number = position});
        if (signature_.outputs[result].made_leaf)
          add({.what = RequireGrad, .at = output_at(result)});
      }
    }
    for (size_t i = 0; i < signature_.bases.size(); ++i) {
      if (const int64_t output = signature_.bases[i].output; output >= 0) {
        add({.what = Same,
             .at = CallTensor::base(static_cast<int64_t>(i)),
             .source = output_at(static_cast<size_t>(output))});
      }
    }
  }

  /// Whether an alias is made before the inputs change. That is so for views taken of an input
  /// before it was reshaped or detached in place. It is so for aliases that requires_grad_() made
  /// leaves, too: histories of others lead to them.
  When time_of(const ir::ViewReplay& replay, const ir::OutputFacts& output) const {
    if (replay.as_found || output.made_leaf) return When::Early;
    if (!replay.source.is_input() || !output.requires_grad) return When::Late;
    const ir::InputFacts& source = facts(replay.source);
    return source.requires_grad && !source.requires_grad_after ? When::Early : When::Late;
  }

  void replay_views(When when) {
    for (size_t k = 0; k < signature_.replays.size(); ++k) {
      const ir::ViewReplay& replay = signature_.replays[k];
      CallPlan::Replay planned{.replay = k, .grad_modes = {}, .made = {}};
      std::vector<size_t> results;
      for (size_t i = 0; i < replay.graph.outputs().size(); ++i) {
        const auto result = static_cast<size_t>(replay.graph.outputs()[i].role.index);
        const ir::OutputFacts& output = signature_.outputs[result];
        // A view made without grad is a leaf, even if it says that it requires grad because its
        // base does.
        planned.grad_modes.push_back(!output.is_leaf);
        if (time_of(replay, output) != when) continue;
        planned.made.push_back(i);
        results.push_back(result);
      }
      if (results.empty()) continue;
      add({.what = ReplayViews, .number = static_cast<int64_t>(plan_.replays.size())});
      plan_.replays.push_back(std::move(planned));
      for (size_t result : results) finish_view(result, when);
    }
  }

  void finish_view(size_t result, When when) {
    const ir::OutputFacts& output = signature_.outputs[result];
    is_there_[result] = true;
    if (when == When::Early) {
      if (output.made_leaf) add({.what = RequireGrad, .at = output_at(result)});
      return;
    }
    if (!output.own_history) return;
    // What a custom function made of an input is a view of it, but has the function's history. For
    // that reason eager refuses to write it.
    const bool custom = output.of_custom_function;
    for (const ir::TangentFacts& tangent : signature_.tangents) {
      if (tangent.of.tensor != output_at(result) || tangent.part > 0) continue;
      if (custom) add({.what = MarkCustomView, .at = output_at(result)});
      set_history(custom ? SetHistory : SetViewHistory, tangent);
      return;
    }
  }

  void make_nodes() {
    add({.what = MakeNodes});
    for (size_t part = 0; part < plan_.parts.size(); ++part) {
      for (size_t tangent : plan_.parts[part].tangents) {
        const CallTensor& of = signature_.tangents[tangent].of.tensor;
        // An input does not look yet as its gradient will.
        add({.what = AddSlot,
             .at = of,
             .number = of.is_input() ? new_data_[static_cast<size_t>(of.index)] : -1,
             .part = part});
      }
    }
  }

  void take_edge(size_t target) {
    taken_.insert(target);
    add({.what = TakeEdge, .number = static_cast<int64_t>(target)});
  }

  /// Takes the edges of an input or group as the call leaves it.
  void settle(const CallTensor& tensor) {
    for (size_t i = 0; i < plan_.taken_targets; ++i) {
      if (plan_.targets[i].number > 0 && plan_.targets[i].tensor == tensor) take_edge(i);
    }
  }

  void move_version(const CallTensor& at, int64_t by) {
    if (by != 0) add({.what = MoveVersion, .at = at, .number = by});
  }

  void change_group(const Change& change) {
    const ir::GroupFacts& group = signature_.groups[static_cast<size_t>(change.at.index)];
    if (change.part > 0) add({.what = Connect, .part = change.part});
    for (size_t i = 0; i < signature_.inputs.size(); ++i) {
      if (new_data_[i] >= 0 && facts(i).group == change.at.index && !facts(i).metadata_changed)
        add({.what = Write, .at = input_at(i), .number = new_data_[i]});
    }
    if (group.history_changed) add({.what = Attach, .at = change.at, .part = change.part});
    // Before their edges are taken: views renew their grad_fn when the version has moved.
    for (int64_t member : group.members) {
      const CallTensor input = CallTensor::input(member);
      if (facts(input).counter_of < 0) move_version(input, facts(input).version_delta);
    }
    settle(change.at);
    for (int64_t member : group.members) {
      // One that is reshaped, too, has its turn later.
      const CallTensor input = CallTensor::input(member);
      if (!facts(input).metadata_changed) settle(input);
    }
  }

  void change_input(const Change& change) {
    const ir::InputFacts& input = facts(change.at);
    const int64_t data = new_data_[static_cast<size_t>(change.at.index)];
    if (change.part > 0) add({.what = Connect, .part = change.part});
    if (input.requires_grad && !input.requires_grad_after)
      add({.what = input.is_leaf ? StopGrad : Detach, .at = change.at});
    change_geometry(change.at, input);
    const bool by_group = input.group >= 0 && !input.metadata_changed;
    if (data >= 0 && !by_group) {
      const bool replaced = input.storage == ir::StorageChange::Replaced;
      add({.what = replaced ? ReplaceStorage : Write, .at = change.at, .number = data});
    }
    if (change.part > 0) {
      add({.what = Attach, .at = change.at, .part = change.part});
      if (input.group >= 0) {
        // Members without a common root have histories of their own.
        const ir::GroupFacts& group = signature_.groups[static_cast<size_t>(input.group)];
        for (int64_t member : group.members) {
          if (group.is_root || CallTensor::input(member) == change.at)
            add({.what = RenewHistory, .at = CallTensor::input(member)});
        }
      }
    }
    move_version(change.at, own_delta(input));
    if (input.history_changed || input.metadata_changed) settle(change.at);
  }

  void change_geometry(const CallTensor& at, const ir::InputFacts& input) {
    if (!input.metadata_changed && input.storage == ir::StorageChange::None) return;
    if (input.storage == ir::StorageChange::Resized) {
      add({.what = ResizeStorage, .at = at});
    } else if (input.history_changed && !input.data_written) {
      // By itself a view has a gradient formula; with new data the node of the call has it.
      add({.what = RestrideAsAView, .at = at});
    } else if (input.storage == ir::StorageChange::Grown) {
      add({.what = Grow, .at = at});
    } else if (input.set_to >= 0) {
      add({.what = SetStorage, .at = at});
    } else if (input.storage == ir::StorageChange::None) {
      add({.what = Restride, .at = at});
    }
  }

  /// That of a result or base is a slot of one of the results' nodes.
  void set_history(Action::Do what, const ir::TangentFacts& tangent) {
    Action action{.what = what, .at = tangent.of.tensor, .number = -1};
    const auto number = static_cast<size_t>(&tangent - signature_.tangents.data());
    for (size_t part = 0; part < plan_.parts.size() && tangent.part == 0; ++part) {
      const std::vector<size_t>& slots = plan_.parts[part].tangents;
      const auto slot = std::ranges::find(slots, number);
      if (slot == slots.end()) continue;
      action.number = slot - slots.begin();
      action.part = part;
    }
    add(action);
  }

  /// The nodes of the results, which lead to everything else.
  void connect_results() {
    for (size_t part = 0; part < plan_.parts.size(); ++part) {
      if (plan_.parts[part].of == 0) add({.what = Connect, .part = part});
    }
    for (const ir::TangentFacts& tangent : signature_.tangents) {
      const CallTensor& of = tangent.of.tensor;
      const bool is_there =
          of.kind != CallTensor::Kind::Output || is_there_[static_cast<size_t>(of.index)];
      if (tangent.part <= 0 && is_there) set_history(SetHistory, tangent);
    }
    hold_inputs(Saved::As::WrittenInput);
    add({.what = Save});
  }

  /// Whether autograd sees anything of the call. If not, the call writes data and makes results,
  /// and that is all.
  bool autograd_sees() const {
    const auto plain_input = [&](const ir::InputFacts& input) {
      return !input.history_changed && !input.metadata_changed &&
             input.storage == ir::StorageChange::None && !is_switched(input) &&
             !(signature_.training && input.histories > 1);
    };
    const auto plain_output = [](const ir::OutputFacts& output) {
      return !output.made_leaf && !output.own_history &&
             output.kind != ir::OutputKind::AliasOfOutput;
    };
    return !signature_.groups.empty() || !signature_.bases.empty() || signature_.grad_mode_after ||
           !std::ranges::all_of(signature_.inputs, plain_input) ||
           !std::ranges::all_of(signature_.outputs, plain_output);
  }

  /// In eager a view that was written has its grad_fn at once. Here it would get one when first
  /// asked for its history, and is_leaf() does not ask.
  void ask_histories(const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      if (change.at.is_input()) add({.what = AskHistory, .at = change.at});
      if (change.part == 0) continue;
      for (const CallPlan::PassedHistory& one : plan_.parts[change.part].passed) {
        if (one.from == CallPlan::PassedHistory::From::Kept)
          add({.what = KeepHistory, .at = one.of.tensor, .part = change.part});
      }
    }
  }

  void place_same_tensors() {
    for (size_t i = 0; i < signature_.outputs.size(); ++i) {
      const ir::OutputFacts& output = signature_.outputs[i];
      if (output.kind == ir::OutputKind::IsInput)
        add({.what = Same, .at = output_at(i), .source = CallTensor::input(output.source)});
      if (output.kind == ir::OutputKind::SameAsOutput)
        add({.what = Same,
             .at = output_at(i),
             .source = output_at(static_cast<size_t>(output.source))});
    }
  }

  const ir::Signature& signature_;
  const ir::Graph& forward_;
  CallPlan& plan_;
  std::vector<int64_t>
      new_data_;                // by input: its position among the forward graph's outputs, or -1
  std::vector<bool> is_there_;  // by result: made by now
  std::set<size_t> taken_;      // targets
};

}  // namespace

void list_actions(const Split& split, CallPlan& plan) { Lister(split, plan).run(); }

}  // namespace tandem::runtime
