#include "runtime/backward/kept_values.h"

#include "base/error.h"
#include "ir/gradient_arguments.h"
#include "runtime/call/version_check.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace tandem::runtime {

namespace autograd = torch::autograd;

namespace {

/// Raises if an input was written since the call. Eager's backward reads what it has saved; a
/// backward with create_graph computes that again from the inputs.
void check_primal(const at::Tensor& tensor, uint32_t version, const ir::InputFacts& facts) {
  if (!tensor.is_inference()) check_saved(tensor, version, facts.requires_grad && !facts.is_leaf);
}

/// As the guards want them.
c10::DispatchKeySet keys_of(const EntryState& entry, size_t input) {
  const GuardRows& guards = entry.artifact().guards;
  const TensorRow& row =
      input < guards.lifted.size()
          ? guards.lifted[input]
          : guards.arguments[static_cast<size_t>(entry.signature().inputs[input].role.index)];
  return {c10::DispatchKeySet::RAW, row.keys};
}

/// Its requires_grad, and nothing else.
bool is_only_switched(const ir::InputFacts& facts) {
  return !facts.data_written && !facts.history_changed && !facts.metadata_changed &&
         facts.storage == ir::StorageChange::None;
}

/// Another handle on what a tensor holds now. It counts writes together with the tensor.
at::Tensor handle_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(),
                                                 /*allow_tensor_metadata_change=*/true));
}

/// Whether somebody else could write the memory that is kept, which eager would notice.
bool is_watched(const Saved::How& how) {
  return how.as != Saved::As::Value && how.as != Saved::As::Copy;
}

bool any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

/// What the backward writes of an argument. With its history it would hold the node that holds it.
at::Tensor itself_of(const at::Tensor& argument, const ir::InputFacts& facts) {
  return facts.history_changed ? argument.tensor_data() : argument;
}

[[noreturn]] void throw_without_copy(const EntryState& entry, size_t input) {
  const ir::InputFacts& facts = entry.signature().inputs[input];
  entry.keep_copies();
  throw UserError(
      "call",
      base::str(ir::name_of_backward(), " needs ", ir::to_string(facts.role),
                " as it was before the call, which writes it",
                "\n  remedy: run the step again: with Options::higher_order, from now on each "
                "call keeps a copy until its backward; or write the tensor outside the function"));
}

}  // namespace

void KeptValues::save(const EntryState& entry, std::span<const at::Tensor> inputs,
                      std::span<at::Tensor> outputs, std::span<const at::Tensor> results,
                      std::span<const at::Tensor> bases) {
  if (entry.keeps_primals()) save_primals(entry, inputs);
  if (!at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) [[unlikely]] {
    return save_with_hooks(entry, inputs, outputs);
  }
  const CallPlan& plan = entry.plan();
  const int64_t lifted = entry.signature().lifted_count;
  const auto watch = [&](const at::Tensor& tensor, int64_t number) {
    watched_.push_back(
        {tensor.unsafeGetTensorImpl()->version_counter(), version_to_save(tensor), number});
  };
  if (!entry.noted_lifted().empty()) note_memory(entry, inputs);
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const auto of = static_cast<size_t>(plan.saved[i].of);
    const Saved::As as = plan.saved[i].as;
    at::Tensor& value = outputs[static_cast<size_t>(plan.first_saved) + i];
    // What nearly all saved values are, first: see Runner::run() in call/run_actions.cpp.
    if (as == Saved::As::Input) {
      if (plan.saved[i].of < lifted) {
        lifted_versions_.push_back(version_to_save(inputs[of]));
      } else {
        arguments_.emplace_back(inputs[of], version_to_save(inputs[of]));
      }
      continue;
    }
    if (as == Saved::As::Itself) {
      if (plan.saved[i].of >= lifted)
        itself_.make().push_back(itself_of(inputs[of], entry.signature().inputs[of]));
      continue;
    }
    if (as == Saved::As::Result || as == Saved::As::Base) {
      const at::Tensor& result = as == Saved::As::Result ? results[of] : bases[of];
      watch(result, static_cast<int64_t>(result.output_nr()));
      values_.push_back(value.tensor_data());
      continue;
    }
    if (as == Saved::As::DataOfInput) {
      watch(inputs[of], -1);
    } else if (as == Saved::As::InputAsFound || as == Saved::As::WrittenInput) {
      watch(value, -1);
    }
    values_.push_back(std::move(value));
  }
}

