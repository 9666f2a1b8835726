#include "tracing/inputs/inputs.h"

#include "base/error.h"
#include "libtorch/private_members.h"
#include "ops/memory/flat_memory.h"
#include "ops/memory/shares_memory.h"
#include "ops/op_table.h"
#include "tracing/lines/libtorch_caller.h"
#include "tracing/recording/operand_text.h"
#include "tracing/recording/recording.h"
#include "tracing/recording/traced_tensor.h"
#include "tracing/recording/tracing_state.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <unordered_set>

namespace tandem::tracing {
namespace {

bool is_written(const StandIn& stand_in) {
  return at::functionalization::impl::unsafeGetFunctionalWrapper(stand_in.tensor)
      ->has_data_mutation();
}

/// What its memory holds, writes that are pending left out.
const at::Tensor& memory_of(const at::Tensor& tensor) {
  return static_cast<at::functionalization::FunctionalStorageImpl*>(
             tensor.storage().unsafeGetStorageImpl())
      ->base();
}

bool got_history(const StandIn& stand_in) {
  return !stand_in.requires_grad && stand_in.tensor.requires_grad() && !stand_in.tensor.is_leaf();
}

bool same_counter(const at::Tensor& a, const at::Tensor& b) {
  return libtorch::same_counter(*a.unsafeGetTensorImpl(), *b.unsafeGetTensorImpl());
}

/// A view gets the counter of what autograd takes it for a view of. Where that is no base of a
/// group, it is the stand-in's own.
void set_counter(const StandIn& stand_in, const c10::VariableVersion& counter) {
  stand_in.tensor.unsafeGetTensorImpl()->set_version_counter(counter);
  if (!stand_in.apart && stand_in.is_leaf && stand_in.tensor.is_view() &&
      !ops::root_of(stand_in.tensor).requires_grad())
    stand_in.tensor._base().unsafeGetTensorImpl()->set_version_counter(counter);
}

std::optional<uint32_t> version_of_history(const at::Tensor& tensor) {
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  return view != nullptr && view->has_bw_view() ? std::optional(view->get_attr_version())
                                                : std::nullopt;
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

std::string name_of_module_tensor(const ir::Descriptor& role) {
  return (role.role == ir::Role::Param ? "parameter \"" : "buffer \"") + role.name + "\"";
}

}  // namespace

std::string value_name(const ir::Descriptor& role) {
  std::string name = role.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

Inputs::Inputs(Recording& recording, InputOptions options)
    : recording_(recording),
      options_(std::move(options)),
      in_inference_mode_(c10::InferenceMode::is_enabled()),
      host_memory_(recording),
      first_sequence_number_(at::sequence_number::peek()) {
  for (const auto& [impl, role] : options_.known) {
    slots_.add(
        at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(
            const_cast<c10::TensorImpl*>(impl))));
  }
  for (const WeakTensor& tensor : options_.met_earlier) {
    if (const auto held = tensor.lock()) slots_.add(at::Tensor(held));
  }
}

Inputs::~Inputs() {
  histories_.take_back();
  // In reverse: of two tensors that share a counter, the first one was met before any write.
  for (Borrowed& one : borrowed_ | std::views::reverse) one.counter.set_version(one.version);
  forget_lent_histories();
  // Versions come again that a view may have noted meanwhile. Then it would not renew its history.
  for (size_t i = 0; i < found_.size(); ++i) {
    if (!found_[i].of_history || !version_of_history(stand_ins_[i].real)) continue;
    torch::autograd::impl::get_view_autograd_meta(stand_ins_[i].real)
        ->set_attr_version(*found_[i].of_history);
  }
}

/// A custom function that was given a closed-over view has asked it for its history, while the base
/// was lent one. The base has none any more, so the view has none.
void Inputs::forget_lent_histories() {
  for (size_t i = 0; i < found_.size(); ++i) {
    const at::Tensor& real = stand_ins_[i].real;
    auto* view = torch::autograd::impl::get_view_autograd_meta(real);
    if (view == nullptr || !view->has_bw_view() || !view->grad_fn_ ||
        view->grad_fn_->sequence_nr() < first_sequence_number_ ||
        view->get_backward_view().base_.requires_grad())
      continue;
    torch::autograd::impl::set_gradient_edge(real, torch::autograd::Edge());
    found_[i].of_history.reset();
  }
}

detail::Flat Inputs::add_arguments(const detail::Flat& arguments,
                                   std::span<const Replacement> replacements) {
  detail::Flat seen;
  seen.constants = arguments.constants;
  for (const Replacement& one : replacements) closed_over_.insert(one.argument);
  find_groups(arguments);
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    const at::Tensor& real = arguments.tensors[i];
    if (!real.defined()) {
      seen.tensors.emplace_back();
      continue;
    }
    add(real, ir::Descriptor::user_input(static_cast<int64_t>(i)), "arg" + std::to_string(i));
    seen.tensors.push_back(stand_ins_.back().tensor);
  }
  argument_count_ = stand_ins_.size();
  for (const Replacement& one : replacements) {
    const size_t position = *find_argument(one.argument);
    position_.emplace(one.closed_over.unsafeGetTensorImpl(), position);
    replaced_.emplace(position, one.closed_over);
  }
  for (const at::Tensor& real : options_.retrace.met_before) stand_in(real);
  for (StandIn& stand_in : stand_ins_) stand_in.closed_over = false;
  return seen;
}

/// Without grad mode no write does, unless the function switches it on.
bool Inputs::writes_may_give_histories(const Retrace& retrace) const {
  return options_.with_grad || retrace.switches_grad_on;
}

RelatedViews Inputs::related_views(const Retrace& retrace) const {
  if (retrace.group_all_views) return RelatedViews::OfAll;
  return writes_may_give_histories(retrace) ? RelatedViews::OfTensorsWithGrad : RelatedViews::None;
}

bool Inputs::are_related(const StandIn& a, const StandIn& b) const {
  return tracing::are_related(a.real, b.real, related_views(options_.retrace));
}

void Inputs::find_groups(const detail::Flat& arguments) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() &&
        seen.insert(tensor.unsafeGetTensorImpl()).second)
      tensors.push_back(tensor);
  };
  for (const at::Tensor& tensor : arguments.tensors) add(tensor);
  const size_t of_arguments = tensors.size();
  for (const at::Tensor& tensor : options_.retrace.met_before) add(tensor);
  for (const std::vector<size_t>& component : related(tensors, related_views(options_.retrace))) {
    std::vector<at::Tensor> members;
    for (size_t i : component) members.push_back(tensors[i]);
    const bool closed_over =
        std::ranges::any_of(component, [&](size_t i) { return i >= of_arguments; });
    if (cannot_be_group(members).empty()) add_group(members, closed_over);
  }
}

