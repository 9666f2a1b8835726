#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace tandem::ir {

/// What a call does to the storage under an input.
enum class StorageChange : uint8_t {
  None,
  Grown,     // resize_ beyond its end: more memory
  Replaced,  // set_: the memory of another input, or new memory
  Resized,   // the storage itself was resized, whatever the tensor shows of it
};

/// One of the tensors of a call. A base is memory of the call's own that results are views of.
struct CallTensor {
  enum class Kind : uint8_t { Input, Group, Base, Output };
  Kind kind = Kind::Output;
  int64_t index = 0;

  static CallTensor input(int64_t index) { return {Kind::Input, index}; }
  static CallTensor group(int64_t index) { return {Kind::Group, index}; }
  static CallTensor base(int64_t index) { return {Kind::Base, index}; }
  static CallTensor output(int64_t index) { return {Kind::Output, index}; }
  bool is_input() const { return kind == Kind::Input; }
  bool is_group() const { return kind == Kind::Group; }

  friend bool operator==(const CallTensor&, const CallTensor&) = default;
};

/// One of the histories that a tensor has in the course of a call: a place in autograd's graph at
/// which gradients of the tensor arrive.
///
/// They are numbered in the order in which the tensor gets them. Number 0 is the one that it has
/// when the call begins. For a leaf that is its accumulator, even if only the function makes it
/// require grad. Each write that autograd sees adds one. To a view, any write to its memory adds
/// one. A read of the tensor belongs to the history that the tensor has at that time, and the
/// caller sees the last one.
struct History {
  CallTensor tensor;
  int64_t number = 0;

  friend bool operator==(const History&, const History&) = default;
};

/// What a call does to one input: an argument, or a tensor that the function closes over.
struct InputFacts {
  Descriptor role;
  TypePtr type;  // as the call finds it; null for an undefined tensor
  bool requires_grad = false;
  bool is_leaf = true;
  int64_t duplicate_of = -1;      // an earlier input that is the same tensor object
  int64_t counter_of = -1;        // an earlier input with the same version counter
  int64_t group = -1;             // of inputs that share written memory: see Signature::groups
  bool closed_over = false;       // an argument that the function also reaches by itself
  bool history_only = false;      // an argument that nobody reads: it is passed for its history
  bool data_written = false;      // through views too; the graph returns the new data
  bool history_changed = false;   // autograd saw the write: the last history is the call's own
  int64_t histories = 1;          // how many it has, one after the other
  bool metadata_changed = false;  // sizes, strides or offset
  int64_t version_delta = 0;      // what the call adds to the version counter
  bool requires_grad_after = false;
  bool is_leaf_after = true;
  bool read_by_backward = false;    // as recorded, through views too: eager keeps it until then
  bool viewed_by_backward = false;  // as recorded: through views that the forward has taken
  bool read_by_gradients = false;   // as recorded: some gradient is computed from its data

  // where metadata or storage changed
  TypePtr type_after{};
  int64_t offset_after = 0;
  StorageChange storage = StorageChange::None;
  int64_t set_to = -1;      // of Replaced: the input whose memory it is now; or -1, new memory
  int64_t bytes_after = 0;  // of Resized
};

/// Inputs that share memory which the call writes. The graph has one more input, of role `base`,
/// that the members are views of; so a write through one is seen through all.
struct GroupFacts {
  std::vector<int64_t> members;
  TypePtr type;  // of the base
  int64_t offset = 0;
  bool is_root = false;  // the base is the tensor that autograd knows all members to be views of;
                         // otherwise a flat stretch of the storage
  bool requires_grad = false;
  bool is_leaf = true;
  bool history_changed = false;
};

/// Memory of the call's own that results are views of.
struct BaseFacts {
  TypePtr type;
  bool requires_grad = false;
  int64_t output = -1;    // the result that is the base itself; -1: nobody is handed the base
  bool reshaped = false;  // that result is the base after an in-place view (t_, squeeze_, ...)
};

enum class OutputKind : uint8_t {
  Fresh,          // new memory, own tangent if it requires grad
  IsInput,        // the very tensor that came in
  AliasOfInput,   // a view of an input, rebuilt by replaying view ops on it
  AliasOfGroup,   // the same, of the base of a group
  AliasOfBase,    // the same, of memory that the call made
  AliasOfOutput,  // the same, of another output that is no base
  SameAsOutput,   // the very tensor that an earlier output is
  Undefined,
};