void KeptValues::note_memory(const EntryState& entry, std::span<const at::Tensor> inputs) {
  const std::vector<size_t>& noted = entry.noted_lifted();
  entry_ = &entry;
  entry.memory_pool().take(lifted_memory_);
  lifted_memory_.resize(noted.size());
  for (size_t k = 0; k < noted.size(); ++k) lifted_memory_[k].note(inputs[noted[k]]);
}

/// What a tensor no longer has is not kept for the next call.
void KeptValues::give_memory() {
  if (lifted_memory_.empty()) return;
  const std::vector<size_t>& noted = entry_->noted_lifted();
  for (size_t k = 0; k < noted.size(); ++k) {
    if (!lifted_memory_[k].is_of(entry_->lifted()[noted[k]])) lifted_memory_[k] = {};
  }
  entry_->memory_pool().give(std::move(lifted_memory_));
  lifted_memory_.clear();
}

void KeptValues::save_primals(const EntryState& entry, std::span<const at::Tensor> inputs) {
  for (size_t i : entry.primals().unread_leaves) {
    if (stands_apart(inputs[i])) apart_.make().push_back(i);
  }
  const auto version = [](const at::Tensor& tensor) {
    const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
    return counter.enabled() ? counter.current_version() : 0;  // an inference tensor has none
  };
  for (size_t i : entry.primals().held) primals_.emplace_back(inputs[i], version(inputs[i]));
  for (size_t i : entry.primals().rewritten)
    rewritten_.make().emplace_back(inputs[i], version(inputs[i]));
  for (size_t i : entry.primals().watched) primal_versions_.push_back(version(inputs[i]));
}

void KeptValues::save_with_hooks(const EntryState& entry, std::span<const at::Tensor> inputs,
                                 std::span<at::Tensor> outputs) {
  const CallPlan& plan = entry.plan();
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const Saved::How& how = plan.saved[i];
    if (how.as == Saved::As::Itself) {
      const auto of = static_cast<size_t>(how.of);
      if (how.of >= entry.signature().lifted_count)
        itself_.make().push_back(itself_of(inputs[of], entry.signature().inputs[of]));
      hooked_.make().emplace_back();
      continue;
    }
    const at::Tensor& tensor = how.as == Saved::As::Input
                                   ? inputs[static_cast<size_t>(how.of)]
                                   : outputs[static_cast<size_t>(plan.first_saved) + i];
    const bool own = how.as == Saved::As::Result || how.as == Saved::As::Base;
    hooked_.make().emplace_back(own ? tensor.tensor_data() : tensor, /*is_output=*/false);
  }
}

KeptValues::SavedInput KeptValues::next_input(const EntryState& entry, size_t slot,
                                              Cursor& cursor) {
  const auto input = static_cast<size_t>(entry.plan().saved[slot].of);
  const CallPlan::SavedInput& plan = entry.plan().saved_inputs[cursor.input++];
  const ir::InputFacts& facts = entry.signature().inputs[input];
  const FoundMemory* found = nullptr;
  if (input < entry.lifted().size()) {
    if (plan.as_found) found = &lifted_memory_[entry.note_of(input)];
    return {entry.lifted()[input], nullptr, lifted_versions_[cursor.lifted++], found, plan, facts};
  }
  SavedArgument& kept = arguments_[cursor.argument++];
  if (plan.as_found) found = &kept.memory;
  return {kept.tensor, &kept.tensor, kept.version, found, plan, facts};
}

const at::Tensor& KeptValues::next_itself(const EntryState& entry, Cursor& cursor) const {
  const CallPlan::SavedInput& plan = entry.plan().written_later[cursor.itself++];
  const ir::InputFacts& facts = entry.signature().inputs[plan.input];
  const at::Tensor& tensor = plan.input < entry.lifted().size()
                                 ? entry.lifted()[plan.input]
                                 : (*itself_)[cursor.itself_argument++];
  require_kind(tensor, plan, facts);
  return tensor;
}

void KeptValues::check_versions(const EntryState& entry, const Backward& backward,
                                autograd::Node& node) {
  const CallPlan& plan = entry.plan();
  Cursor inputs;
  size_t value = 0, result = 0;
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    const Saved::How& how = plan.saved[i];
    if (how.as == Saved::As::Input) {
      const SavedInput one = next_input(entry, i, inputs);
      if (!backward.checks[i]) continue;
      check_saved(one.tensor, one.version, !one.facts.is_leaf);
      if (!one.found) require_kind(one.tensor, one.plan, one.facts);
      continue;
    }
    if (how.as == Saved::As::Itself) continue;
    const at::Tensor& kept = values_[value++];
    if (!is_watched(how)) continue;
    const Watched& watched = watched_[result++];
    const uint32_t now = watched.counter.current_version();
    if (backward.checks[i] && now != watched.version) {
      const auto origin =
          watched.number < 0 ? autograd::Edge()
                             : autograd::Edge(node.getptr(), static_cast<uint32_t>(watched.number));
      throw_modified(kept, origin, now, watched.version);
    }
  }
}