/// `closed_over`: some member is, so writes are counted on the counters of the real tensors.
void Inputs::add_group(std::span<const at::Tensor> members, bool closed_over) {
  for (const at::Tensor& member : members)
    group_of_.emplace(member.unsafeGetTensorImpl(), groups_.size());
  groups_.push_back(
      make_group(recording_, members, static_cast<int64_t>(groups_.size()), in_inference_mode_));
  Group& group = groups_.back();
  // A real view would make its history anew if it was asked for it after a write.
  group.borrows = closed_over && !group.requires_grad;
  if (group.borrows && group.is_root) borrow_counter_of_root(group);
}

/// Whether a tensor that is related to no other shall be a view of one base all the same.
bool Inputs::needs_base(const at::Tensor& real) const {
  return (writes_may_give_histories(options_.retrace) && is_differentiable_view(real)) ||
         (!in_inference_mode_ && is_conjugate(real));
}

size_t Inputs::equal_members(const Group& group, const at::Tensor& real) const {
  return static_cast<size_t>(std::ranges::count_if(
      group.members, [&](size_t member) { return same_geometry(stand_ins_[member].real, real); }));
}

/// Of what a function of gradients is passed beside the arguments of the function itself, only what
/// takes the place of a closed-over tensor.
bool Inputs::may_be_written(const ir::Descriptor& role) const {
  if (role.role != ir::Role::UserInput) return true;
  const auto index = static_cast<size_t>(role.index);
  return index < options_.own_tensors || closed_over_.contains(index);
}