struct OutputFacts {
  OutputKind kind = OutputKind::Fresh;
  TypePtr type;         // null if undefined
  int64_t source = -1;  // the input, group, base or output that `kind` speaks of
  bool requires_grad = false;
  bool is_leaf = true;
  bool made_leaf = false;           // requires_grad_() inside the function: gradients end here
  bool own_history = false;         // an alias with a grad_fn and a tangent of its own
  bool of_custom_function = false;  // such an alias that eager refuses to write in place
};

/// What the backward receives: the gradient of a result, of a base, or of an input or group as the
/// call leaves it.
struct TangentFacts {
  History of;
  TypePtr type;
  int64_t part = 0;  // of the backward, one per autograd node of the call: 0 that of the results,
                     // then one per rewritten input or group; -1: it reaches no input
  std::string raises{};  // not empty: what eager's backward raises if the tangent is defined
  std::vector<int64_t> raises_in{};  // only if one of these gradients is asked for
};

/// What the backward returns, in the order of its outputs.
struct GradientFacts {
  History of;        // of an input, a group, or a result that was made a leaf
  int64_t part = 0;  // of the backward that computes it
};

/// What one autograd node of the backward computes, as the function was traced. Eager's engine runs
/// it as a whole or not at all: if a tangent leads there, and it leads to a gradient that is asked
/// for.
struct FormulaFacts {
  int64_t part = 0;                  // of the backward
  std::vector<int64_t> tangents{};   // that enter here
  std::vector<int64_t> next{};       // formulas to which its gradients go
  std::vector<int64_t> gradients{};  // of the call, that are what arrives here
  std::vector<CallTensor> reads{};   // in whose memory lies what it has saved
  bool saves = false;                // it reads what the forward has made: eager runs it once,
                                     // unless the graph is kept
};

/// A node of the backward that draws random numbers or has an effect.
struct EffectFacts {
  int64_t formula = -1;  // that does it, or whose hooks do; -1: every backward does
};

/// View ops that make aliasing outputs from one tensor. Input 0 of the graph is that tensor; its
/// outputs carry the index of the function's output. One graph per source, so that results of one
/// `split` share their node.
struct ViewReplay {
  CallTensor source = CallTensor::input(0);
  bool as_found = false;  // of an input whose sizes or strides the call changes: on the old ones
  bool detached = false;  // of a handle that autograd does not know (data())
  Graph graph;
};

/// Two inputs whose data the function compared with `equal`, and what the comparison said.
struct EqualityFacts {
  int64_t a = 0, b = 0;  // inputs
  bool equal = false;
};

/// The complete record of what a call does, beside the numbers. Inputs are in graph order: lifted
/// tensors first, then arguments.
struct TANDEM_API Signature {
  std::vector<InputFacts> inputs;
  int64_t lifted_count = 0;
  std::vector<GroupFacts> groups;
  std::vector<OutputFacts> outputs;
  std::vector<BaseFacts> bases;
  std::vector<TangentFacts> tangents;
  std::vector<GradientFacts> gradients;
  std::vector<FormulaFacts> formulas;  // of the backward
  std::vector<EffectFacts> effects;    // the same, one per such node, in graph order
  std::vector<ViewReplay> replays;
  std::vector<EqualityFacts> equalities;
  std::optional<bool> grad_mode_after{};  // the function leaves grad mode like this
  bool training = false;                  // false: no result needs a gradient, there is no backward

  bool writes_any_input() const;
  /// Whether autograd sees new data in the input when the call is over. Such an input has a tangent
  /// and an autograd node of its own. Members of a group are none: the group has both for them.
  bool is_rewritten(size_t input) const;
  /// Whether the histories of the input follow from those of the base of its group.
  bool is_view_of_group(size_t input) const;

  /// How many histories the tensor has in the course of the call.
  int64_t histories(const CallTensor& tensor) const;
  /// The one with which the call leaves the tensor.
  History last_history(const CallTensor& tensor) const { return {tensor, histories(tensor) - 1}; }
  /// Whether the tensor leaves the call with this history and did not come with it.
  bool is_new_last(const History& history) const {
    return history.number > 0 && history == last_history(history.tensor);
  }
  /// Of the tensor while it has this history.
  const TensorType& type_of(const History& history) const;
};

/// Of all that a call does, but for sizes, strides, offsets and numbers of bytes.
TANDEM_API uint64_t shape_free_hash(const Signature& signature);
/// `input 2`, `base 0`.
TANDEM_API std::string to_string(const CallTensor& tensor);
/// `input 2`; `input 2, history 1` for a later one than the first.
TANDEM_API std::string to_string(const History& history);
/// A table: one line per input and output.
TANDEM_API std::string to_string(const Signature& signature);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Signature& signature);

}  // namespace tandem::ir
