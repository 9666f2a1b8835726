#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace tandem::ir {

/// What a call does to one input: an argument, or a tensor that the function closes over.
struct InputFacts {
  Descriptor role;
  TypePtr type;  // as the call finds it; null for an undefined tensor
  bool requires_grad = false;
  bool is_leaf = true;
  int64_t duplicate_of = -1;  // an earlier input that is the same tensor object
  bool closed_over = false;   // an argument that the function also reaches by itself
  bool data_written = false;  // through views too; the graph returns the new data
  bool history_changed =
      false;  // autograd saw the write: the input leaves the call with another grad_fn
  bool metadata_changed = false;      // sizes, strides or offset
  bool written_in_grad_mode = false;  // eager's own checks of in-place writes depend on the mode
  int64_t version_delta = 0;          // what the call adds to the version counter
  bool requires_grad_after = false;
};

enum class OutputKind : uint8_t {
  Fresh,         // new memory, own tangent if it requires grad
  IsInput,       // the very tensor that came in
  AliasOfInput,  // a view of an input, rebuilt by replaying view ops on it
  SameAsOutput,  // the very tensor that an earlier output is
  Undefined,
};

struct OutputFacts {
  OutputKind kind = OutputKind::Fresh;
  TypePtr type;         // null if undefined
  int64_t source = -1;  // input of IsInput and AliasOfInput; output of SameAsOutput
  bool requires_grad = false;
  bool is_leaf = true;
};

/// What the backward receives: the gradient of one output.
struct TangentFacts {
  int64_t output = 0;
  TypePtr type;
  std::string
      raises{};  // not empty: eager's backward raises this text as soon as the tangent is defined
};

/// View ops that make aliasing outputs from one input. Input 0 of the graph is that input; its
/// outputs carry the index of the function's output. One graph per input, so that results of one
/// `split` share their node.
struct ViewReplay {
  int64_t input = 0;
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
  std::vector<OutputFacts> outputs;
  std::vector<TangentFacts> tangents;
  std::vector<ViewReplay> replays;
  std::vector<EqualityFacts> equalities;
  bool training = false;  // false: no result needs a gradient, there is no backward

  bool writes_any_input() const;
};

/// A table: one line per input and output.
TANDEM_API std::string to_string(const Signature& signature);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Signature& signature);

}  // namespace tandem::ir