void Inputs::add(const at::Tensor& real, ir::Descriptor role, std::string name) {
  const size_t here = stand_ins_.size();
  auto [it, is_new] = position_.try_emplace(real.unsafeGetTensorImpl(), here);
  // A view renews its grad_fn when it is written, even without autograd: so must what stands for
  // it.
  if (is_new && may_be_written(role) && !group_of_.contains(real.unsafeGetTensorImpl()) &&
      needs_base(real))
    add_group({&real, 1}, /*closed_over=*/false);
  const auto group = group_of_.find(real.unsafeGetTensorImpl());
  const bool is_closed_over = role.role != ir::Role::UserInput;
  StandIn stand_in =
      group == group_of_.end()
          ? make_stand_in(recording_, real, std::move(role), std::move(name), in_inference_mode_)
          : make_member(recording_, groups_[group->second], real,
                        equal_members(groups_[group->second], real), std::move(role),
                        std::move(name), in_inference_mode_);
  if (!is_new) {
    // The same tensor object twice: the function must see one tensor, the graph keeps both inputs.
    const StandIn& first = stand_ins_[it->second];
    const ir::ValueId input = stand_in.input;
    stand_in = first;
    stand_in.input = input;
    stand_in.duplicate_of = static_cast<int64_t>(it->second);
  } else {
    if (group != group_of_.end()) {
      stand_in.group = static_cast<int64_t>(group->second);
      groups_[group->second].members.push_back(here);
    }
    if (stand_in.group < 0) {
      if (is_closed_over) borrow_counter(stand_in);
    } else if (const Group& of = groups_[group->second]; of.borrows && !of.is_root) {
      borrow_counter(stand_in);
    }
    share_counter(stand_in);
    if (stand_in.renews) renewing_.push_back(here);
    if (!stand_in.requires_grad) without_history_.push_back(here);
    if (stand_in.group < 0 && real.storage_offset() != 0) with_offset_.push_back(here);
    stands_at_.emplace(stand_in.tensor.unsafeGetTensorImpl(), here);
    slots_.add(real);
    slots_.add(stand_in.tensor);
    if (is_open_ && stand_in.requires_grad && stand_in.is_leaf)
      ends_.push_back(torch::autograd::impl::gradient_edge(real));
  }
  stand_ins_.push_back(std::move(stand_in));
  found_.push_back({version_of(real), version_of_history(real)});
}

/// A custom function is given a closed-over tensor itself, not its stand-in. What it saves notes
/// the version at that moment, and what is written later must be found modified: so both count
/// writes together, until the trace is over.
void Inputs::borrow_counter(StandIn& stand_in) {
  c10::TensorImpl& real = *stand_in.real.unsafeGetTensorImpl();
  if (!real.version_counter().enabled() || stand_in.tensor.is_inference()) return;
  borrowed_.push_back({real.version_counter(), version_of(stand_in.real)});
  set_counter(stand_in, real.version_counter());
  stand_in.version = stand_in.history_version = version_of(stand_in.tensor);
}

/// The same of a group: views take the counter of the base.
void Inputs::borrow_counter_of_root(Group& group) {
  c10::TensorImpl& real = *group.real.unsafeGetTensorImpl();
  if (!real.version_counter().enabled() || group.tensor.is_inference()) return;
  borrowed_.push_back({real.version_counter(), version_of(group.real)});
  group.tensor.unsafeGetTensorImpl()->set_version_counter(real.version_counter());
}

/// Views and detached copies have one version counter together: a write to one counts for all.
void Inputs::share_counter(StandIn& stand_in) {
  if (!stand_in.real.has_storage()) return;
  on_storage_[stand_in.real.storage().unsafeGetStorageImpl()].push_back(stand_ins_.size());
  // Not only on one storage: set_data() gives a tensor other memory and leaves it its counter.
  const void* const counter = libtorch::counter_of(*stand_in.real.unsafeGetTensorImpl());
  if (counter == nullptr) return;
  const auto [first, is_new] = on_counter_.try_emplace(counter, stand_ins_.size());
  if (is_new) return;
  const StandIn& earlier = stand_ins_[first->second];
  stand_in.counter_of = static_cast<int64_t>(first->second);
  if (!same_counter(earlier.tensor, stand_in.tensor)) {
    set_counter(stand_in, earlier.tensor.unsafeGetTensorImpl()->version_counter());
    // Its history was made for what the counter says now: the real one may have moved before.
    auto* view = torch::autograd::impl::get_view_autograd_meta(stand_in.tensor);
    if (view != nullptr && view->has_bw_view()) view->set_attr_version(version_of(earlier.tensor));
  }
  stand_in.version = stand_in.history_version = version_of(stand_in.tensor);
}