void KeptValues::require_unspent(const Backward& backward) const {
  bool spent = released_ && any(backward.uses_up);
  for (size_t i = 0; i < used_up_->size(); ++i) spent |= (*used_up_)[i] && backward.uses_up[i];
  for (size_t i = 0; i < taken_->size(); ++i) spent |= (*taken_)[i] && backward.reads[i];
  TORCH_CHECK(!spent, autograd::ERR_BACKWARD_TWICE);
}

/// Notes what a backward without a kept graph uses up. Eager's graph can be walked again where it
/// has saved nothing.
void KeptValues::spend(const EntryState& entry, const Backward& backward) {
  const auto& tangents = entry.signature().tangents;
  const std::vector<bool>& defined = backward.asked.defined;
  const auto all = [&](const std::vector<bool>& flags) {
    for (size_t i = 0; i < flags.size(); ++i) {
      if (!flags[i] && tangents[i].part >= 0) return false;
    }
    return true;
  };
  const bool uses_up = any(backward.uses_up), takes_all = backward.asked.wanted.empty();
  if (uses_up && used_up_->empty() && takes_all && all(defined)) {
    released_ = true;
  } else if (uses_up) {
    std::vector<bool>& used_up = used_up_.make();
    used_up.resize(backward.uses_up.size());
    for (size_t i = 0; i < used_up.size(); ++i) used_up[i] = used_up[i] || backward.uses_up[i];
    const auto& formulas = entry.signature().formulas;
    released_ = true;
    for (size_t i = 0; i < formulas.size(); ++i)
      released_ = released_ && (used_up[i] || !formulas[i].saves);
  }
  if (uses_up && !released_ && takes_all) {
    std::vector<bool>&spent = spent_.make(), &taken_slots = taken_.make();
    spent.resize(defined.size());
    for (size_t i = 0; i < defined.size(); ++i) spent[i] = spent[i] || defined[i];
    taken_slots.clear();
    for (const std::vector<bool>& readers : entry.backward().tangent_use().readers) {
      bool taken = true;
      for (size_t i = 0; i < readers.size(); ++i) taken = taken && (!readers[i] || spent[i]);
      taken_slots.push_back(taken);
    }
  }
  spared_ = !released_;
}

/// For a backward that reads nothing of what has been released.
std::vector<at::Tensor> KeptValues::take_nothing_saved(const EntryState& entry) {
  std::vector<at::Tensor> taken;
  Cursor inputs;
  for (const Saved::How& how : entry.plan().saved)
    taken.push_back(how.as == Saved::As::Itself ? next_itself(entry, inputs) : at::Tensor());
  return taken;
}

std::vector<at::Tensor> KeptValues::take(const EntryState& entry, const Backward& backward,
                                         autograd::Node& node) {
  std::lock_guard lock(mutex_);
  require_unspent(backward);
  if (cleared_) return take_nothing_saved(entry);
  // First every check, then the hand-over: a backward that raises leaves all in place.
  if (hooked_->empty()) check_versions(entry, backward, node);
  const CallPlan& plan = entry.plan();
  std::vector<at::Tensor> saved;
  saved.reserve(plan.saved.size() + entry.signature().tangents.size());
  Cursor inputs;
  if (!hooked_->empty()) {
    for (size_t i = 0; i < plan.saved.size(); ++i) {
      if (plan.saved[i].as == Saved::As::Itself) {
        saved.push_back(next_itself(entry, inputs));
      } else {
        saved.push_back(backward.reads[i] ? (*hooked_)[i].unpack() : at::Tensor());
      }
    }
  }
  const bool keep = autograd::get_current_graph_task_keep_graph();
  if (!keep) spend(entry, backward);
  if (!hooked_->empty()) return saved;
  size_t value = 0;
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    // If nobody will ask for a value again, its handle is passed on, so that the kernels may
    // free it at its last use.
    const bool last = !keep && (released_ || (!taken_->empty() && (*taken_)[i]));
    if (plan.saved[i].as == Saved::As::Input) {
      const SavedInput one = next_input(entry, i, inputs);
      saved.push_back(backward.reads[i] ? saved_input(one.tensor, one.plan, one.found)
                                        : one.tensor);
      if (last && one.argument) one.argument->reset();
      continue;
    }
    if (plan.saved[i].as == Saved::As::Itself) {
      saved.push_back(next_itself(entry, inputs));
      continue;
    }
    at::Tensor& kept = values_[value++];
    saved.push_back(last ? std::move(kept) : kept);
    if (plan.saved[i].as == Saved::As::WrittenInput && backward.reads[i])
      follow_exchange(entry, static_cast<size_t>(plan.saved[i].of), saved.back());
  }
  return saved;
}

