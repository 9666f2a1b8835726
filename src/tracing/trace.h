#pragma once

#include "tandem/function.h"
#include "tandem/ir/signature.h"
#include "tracing/ambient.h"
#include "tracing/group.h"
#include "tracing/recording.h"
#include "tracing/stand_in.h"

#include <ATen/core/Tensor.h>

#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tandem::tracing {

/// Roles and paths of tensors that are known before the trace: parameters and buffers of named
/// modules.
using KnownTensors = std::unordered_map<const c10::TensorImpl*, ir::Descriptor>;

/// What the graph calls the input of a named tensor: `fc_weight`.
std::string value_name(const ir::Descriptor& role);

/// What only a finished run can know of the inputs that it should have had.
struct Retrace {
  /// Closed-over tensors that share written memory with an input that had its stand-in already when
  /// they were met.
  std::vector<at::Tensor> met_before{};
  /// Inputs without grad that are views of one tensor got a history by a write to one of them.
  bool group_all_views = false;
};

/// A closed-over tensor in whose place the function shall see an argument.
struct Replacement {
  at::Tensor closed_over;
  size_t argument = 0;  // among the tensors of the arguments
};

/// One run of the user's function on stand-ins.
///
/// While it lives the thread is in tracing state, so that `signature` and `joint` can read facts
/// off the functional wrappers and differentiate into the same recording. The real arguments are
/// never touched.
class Trace {
 public:
  /// `names` say what to call the arguments in errors, one per tensor.
  Trace(const detail::Flat& arguments, KnownTensors known, std::vector<std::string> names,
        Retrace retrace = {}, std::span<const Replacement> replacements = {},
        size_t own_tensors = std::numeric_limits<size_t>::max());
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  /// Calls the function, once. What it throws passes through, except that libtorch's words for
  /// reading data that a trace does not have become an UnsupportedError.
  void run(const detail::FlatFunction& function);

  Recording& recording() { return recording_; }
  const Recording& recording() const { return recording_; }
  /// Arguments in order (undefined ones left out), then lifted tensors in order of first sight.
  const std::deque<StandIn>& stand_ins() const { return stand_ins_; }
  size_t argument_count() const { return argument_count_; }
  /// Inputs that shared memory when the function started.
  const std::vector<Group>& groups() const { return groups_; }
  /// What a trace that takes the place of this one must know from the start, if this one is worth
  /// nothing.
  std::optional<Retrace> retrace() const;
  /// Whether a stand-in counts writes on the counter of the real tensor, which has them, too, then.
  static bool has_borrowed(const StandIn& stand_in);
  /// What the function returned, closed-over tensors mapped to their stand-ins.
  const detail::Flat& results() const { return results_; }

  /// Of gradients, in place of what the function returned.
  void set_results(std::vector<at::Tensor> results);
  /// What stands for the n-th tensor of the arguments.
  const at::Tensor& argument(size_t n) const { return stand_in_arguments_.tensors[n]; }
  /// The n-th tensor of the arguments is nowhere read, but has a history inside the function: its
  /// gradient is the one that arrives there, and goes no further.
  void pass_for_history(size_t n, torch::autograd::Edge history);
  /// Positions among the stand-ins: of a tensor that was met, of the n-th tensor of the arguments.
  std::optional<size_t> find(const at::Tensor& real) const;
  std::optional<size_t> find_argument(size_t n) const;

  /// The function leaves another grad mode than it found: this one.
  std::optional<bool> grad_mode_after() const { return grad_mode_after_; }

  /// Inputs that the function compared by value, as positions among the stand-ins.
  const std::vector<ir::EqualityFacts>& equalities() const { return equalities_; }

  /// The other way round, for errors: `argument 1`, `parameter "fc.weight"`.
  std::string name_of(const StandIn& stand_in) const;
  /// Where the function made what a traced tensor holds now: `net.cpp:41`; empty if unknown.
  std::string line_of(const at::Tensor& tensor) const;

 private:
  at::Tensor stand_in_of(const at::Tensor& real);
  void find_groups(const detail::Flat& arguments);
  void add_group(std::span<const at::Tensor> members);
  void take_over_versions();
  void renew_histories();
  void lend_histories();
  void borrow_counter(StandIn& stand_in);
  size_t equal_members(const Group& group, const at::Tensor& real) const;
  void share_counter(StandIn& stand_in);
  std::optional<size_t> find_met_before(const at::Tensor& real) const;
  bool compare_inputs(ir::ValueId a, ir::ValueId b);
  void add(const at::Tensor& real, ir::Descriptor role, std::string name);
  void require_unwritten(const at::Tensor& result) const;
  void keep_history(const at::Tensor& result) const;
  /// A line of an error: of the op that threw, else of the last one before.
  std::string where() const;

  Recording recording_;
  const KnownTensors known_;
  std::vector<std::string> names_;
  std::deque<StandIn> stand_ins_;
  std::vector<Group> groups_;
  std::unordered_map<const c10::TensorImpl*, size_t> group_of_;  // members, before their stand-ins
  const Retrace retrace_;
  struct Borrowed {
    c10::VariableVersion counter;  // not the tensor: whether it outlives the function is looked at
    uint32_t version = 0;          // to give back
  };
  std::vector<Borrowed> borrowed_;       // version counters of closed-over tensors
  std::vector<size_t> renewing_;         // stand-ins whose histories are made anew
  std::vector<size_t> without_history_;  // stand-ins that required no grad when they were met
  std::vector<uint32_t> real_versions_;  // of the stand-ins' real tensors, when they were met
  std::unordered_map<const c10::StorageImpl*, std::vector<size_t>> on_storage_;  // duplicates not
  std::unordered_map<const c10::TensorImpl*, size_t> position_;                  // by real tensor
  std::unordered_map<const c10::TensorImpl*, size_t> stands_at_;                 // by stand-in
  std::vector<ir::EqualityFacts> equalities_;
  std::optional<bool> grad_mode_after_;
  size_t argument_count_ = 0;
  /// How many tensors of the arguments the function takes. Gradients of it take more, which nobody
  /// writes.
  const size_t own_tensors_;
  const bool with_grad_;                  // the caller records gradients
  const uint64_t first_sequence_number_;  // of autograd nodes made here
  detail::Flat stand_in_arguments_;
  detail::Flat results_;
  Ambient ambient_;  // last: the thread leaves the tracing state before anything above dies
};

/// Whether a trace is running on this thread: a compiled function called inside one is inlined.
bool is_tracing();

}  // namespace tandem::tracing