/// `.data()` gives another tensor each time: one on the same memory that autograd does not know is
/// as good as the one that was met before.
std::optional<size_t> Inputs::find_met_before(const at::Tensor& real) const {
  for (size_t i = argument_count_; i < argument_count_ + options_.retrace.met_before.size(); ++i) {
    const at::Tensor& known = stand_ins_[i].real;
    if (!known.requires_grad() && !real.requires_grad() && real.has_storage() &&
        known.storage().is_alias_of(real.storage()) && known.dtype() == real.dtype() &&
        same_geometry(known, real)) {
      return i;
    }
  }
  return std::nullopt;
}

at::Tensor Inputs::stand_in(const at::Tensor& real) {
  if (auto it = position_.find(real.unsafeGetTensorImpl()); it != position_.end()) {
    StandIn& known = stand_ins_[it->second];
    known.closed_over = known.closed_over || known.real.is_same(real);
    return known.tensor;
  }
  require_plain(real);  // before its storage is asked for
  if (std::optional<at::Tensor> made_here = host_memory_.stand_in(real, histories_))
    return *made_here;
  if (stand_ins_.size() >= argument_count_ + options_.retrace.met_before.size()) {
    if (const auto known = find_met_before(real)) return stand_ins_[*known].tensor;
  }
  const auto known = options_.known.find(real.unsafeGetTensorImpl());
  const auto index = static_cast<int64_t>(stand_ins_.size() - argument_count_);
  if (known != options_.known.end()) {
    add(real, known->second, value_name(known->second));
  } else {
    // Not for each parameter of a forward: optimizers work without grad, on gradients or state.
    if (!c10::GradMode::is_enabled() || !real.requires_grad() || !real.is_leaf())
      refuse_optimizer();
    add(real, ir::Descriptor::lifted(index), "lifted" + std::to_string(index));
  }
  return stand_ins_.back().tensor;
}

/// An optimizer asks for gradients of tensors that the trace may not know: nothing is seen before
/// its first op, on a tensor that nobody has met.
void Inputs::refuse_optimizer() {
  if (!is_open_) return;
  const std::string function = gradient_user(recording_.lines().entry()).optimizer;
  if (!function.empty()) refuse(gradient_refusal({}, function));
}

void Inputs::refuse_gradient(const c10::AutogradMetaInterface& metadata, const EntryFrame& entry) {
  const std::optional<at::Tensor> tensor = slots_.find(metadata);
  if (!tensor) return;
  const GradientUser user = gradient_user(entry);
  // What a custom function has marked as dirty has no gradient afterwards. Nothing to take away, no
  // effect.
  const at::Tensor* const real = real_of(*tensor);
  if (user.marks_dirty && !libtorch::noted_gradient(real ? *real : *tensor).defined()) return;
  std::string line;
  {
    const OpLine here(recording_.lines(), entry, recording_.phase());
    line = ir::to_string(recording_.lines().current());
  }
  refuse(gradient_refusal(name_of(*tensor), user.optimizer, line));
}

std::optional<std::string> Inputs::put_back_gradients() {
  const std::optional<at::Tensor> changed = slots_.put_back();
  return changed ? std::optional(name_of(*changed)) : std::nullopt;
}

void Inputs::refuse(const std::string& text) {
  const UnsupportedError error("trace", text);
  note_refusal(error);
  throw error;
}

void Inputs::note_refusal(const UnsupportedError& error) {
  if (is_open_) refused_ = std::make_exception_ptr(error);
}

void Inputs::require_not_refused() const {
  if (refused_) std::rethrow_exception(refused_);
}

const at::Tensor* Inputs::real_of(const at::Tensor& stand_in) const {
  const auto known = stands_at_.find(stand_in.unsafeGetTensorImpl());
  return known == stands_at_.end() ? nullptr : &stand_ins_[known->second].real;
}