/// What is kept of an input that the call has written is a handle of its own, which set_data() does
/// not reach.
void KeptValues::follow_exchange(const EntryState& entry, size_t input, at::Tensor& kept) const {
  if (entry.after_exchange(input) != partition::ReadAs::Now) return;
  const auto follow = [&](const at::Tensor& tensor, const FoundMemory& found) {
    if (found.is_of(tensor)) return;
    const CallPlan::SavedInput plan{.input = input,
                                    .sizes = kept.sizes().vec(),
                                    .strides = kept.strides().vec(),
                                    .dtype = kept.scalar_type()};
    require_kind(tensor, plan, entry.signature().inputs[input]);
    kept = saved_input(tensor, plan, nullptr);
  };
  if (input < entry.lifted().size())
    return follow(entry.lifted()[input], lifted_memory_[entry.note_of(input)]);
  const std::vector<size_t>& rewritten = entry.primals().rewritten;
  const auto at = std::ranges::find(rewritten, input);
  if (at == rewritten.end() || rewritten_->empty()) return;
  const SavedArgument& one = (*rewritten_)[static_cast<size_t>(at - rewritten.begin())];
  follow(one.tensor, one.memory);
}

/// Each once, in an order that is the same for all calls of the entry.
std::vector<KeptValues::Exchanged> KeptValues::find_exchanged(const EntryState& entry) {
  std::vector<Exchanged> found;
  // What has been given up nobody reads any more, or the backward raises.
  if (!hooked_->empty()) return found;
  const auto compare = [&](size_t input, const at::Tensor& tensor, const FoundMemory& memory) {
    if (!tensor.defined() || !tensor.has_storage() || memory.is_of(tensor)) return;
    if (const int64_t same = entry.signature().inputs[input].duplicate_of; same >= 0)
      input = static_cast<size_t>(same);
    if (std::ranges::find(found, input, &Exchanged::input) == found.end())
      found.push_back({input, tensor, memory});
  };
  const std::vector<size_t>& noted = entry.noted_lifted();
  for (size_t k = 0; k < lifted_memory_.size(); ++k)
    compare(noted[k], entry.lifted()[noted[k]], lifted_memory_[k]);
  size_t argument = 0;
  for (const Saved::How& how : entry.plan().saved) {
    if (how.as != Saved::As::Input || how.of < entry.signature().lifted_count) continue;
    if (argument == arguments_.size()) break;
    const SavedArgument& kept = arguments_[argument++];
    compare(static_cast<size_t>(how.of), kept.tensor, kept.memory);
  }
  const PrimalPlan& plan = entry.primals();
  for (size_t k = 0; k < primals_.size(); ++k)
    compare(plan.held[k], primals_[k].tensor, primals_[k].memory);
  for (size_t k = 0; k < rewritten_->size(); ++k)
    compare(plan.rewritten[k], (*rewritten_)[k].tensor, (*rewritten_)[k].memory);
  return found;
}

bool KeptValues::must_trace(const EntryState& entry) {
  if (!entry.reads_in_several_ways()) return false;
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(find_exchanged(entry), [&](const Exchanged& one) {
    return entry.after_exchange(one.input) == partition::ReadAs::Several;
  });
}

void KeptValues::take_exchanged(const EntryState& entry, const std::vector<Exchanged>& exchanged,
                                Primals& taken) const {
  using How = PrimalPlan::How;
  for (const Exchanged& one : exchanged) {
    const ir::InputFacts& facts = entry.signature().inputs[one.input];
    const How how = entry.primals().how[one.input];
    if (how == How::Reshaped || how == How::InGroup) refuse_exchanged(facts);
    if (entry.after_exchange(one.input) != partition::ReadAs::Found) {
      const CallPlan::SavedInput found{.input = one.input,
                                       .sizes = facts.type->static_sizes(),
                                       .strides = {},
                                       .dtype = facts.type->dtype};
      require_kind(one.tensor, found, facts);
    }
    if (how == How::Held || how == How::Lifted) {
      taken.inputs[one.input] =
          input_with(one.found.tensor(*facts.type), one.tensor, taken.accumulators);
    }
    taken.exchanged.push_back(one.input);
    taken.by_now.push_back(handle_of(one.tensor));
  }
}

