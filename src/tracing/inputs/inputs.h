#pragma once

#include "tandem/error.h"
#include "tandem/function.h"
#include "tandem/ir/signature.h"
#include "tracing/inputs/gradient_slots.h"
#include "tracing/inputs/group.h"
#include "tracing/inputs/host_memory.h"
#include "tracing/inputs/mirrored_histories.h"
#include "tracing/inputs/stand_in.h"
#include "tracing/lines/stack_walk.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <deque>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tandem::tracing {

class Recording;

/// Roles and paths of tensors that are known before the trace: parameters and buffers of named
/// modules.
using KnownTensors = std::unordered_map<const c10::TensorImpl*, ir::Descriptor>;

/// What the graph calls the input of a named tensor: `fc_weight`.
std::string value_name(const ir::Descriptor& role);

/// What only a finished run can know of the inputs that it should have had.
struct Retrace {
  /// Closed-over tensors that are related to an input which had its stand-in already when they were
  /// met, where one of the two is written.
  std::vector<at::Tensor> met_before{};
  /// Inputs without grad that are views of one tensor got a history by a write to one of them.
  bool group_all_views = false;
  /// Called without grad mode, the function has switched it on and written a view.
  bool switches_grad_on = false;
  /// There is no third run.
  bool is_second_run = false;
};

/// A closed-over tensor, and the argument that the function shall see in its place.
struct Replacement {
  at::Tensor closed_over;
  size_t argument = 0;  // among the tensors of the arguments
};

/// What a function may be told before it is traced.
struct InputOptions {
  KnownTensors known{};
  std::vector<std::string> names{};  // of the arguments, for errors: one per tensor
  Retrace retrace{};
  /// The grad mode in which the function begins. A backward that traces it again has another one.
  bool with_grad = c10::GradMode::is_enabled();
  /// How many tensors of the arguments the function itself takes. A function of its gradients takes
  /// more, which nobody writes.
  size_t own_tensors = std::numeric_limits<size_t>::max();
  /// Tensors that the function has closed over before. Weakly: whether somebody holds them is
  /// looked at.
  std::vector<WeakTensor> met_earlier{};
};

/// The tensors that came into a trace from outside, and what the function sees in their place:
/// arguments, closed-over tensors at first sight, memory that the function allocates by itself.
///
/// The one object between the hooks, which ask it about tensors that they meet, and the trace.
class Inputs {
 public:
  Inputs(Recording& recording, InputOptions options);
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  ~Inputs();

  /// The arguments as the function shall see them. The thread is in tracing state from here on.
  detail::Flat add_arguments(const detail::Flat& arguments,
                             std::span<const Replacement> replacements);

  // For the hooks.

  /// What the function shall see in place of a real tensor.
  at::Tensor stand_in(const at::Tensor& real);
  /// The real tensor that a stand-in stands for; null for any other tensor.
  const at::Tensor* real_of(const at::Tensor& stand_in) const;
  /// Whether two inputs of the graph hold equal data; remembered, for a guard.
  bool compare(ir::ValueId a, ir::ValueId b);
  /// Views whose version has moved since the last op get another history.
  void renew_histories();
  /// After an op of the function that has written.
  void note_write();
  /// What was written has memory of its own, which holds what the input showed; the function counts
  /// from the beginning of the memory that came in. How much lies before, for views of this value.
  int64_t offset_of_memory(ir::ValueId value) const;
  /// Throws if the function shall not ask for the gradient of the tensor with this metadata.
  void refuse_gradient(const c10::AutogradMetaInterface& metadata, const EntryFrame& entry);
  /// Throws an UnsupportedError, and notes it.
  [[noreturn]] void refuse(const std::string& text);
  /// The function may catch the error.
  void note_refusal(const UnsupportedError& error);
  /// Whether a function of gradients is traced. It is passed copies of some arguments.
  bool of_gradients() const { return argument_count_ > options_.own_tensors; }
  /// The caller was in inference mode when the trace began.
  bool in_inference_mode() const { return in_inference_mode_; }
  HostMemory& host_memory() { return host_memory_; }
  MirroredHistories& histories() { return histories_; }

  /// The function is running.
  bool is_open() const { return is_open_; }
  /// Autograd nodes of the trace have this sequence number or a higher one.
  uint64_t first_sequence_number() const { return first_sequence_number_; }

  // When the function has run.

  /// Throws what the function was refused and has caught.
  void require_not_refused() const;
  /// Gradients that could not be watched are as they were. Nothing if the function has left them
  /// so, else the name of a tensor whose gradient it has changed.
  std::optional<std::string> put_back_gradients();