bool Inputs::compare(ir::ValueId a, ir::ValueId b) {
  const auto position = [this](ir::ValueId input) {
    const auto at = std::ranges::find(stand_ins_, input, &StandIn::input);
    return static_cast<int64_t>(at - stand_ins_.begin());
  };
  ir::EqualityFacts facts{.a = position(a), .b = position(b)};
  const OutsideTrace outside;
  facts.equal = at::equal(stand_ins_[static_cast<size_t>(facts.a)].real,
                          stand_ins_[static_cast<size_t>(facts.b)].real);
  equalities_.push_back(facts);
  return facts.equal;
}

void Inputs::renew_histories() {
  for (size_t i : renewing_) renew_history(stand_ins_[i]);
}

void Inputs::note_write() {
  renew_histories();
  keep_offsets();
  if (c10::GradMode::is_enabled()) {
    for (size_t i : without_history_) {
      if (i >= argument_count_) histories_.mirror(stand_ins_[i].real, stand_ins_[i].tensor);
    }
  }
  host_memory_.mirror_histories(histories_);
}

int64_t Inputs::offset_of_memory(ir::ValueId value) const {
  const ir::Graph& graph = recording_.graph();
  while (!graph.value(value).is_input()) {
    const ir::Node& node = graph.node(graph.value(value).producer());
    if (node.kind() != ir::NodeKind::Op || !ops::info(node.op()).is_view) break;
    const auto* source = node.operands()[0].get_if<ir::ValueId>();
    if (source == nullptr) break;
    value = *source;
  }
  if (graph.value(value).is_input()) return 0;
  const auto offset = [&](const at::Tensor& tensor, const at::Tensor& real) -> int64_t {
    const at::Tensor& memory = memory_of(tensor);
    if (real.storage_offset() == 0 || as_traced(memory)->value() != value) return 0;
    return real.storage_offset() - memory.storage_offset();
  };
  for (const Group& group : groups_) {
    if (const int64_t found = offset(group.tensor, group.real)) return found;
  }
  for (const StandIn& one : stand_ins_) {
    if (one.group >= 0) continue;
    if (const int64_t found = offset(one.tensor, one.real)) return found;
  }
  return 0;
}

/// Host code that asks an input where it lies hears the same as before a write.
void Inputs::keep_offsets() {
  for (size_t i : with_offset_) {
    const at::Tensor& tensor = stand_ins_[i].tensor;
    auto* wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(tensor);
    if (!wrapper->has_data_mutation() || wrapper->has_metadata_mutation() ||
        wrapper->was_storage_changed())
      continue;
    current_value(tensor);  // it takes the offset of its new value now, and not later
    tensor.unsafeGetTensorImpl()->set_storage_offset(stand_ins_[i].real.storage_offset());
  }
}

bool Inputs::leave() {
  is_open_ = false;
  ends_.clear();
  take_over_versions();
  renew_histories();
  return histories_.take_back();
}

/// mark_dirty() in a custom function counts a write of the tensor that it is given: of a
/// closed-over one itself, since that is what the function has. The call shall count it, each time.
void Inputs::take_over_versions() {
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    const StandIn& one = stand_ins_[i];
    const uint32_t counted = version_of(one.real) - found_[i].version;
    if (counted == 0 || one.duplicate_of >= 0 || one.counter_of >= 0 || has_borrowed(one)) continue;
    c10::VariableVersion real = one.real.unsafeGetTensorImpl()->version_counter();
    real.set_version(found_[i].version);
    c10::VariableVersion here = one.tensor.unsafeGetTensorImpl()->version_counter();
    here.set_version(static_cast<int64_t>(here.current_version()) + counted);
  }
}

const StandIn* Inputs::written_on_memory_of(const at::Tensor& tensor) const {
  const auto neighbours = on_storage_.find(tensor.storage().unsafeGetStorageImpl());
  if (neighbours == on_storage_.end()) return nullptr;
  for (size_t i : neighbours->second) {
    if (is_written(stand_ins_[i])) return &stand_ins_[i];
  }
  return nullptr;
}

void Inputs::pass_for_history(size_t n, torch::autograd::Edge history) {
  StandIn& stand_in = stand_ins_[*find_argument(n)];
  stand_in.histories = {std::move(history)};
  stand_in.history_only = true;
  stand_in.renews = false;
}