/// What an input held whose flag the call has switched and whose data it has left alone; undefined
/// if the call does not keep it.
at::Tensor KeptValues::switched(const EntryState& entry, size_t input) const {
  const std::vector<size_t>& held = entry.primals().rewritten;
  const auto at = std::ranges::find(held, input);
  if (at == held.end() || rewritten_->empty()) return {};
  const SavedArgument& one = (*rewritten_)[static_cast<size_t>(at - held.begin())];
  const ir::InputFacts& facts = entry.signature().inputs[input];
  check_primal(one.tensor, one.version, facts);
  return one.memory.tensor(*facts.type);
}

Primals KeptValues::take_primals(const EntryState& entry, const Backward& backward,
                                 autograd::Node& node) {
  std::lock_guard lock(mutex_);
  require_unspent(backward);
  TORCH_CHECK(!cleared_, autograd::ERR_BACKWARD_TWICE);
  if (hooked_->empty()) check_versions(entry, backward, node);
  const std::vector<Exchanged> exchanged = find_exchanged(entry);
  const PrimalPlan& plan = entry.primals();
  const auto& facts = entry.signature().inputs;
  for (size_t k = 0; k < plan.watched.size(); ++k)
    check_primal(entry.lifted()[plan.watched[k]], primal_versions_[k], facts[plan.watched[k]]);
  Primals taken;
  std::vector<at::Tensor>& primals = taken.inputs;
  primals.resize(facts.size());
  for (size_t k = 0; k < plan.held.size(); ++k) {
    check_primal(primals_[k].tensor, primals_[k].version, facts[plan.held[k]]);
    primals[plan.held[k]] = primals_[k].tensor;
  }
  for (const PrimalPlan::SavedInput& saved : plan.saved) {
    if (!hooked_->empty()) {
      primals[saved.input] = (*hooked_)[saved.slot].unpack();
      continue;
    }
    const SavedArgument& kept = arguments_[saved.argument];
    // Taken by a backward of other results, which needed it last.
    TORCH_CHECK(kept.tensor.defined(), autograd::ERR_BACKWARD_TWICE);
    check_primal(kept.tensor, kept.version, facts[saved.input]);
    primals[saved.input] = kept.tensor;
  }
  for (size_t i = 0; i < facts.size(); ++i) {
    if (plan.how[i] == PrimalPlan::How::Lifted) primals[i] = entry.lifted()[i];
    if (plan.how[i] == PrimalPlan::How::Unread && facts[i].duplicate_of < 0)
      primals[i] =
          like_unread(facts[i], keys_of(entry, i), plan.counts_offsets ? facts[i].offset_after : 0,
                      std::ranges::count(*apart_, i) > 0);
    if (plan.how[i] == PrimalPlan::How::Reshaped) primals[i] = *snapshot_->copy_of(i);
    if (plan.how[i] == PrimalPlan::How::Copied || plan.how[i] == PrimalPlan::How::InGroup) {
      const bool has_copy = snapshot_ && snapshot_->has_copies;
      if (!has_copy && is_only_switched(facts[i])) primals[i] = switched(entry, i);
      if (!has_copy && !primals[i].defined()) throw_without_copy(entry, i);
      if (has_copy) primals[i] = *snapshot_->copy_of(i);
    }
  }
  take_exchanged(entry, exchanged, taken);
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].duplicate_of >= 0)
      primals[i] = primals[static_cast<size_t>(facts[i].duplicate_of)];
  }
  if (!autograd::get_current_graph_task_keep_graph()) spend(entry, backward);
  if (snapshot_) taken.states = snapshot_->states;
  return taken;
}

void KeptValues::release() {
  std::lock_guard lock(mutex_);
  if (std::exchange(spared_, false)) return;
  released_ = true;
  clear();
}

void KeptValues::release_if_spent() {
  std::lock_guard lock(mutex_);
  if (released_) clear();
}

void KeptValues::clear() {
  cleared_ = true;
  arguments_.clear();
  give_memory();
  primals_.clear();
  rewritten_.reset();
  snapshot_.reset();
  watched_.clear();
  values_.clear();
  hooked_.reset();
}

}  // namespace tandem::runtime