  /// Whether a write to one of two different inputs may concern the other.
  bool are_related(const StandIn& a, const StandIn& b) const;
  /// Real tensors are as they were, but for version counters that the call shall move. False if a
  /// custom function has given one of them another history.
  bool leave();
  /// An input on the same memory that the function has written; null if there is none.
  const StandIn* written_on_memory_of(const at::Tensor& tensor) const;
  /// Passes the n-th tensor of the arguments for a history inside the function: nobody reads the
  /// tensor. Its gradient is what arrives at that history, and goes no further.
  void pass_for_history(size_t n, torch::autograd::Edge history);

  /// Arguments in order (undefined ones left out), then lifted tensors in order of first sight.
  const std::deque<StandIn>& stand_ins() const { return stand_ins_; }
  size_t argument_count() const { return argument_count_; }
  /// Inputs that shared memory when the function started.
  const std::vector<Group>& groups() const { return groups_; }
  /// Positions among the stand-ins: of a tensor that was met, of the n-th tensor of the arguments.
  std::optional<size_t> find(const at::Tensor& real) const;
  std::optional<size_t> find_argument(size_t n) const;
  /// The tensor that the function itself has where the stand-in at this position stands: a
  /// closed-over one that an argument replaces, or the real one. Null for what nobody shows it.
  const at::Tensor* held_by_function(size_t position) const;
  /// Inputs that the function compared by value, as positions among the stand-ins.
  const std::vector<ir::EqualityFacts>& equalities() const { return equalities_; }
  /// What a trace that takes the place of this one must know from the start, if this one is worth
  /// nothing. A second one is what it is.
  std::optional<Retrace> retrace() const;
  /// For errors: `argument 1`, `parameter "fc.weight"`.
  std::string name_of(const StandIn& stand_in) const;
  /// Of a real tensor or a stand-in.
  std::string name_of(const at::Tensor& tensor) const;
  /// Whether a stand-in counts writes on the counter of the real tensor, which has them, too, then.
  static bool has_borrowed(const StandIn& stand_in);

 private:
  bool writes_may_give_histories(const Retrace& retrace) const;
  bool has_written_view_with_grad() const;
  RelatedViews related_views(const Retrace& retrace) const;
  void find_groups(const detail::Flat& arguments);
  void add_group(std::span<const at::Tensor> members, bool closed_over);
  bool may_be_written(const ir::Descriptor& role) const;
  bool needs_base(const at::Tensor& real) const;
  size_t equal_members(const Group& group, const at::Tensor& real) const;
  void add(const at::Tensor& real, ir::Descriptor role, std::string name);
  void borrow_counter(StandIn& stand_in);
  void borrow_counter_of_root(Group& group);
  void share_counter(StandIn& stand_in);
  void refuse_optimizer();
  void take_over_versions();
  void forget_lent_histories();
  void keep_offsets();
  std::optional<size_t> find_met_before(const at::Tensor& real) const;

  Recording& recording_;
  const InputOptions options_;
  const bool in_inference_mode_;  // the caller, when the trace began
  size_t argument_count_ = 0;
  std::deque<StandIn> stand_ins_;
  struct Found {
    uint32_t version = 0;
    std::optional<uint32_t> of_history{};  // of a view: the version that its history is for
  };
  std::vector<Found> found_;  // of their real tensors, when they were met
  std::vector<Group> groups_;
  std::unordered_map<const c10::TensorImpl*, size_t> group_of_;  // members, before their stand-ins
  struct Borrowed {
    c10::VariableVersion counter;  // not the tensor: whether it outlives the function is looked at
    uint32_t version = 0;          // to give back
  };
  std::vector<Borrowed> borrowed_;       // version counters of closed-over tensors
  std::vector<size_t> renewing_;         // stand-ins whose histories are made anew
  std::vector<size_t> without_history_;  // stand-ins that required no grad when they were met
  std::vector<size_t> with_offset_;      // stand-ins that do not begin where their memory does
  std::unordered_map<const c10::StorageImpl*, std::vector<size_t>> on_storage_;  // duplicates not
  std::unordered_map<const void*, size_t> on_counter_;           // the first with a version counter
  std::unordered_map<const c10::TensorImpl*, size_t> position_;  // by real tensor
  std::unordered_map<const c10::TensorImpl*, size_t> stands_at_;  // by stand-in
  std::unordered_map<size_t, at::Tensor> replaced_;               // closed-over, by position
  std::unordered_set<size_t> closed_over_;  // which of the arguments replace closed-over tensors
  std::vector<ir::EqualityFacts> equalities_;
  HostMemory host_memory_;
  MirroredHistories histories_;
  const uint64_t first_sequence_number_;
  bool is_open_ = true;
  /// Ends of closed-over leaves outside, held while the function runs: asked for its history, a
  /// leaf without one of these would give the engine nothing that it could be known by.
  std::vector<torch::autograd::Edge> ends_;
  std::exception_ptr refused_;
  GradientSlots slots_;
};

}  // namespace tandem::tracing