std::optional<size_t> Inputs::find(const at::Tensor& real) const {
  const auto it = position_.find(real.unsafeGetTensorImpl());
  return it == position_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<size_t> Inputs::find_argument(size_t n) const {
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    if (recording_.graph().input_role(stand_ins_[i].input) ==
        ir::Descriptor::user_input(static_cast<int64_t>(n)))
      return i;
  }
  return std::nullopt;
}

const at::Tensor* Inputs::held_by_function(size_t position) const {
  if (const auto it = replaced_.find(position); it != replaced_.end()) return &it->second;
  const StandIn& one = stand_ins_[position];
  const ir::Descriptor& role = recording_.graph().input_role(one.input);
  const bool is_further =
      role.role == ir::Role::UserInput && static_cast<size_t>(role.index) >= options_.own_tensors;
  return is_further ? nullptr : &one.real;
}

/// Autograd saw a write to a view, of which each view of the same tensor has another history then.
bool Inputs::has_written_view_with_grad() const {
  const auto is_written_view = [this](const StandIn& one) {
    const bool by_base = one.group >= 0 && groups_[static_cast<size_t>(one.group)].is_root;
    return one.requires_grad && one.real.is_view() && !by_base &&
           !(torch::autograd::impl::gradient_edge(one.tensor) == unwritten_history(one));
  };
  const auto is_written_base = [](const Group& group) {
    return group.requires_grad && !group.is_leaf &&
           !(torch::autograd::impl::gradient_edge(group.tensor) == group.edge);
  };
  return std::ranges::any_of(stand_ins_, is_written_view) ||
         std::ranges::any_of(groups_, is_written_base);
}

std::optional<Retrace> Inputs::retrace() const {
  if (options_.retrace.is_second_run) return std::nullopt;
  Retrace retrace{.is_second_run = true};
  const size_t first_late = argument_count_ + retrace.met_before.size();
  bool needed = false;
  if (!writes_may_give_histories(retrace) && has_written_view_with_grad())
    retrace.switches_grad_on = needed = true;
  std::set<size_t> late;
  const auto note = [&](size_t i, size_t j) {
    for (size_t one : {i, j}) {
      if (one >= first_late) late.insert(one);
    }
  };
  const auto compare = [&](size_t i, size_t j) {
    const StandIn &a = stand_ins_[i], &b = stand_ins_[j];
    if (a.group >= 0 && a.group == b.group) return;
    if (i >= first_late && tracing::are_related(a.real, b.real, related_views(retrace))) {
      note(i, j);
      needed = needed || is_written(a) || is_written(b);
    }
    // A differentiable write to one view of a tensor gives all of its views a history.
    if ((got_history(a) || got_history(b)) && ops::root_of(a.real).is_same(ops::root_of(b.real))) {
      note(i, j);
      retrace.group_all_views = needed = true;
    }
  };
  for (const auto& [storage, neighbours] : on_storage_) {
    for (size_t i = 1; i < neighbours.size(); ++i) {
      for (size_t j = 0; j < i; ++j) compare(neighbours[i], neighbours[j]);
    }
  }
  if (!needed) return std::nullopt;
  for (size_t i : late) retrace.met_before.push_back(stand_ins_[i].real);
  return retrace;
}

std::string Inputs::name_of(const at::Tensor& tensor) const {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (const auto known = options_.known.find(impl); known != options_.known.end())
    return name_of_module_tensor(known->second);
  if (const auto seen = stands_at_.find(impl); seen != stands_at_.end())
    return name_of(stand_ins_[seen->second]);
  if (const auto met = position_.find(impl); met != position_.end())
    return name_of(stand_ins_[met->second]);
  return base::str("a closed-over tensor (", tensor_text(tensor), ")");
}

std::string Inputs::name_of(const StandIn& stand_in) const {
  const ir::Descriptor& role = recording_.graph().input_role(stand_in.input);
  switch (role.role) {
    case ir::Role::UserInput:
      return options_.names[static_cast<size_t>(role.index)];
    case ir::Role::Param:
    case ir::Role::Buffer:
      return name_of_module_tensor(role);
    default:
      return "closed-over tensor " + std::to_string(role.index) + " (" +
             tensor_text(stand_in.real) + ")";
  }
}

bool Inputs::has_borrowed(const StandIn& stand_in) {
  return same_counter(stand_in.real, stand_in.tensor);
}

}  // namespace tandem::tracing
