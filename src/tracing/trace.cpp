#include "tracing/trace.h"

#include "base/error.h"
#include "libtorch/private_members.h"
#include "ops/memory/flat_memory.h"
#include "ops/memory/shares_memory.h"
#include "tracing/operand_text.h"
#include "tracing/redirect_edges.h"
#include "tracing/registration.h"
#include "tracing/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <ranges>
#include <set>

namespace tandem::tracing {
namespace {

/// libtorch's words when a data pointer of a tensor without data is asked for.
bool is_data_access(const std::string& text) {
  for (const char* words : {"data is not allocated yet", "Cannot access data pointer",
                            "that doesn't have storage", "invalid python storage"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

/// And when an op of the user writes an argument in a way that functionalization cannot follow.
bool is_unfollowed_write(const std::string& text) {
  return text.find("only support functionalizing operators") != std::string::npos;
}

/// And when a view is written that was taken by as_strided of another view, or of a tensor that
/// requires grad and is not contiguous.
bool is_unfollowed_view(const std::string& text) {
  for (const char* words : {"as_strided() is non-compositional",
                            "as_strided_scatter is currently only supported for contiguous"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

bool is_written(const StandIn& stand_in) {
  return at::functionalization::impl::unsafeGetFunctionalWrapper(stand_in.tensor)
      ->has_data_mutation();
}

bool got_history(const StandIn& stand_in) {
  return !stand_in.requires_grad && stand_in.tensor.requires_grad() && !stand_in.tensor.is_leaf();
}

}  // namespace

std::string value_name(const ir::Descriptor& role) {
  std::string name = role.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

Trace::Trace(const detail::Flat& arguments, KnownTensors known, std::vector<std::string> names,
             Retrace retrace, std::span<const Replacement> replacements, size_t own_tensors)
    : known_(std::move(known)),
      names_(std::move(names)),
      retrace_(std::move(retrace)),
      own_tensors_(own_tensors),
      with_grad_(c10::GradMode::is_enabled()),
      first_sequence_number_(at::sequence_number::peek()),
      ambient_((register_hooks(), recording_)) {
  stand_in_arguments_.constants = arguments.constants;
  find_groups(arguments);
  for (size_t i = 0; i < arguments.tensors.size(); ++i) {
    const at::Tensor& real = arguments.tensors[i];
    if (!real.defined()) {
      stand_in_arguments_.tensors.emplace_back();
      continue;
    }
    add(real, ir::Descriptor::user_input(static_cast<int64_t>(i)), "arg" + std::to_string(i));
    stand_in_arguments_.tensors.push_back(stand_ins_.back().tensor);
  }
  argument_count_ = stand_ins_.size();
  for (const Replacement& one : replacements)
    position_.emplace(one.closed_over.unsafeGetTensorImpl(), *find_argument(one.argument));
  for (const at::Tensor& real : retrace_.met_before) stand_in_of(real);
  for (StandIn& stand_in : stand_ins_) stand_in.closed_over = false;
  recording_.set_stand_in_of([this](const at::Tensor& real) { return stand_in_of(real); });
  recording_.set_real_of([this](const at::Tensor& stand_in) -> const at::Tensor* {
    const auto known = stands_at_.find(stand_in.unsafeGetTensorImpl());
    return known == stands_at_.end() ? nullptr : &stand_ins_[known->second].real;
  });
  recording_.set_before_op([this] { renew_histories(); });
  recording_.set_after_write([this] {
    renew_histories();
    lend_histories();
  });
  recording_.set_compare_inputs(
      [this](ir::ValueId a, ir::ValueId b) { return compare_inputs(a, b); });
}

void Trace::find_groups(const detail::Flat& arguments) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() &&
        seen.insert(tensor.unsafeGetTensorImpl()).second)
      tensors.push_back(tensor);
  };
  for (const at::Tensor& tensor : arguments.tensors) add(tensor);
  for (const at::Tensor& tensor : retrace_.met_before) add(tensor);
  for (const std::vector<size_t>& component : related(tensors, retrace_.group_all_views)) {
    std::vector<at::Tensor> members;
    for (size_t i : component) members.push_back(tensors[i]);
    if (cannot_be_group(members).empty()) add_group(members);
  }
}

void Trace::add_group(std::span<const at::Tensor> members) {
  for (const at::Tensor& member : members)
    group_of_.emplace(member.unsafeGetTensorImpl(), groups_.size());
  groups_.push_back(make_group(recording_, members, static_cast<int64_t>(groups_.size()),
                               ambient_.caller_in_inference_mode()));
}

size_t Trace::equal_members(const Group& group, const at::Tensor& real) const {
  size_t count = 0;
  for (size_t member : group.members) {
    const at::Tensor& other = stand_ins_[member].real;
    count += other.sizes() == real.sizes() && other.strides() == real.strides() &&
             other.storage_offset() == real.storage_offset();
  }
  return count;
}

void Trace::add(const at::Tensor& real, ir::Descriptor role, std::string name) {
  const size_t here = stand_ins_.size();
  auto [it, is_new] = position_.try_emplace(real.unsafeGetTensorImpl(), here);
  // A view renews its grad_fn when it is written, even without autograd: so must what stands for
  // it.
  const bool may_be_written =
      role.role != ir::Role::UserInput || static_cast<size_t>(role.index) < own_tensors_;
  if (is_new && with_grad_ && may_be_written && !group_of_.contains(real.unsafeGetTensorImpl()) &&
      is_differentiable_view(real))
    add_group({&real, 1});
  const auto group = group_of_.find(real.unsafeGetTensorImpl());
  const bool is_closed_over = role.role != ir::Role::UserInput;
  const bool in_inference = ambient_.caller_in_inference_mode();
  StandIn stand_in =
      group == group_of_.end()
          ? make_stand_in(recording_, real, std::move(role), std::move(name), in_inference)
          : make_member(recording_, groups_[group->second], real,
                        equal_members(groups_[group->second], real), std::move(role),
                        std::move(name), in_inference);
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
    if (stand_in.group < 0 && is_closed_over) borrow_counter(stand_in);
    share_counter(stand_in);
    if (stand_in.renews) renewing_.push_back(here);
    if (!stand_in.requires_grad) without_history_.push_back(here);
    stands_at_.emplace(stand_in.tensor.unsafeGetTensorImpl(), here);
  }
  stand_ins_.push_back(std::move(stand_in));
  real_versions_.push_back(version_of(real));
}

/// A custom function is given a closed-over tensor itself, not its stand-in. What it saves notes
/// the version at that moment, and what is written later must be found modified: so both count
/// writes together, until the trace is over.
void Trace::borrow_counter(StandIn& stand_in) {
  c10::TensorImpl& real = *stand_in.real.unsafeGetTensorImpl();
  if (!real.version_counter().enabled() || stand_in.tensor.is_inference()) return;
  borrowed_.push_back({real.version_counter(), version_of(stand_in.real)});
  stand_in.tensor.unsafeGetTensorImpl()->set_version_counter(real.version_counter());
  stand_in.version = stand_in.history_version = version_of(stand_in.tensor);
}

Trace::~Trace() {
  // The last one first: of two that share a counter, the first one met it before any write.
  for (Borrowed& one : borrowed_ | std::views::reverse) one.counter.set_version(one.version);
}

/// Views and detached copies have one version counter together: a write to one counts for all.
void Trace::share_counter(StandIn& stand_in) {
  if (!stand_in.real.has_storage()) return;
  std::vector<size_t>& neighbours = on_storage_[stand_in.real.storage().unsafeGetStorageImpl()];
  neighbours.push_back(stand_ins_.size());
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return libtorch::same_counter(*a.unsafeGetTensorImpl(), *b.unsafeGetTensorImpl());
  };
  for (size_t i = 0; i + 1 < neighbours.size(); ++i) {
    const StandIn& earlier = stand_ins_[neighbours[i]];
    if (earlier.counter_of >= 0 || !same(earlier.real, stand_in.real)) continue;
    stand_in.counter_of = static_cast<int64_t>(neighbours[i]);
    if (!same(earlier.tensor, stand_in.tensor)) {
      stand_in.tensor.unsafeGetTensorImpl()->set_version_counter(
          earlier.tensor.unsafeGetTensorImpl()->version_counter());
      // Its history was made for what the counter says now: the real one may have moved before.
      auto* view = torch::autograd::impl::get_view_autograd_meta(stand_in.tensor);
      if (view != nullptr && view->has_bw_view())
        view->set_attr_version(version_of(earlier.tensor));
    }
    stand_in.version = stand_in.history_version = version_of(stand_in.tensor);
    return;
  }
}

/// `.data()` gives another tensor each time: one on the same memory that autograd does not know is
/// as good as the one that was met before.
std::optional<size_t> Trace::find_met_before(const at::Tensor& real) const {
  for (size_t i = argument_count_; i < argument_count_ + retrace_.met_before.size(); ++i) {
    const at::Tensor& known = stand_ins_[i].real;
    if (!known.requires_grad() && !real.requires_grad() && real.has_storage() &&
        known.storage().is_alias_of(real.storage()) && known.dtype() == real.dtype() &&
        known.sizes() == real.sizes() && known.strides() == real.strides() &&
        known.storage_offset() == real.storage_offset()) {
      return i;
    }
  }
  return std::nullopt;
}

at::Tensor Trace::stand_in_of(const at::Tensor& real) {
  if (auto it = position_.find(real.unsafeGetTensorImpl()); it != position_.end()) {
    StandIn& known = stand_ins_[it->second];
    known.closed_over = known.closed_over || known.real.is_same(real);
    return stand_ins_[it->second].tensor;
  }
  if (std::optional<at::Tensor> made_here = recording_.host_tensors().stand_in(real)) {
    return *made_here;
  }
  if (stand_ins_.size() >= argument_count_ + retrace_.met_before.size()) {
    if (const auto known = find_met_before(real)) return stand_ins_[*known].tensor;
  }
  const auto known = known_.find(real.unsafeGetTensorImpl());
  const auto index = static_cast<int64_t>(stand_ins_.size() - argument_count_);
  if (known != known_.end()) {
    add(real, known->second, value_name(known->second));
  } else {
    add(real, ir::Descriptor::lifted(index), "lifted" + std::to_string(index));
  }
  return stand_ins_.back().tensor;
}

std::optional<Retrace> Trace::retrace() const {
  Retrace retrace = retrace_;
  const size_t first_late = argument_count_ + retrace_.met_before.size();
  bool needed = false;
  std::set<size_t> late;
  const auto note = [&](size_t i, size_t j) {
    for (size_t one : {i, j}) {
      if (one >= first_late) late.insert(one);
    }
  };
  const auto compare = [&](size_t i, size_t j) {
    const StandIn &a = stand_ins_[i], &b = stand_ins_[j];
    if (a.group >= 0 && a.group == b.group) return;
    if (i >= first_late && ops::shares_memory(a.real, b.real)) {
      note(i, j);
      needed = needed || is_written(a) || is_written(b);
    }
    // A differentiable write to one view of a tensor gives all of its views a history.
    if ((got_history(a) || got_history(b)) && ops::root_of(a.real).is_same(ops::root_of(b.real))) {
      note(i, j);
      needed = needed || !retrace_.group_all_views;
      retrace.group_all_views = true;
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

bool Trace::compare_inputs(ir::ValueId a, ir::ValueId b) {
  const auto position = [this](ir::ValueId input) {
    const auto at = std::ranges::find(stand_ins_, input, &StandIn::input);
    return static_cast<int64_t>(at - stand_ins_.begin());
  };
  ir::EqualityFacts facts{.a = position(a), .b = position(b)};
  OutsideTrace outside;
  facts.equal = at::equal(stand_ins_[static_cast<size_t>(facts.a)].real,
                          stand_ins_[static_cast<size_t>(facts.b)].real);
  equalities_.push_back(facts);
  return facts.equal;
}

bool Trace::has_borrowed(const StandIn& stand_in) {
  return libtorch::same_counter(*stand_in.real.unsafeGetTensorImpl(),
                                *stand_in.tensor.unsafeGetTensorImpl());
}

/// mark_dirty() in a custom function counts a write of the tensor that it is given: of a
/// closed-over one itself, since that is what the function has. The call shall count it, each time.
void Trace::take_over_versions() {
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    const StandIn& one = stand_ins_[i];
    const uint32_t counted = version_of(one.real) - real_versions_[i];
    if (counted == 0 || one.duplicate_of >= 0 || one.counter_of >= 0 || has_borrowed(one)) continue;
    c10::VariableVersion real = one.real.unsafeGetTensorImpl()->version_counter();
    real.set_version(real_versions_[i]);
    c10::VariableVersion here = one.tensor.unsafeGetTensorImpl()->version_counter();
    here.set_version(static_cast<int64_t>(here.current_version()) + counted);
  }
}

/// Whatever has moved a version since the last op.
void Trace::renew_histories() {
  for (size_t i : renewing_) renew_history(stand_ins_[i]);
}

void Trace::lend_histories() {
  if (!c10::GradMode::is_enabled()) return;
  for (size_t i : without_history_) {
    if (i < argument_count_) continue;
    recording_.lent_histories().lend(stand_ins_[i].real, stand_ins_[i].tensor);
  }
}

void Trace::run(const detail::FlatFunction& function) {
  const ThreadSwitches before = ThreadSwitches::now();
  try {
    recording_.lines().set_outermost(__builtin_frame_address(0));
    results_ = function(stand_in_arguments_);
    recording_.lines().set_outermost(nullptr);  // what is recorded from here on, Tandem calls
    take_over_versions();
    renew_histories();
    if (!recording_.lent_histories().take_back()) {
      TANDEM_UNSUPPORTED("trace",
                         "a custom autograd function marks a closed-over tensor as dirty that the "
                         "function has written before",
                         "\n  remedy: pass the tensor to the compiled function as an argument");
    }
  } catch (const c10::Error& error) {
    before.restore();
    recording_.lent_histories().take_back();
    take_over_versions();
    const std::string text = error.what_without_backtrace();
    if (is_unfollowed_write(text)) {
      TANDEM_UNSUPPORTED(
          "trace", "an op writes or returns one of its arguments and has no functional form",
          where(), "\n  libtorch: ", text,
          "\n  remedy:   register an op that returns a new tensor, or call it outside the "
          "compiled function");
    }
    if (is_unfollowed_view(text)) {
      TANDEM_UNSUPPORTED(
          "trace", "a view is written that as_strided() took of another view", where(),
          "\n  remedy:   take it of the tensor that owns the memory, or write a copy (clone())");
    }
    if (!is_data_access(text)) throw;
    TANDEM_UNSUPPORTED(
        "trace",
        "the function reads the data of a tensor (data_ptr, accessor, printing), "
        "which a trace does not have",
        where(), "\n  libtorch: ", text,
        "\n  remedy:   read it outside the compiled function, or compute with tensor ops");
  } catch (...) {
    before.restore();
    recording_.lent_histories().take_back();
    take_over_versions();
    throw;
  }
  if (ThreadSwitches after = ThreadSwitches::now(); after != before) {
    before.restore();
    if (after.grad_mode != before.grad_mode) grad_mode_after_ = after.grad_mode;
    after.grad_mode = before.grad_mode;
    if (after != before) {
      TANDEM_UNSUPPORTED("trace", "the function leaves autocast changed behind it",
                         "\n  remedy: switch it back before the function ends");
    }
  }
  for (at::Tensor& result : results_.tensors) {
    if (!result.defined() || is_traced(result)) continue;
    require_unwritten(result);
    result = stand_in_of(result);
  }
  for (const at::Tensor& result : results_.tensors) {
    if (result.defined()) keep_history(result);
  }
  redirect_edges(
      {results_.tensors.data(), results_.tensors.size()}, first_sequence_number_,
      [this](const at::Tensor& real) { stand_in_of(real); }, stand_ins_, groups_);
}

/// A view that nobody else holds was made by a custom function, of a real tensor. It does not know
/// what was written to the stand-in before.
void Trace::require_unwritten(const at::Tensor& result) const {
  if (!result.is_view() || result.use_count() > 1 || !result.has_storage()) return;
  const auto neighbours = on_storage_.find(result.storage().unsafeGetStorageImpl());
  if (neighbours == on_storage_.end()) return;
  for (size_t i : neighbours->second) {
    if (!is_written(stand_ins_[i])) continue;
    TANDEM_UNSUPPORTED("trace",
                       "a custom autograd function returns a view of a closed-over tensor that the "
                       "function has written before",
                       "\n  value:  ", name_of(stand_ins_[i]),
                       "\n  remedy: pass the tensor to the compiled function as an argument");
  }
}

/// A view renews its grad_fn when the version of its base moves, by making the view again. Of a
/// base that was transposed in place since, that is another view or none at all; the grad_fn that
/// it has is right as long as only sizes and strides were changed.
void Trace::keep_history(const at::Tensor& result) const {
  if (!result.is_view() || !result.requires_grad()) return;
  const at::Tensor base(result._base());
  const auto wrapper = at::functionalization::impl::unsafeGetFunctionalWrapper(base);
  auto* meta = torch::autograd::impl::get_view_autograd_meta(result);
  if (!wrapper->has_metadata_mutation() || meta->get_attr_version() == result._version()) return;
  if (wrapper->has_data_mutation()) {
    TANDEM_UNSUPPORTED("trace",
                       "a result is a view of a tensor that was reshaped and written in place "
                       "after the view was taken",
                       base::detail_line("at", line_of(base)), "\n  value:  ", tensor_text(result),
                       "\n  remedy: take the view again after the last change, or return a copy "
                       "of it (clone())");
  }
  meta->set_attr_version(result._version());
}

void Trace::set_results(std::vector<at::Tensor> results) {
  results_ = {};
  results_.tensors.assign(results.begin(), results.end());
}

void Trace::pass_for_history(size_t n, torch::autograd::Edge history) {
  StandIn& stand_in = stand_ins_[*find_argument(n)];
  stand_in.histories = {std::move(history)};
  stand_in.history_only = true;
  stand_in.renews = false;
}

std::optional<size_t> Trace::find(const at::Tensor& real) const {
  const auto it = position_.find(real.unsafeGetTensorImpl());
  return it == position_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<size_t> Trace::find_argument(size_t n) const {
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    if (recording_.graph().input_role(stand_ins_[i].input) ==
        ir::Descriptor::user_input(static_cast<int64_t>(n)))
      return i;
  }
  return std::nullopt;
}

std::string Trace::where() const {
  const SourceLines& lines = recording_.lines();
  return base::detail_line(lines.last_threw() ? "at" : "after", ir::to_string(lines.last()), 10);
}

std::string Trace::line_of(const at::Tensor& tensor) const {
  const ir::Graph& graph = recording_.graph();
  const ir::ValueId value = current_value(tensor);
  const ir::NodeId node = value == ir::kNoValue ? ir::kNoNode : graph.value(value).producer();
  return node == ir::kNoNode ? std::string() : ir::to_string(graph.node(node).location());
}

std::string Trace::name_of(const StandIn& stand_in) const {
  const ir::Descriptor& role = recording_.graph().input_role(stand_in.input);
  switch (role.role) {
    case ir::Role::UserInput:
      return names_[static_cast<size_t>(role.index)];
    case ir::Role::Param:
      return "parameter \"" + role.name + "\"";
    case ir::Role::Buffer:
      return "buffer \"" + role.name + "\"";
    default:
      return "closed-over tensor " + std::to_string(role.index) + " (" +
             tensor_text(stand_in.real) + ")";
  }
}

bool is_tracing() { return current_recording() != nullptr; }

}  // namespace tandem::tracing
