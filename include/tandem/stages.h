#pragma once

#include "tandem/export.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/signature.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tandem {

struct Options;

/// What capture makes of a function: forward and, if anything needs a gradient, backward in one
/// graph. Inputs: lifted tensors, arguments, bases of written groups, tangents. Outputs: new data
/// of written inputs, fresh results, hidden bases, then the gradients that the signature lists, one
/// per input that requires grad first.
struct Joint {
  ir::Graph graph{};
  ir::Signature signature{};
  std::vector<at::Tensor> lifted{};  // real tensors, in the order of the graph's inputs
};

/// A value that the forward keeps for the backward.
struct Saved {
  /// How it gets there, and whose version is compared when the backward reads it, as in eager.
  enum class As : uint8_t {
    Undecided,     // a partitioner may leave it so: split() decides
    Value,         // memory of the call's own, which nobody else can write
    Copy,          // a copy of its own, made by the forward
    Input,         // that input, by reference; its version is compared
    InputAsFound,  // the same of an input whose sizes, strides or storage the call changes
    WrittenInput,  // that input, once the call has written the value into it; the same
    DataOfInput,   // memory from which the call writes that input, whose version is compared
    Result,        // memory of that result, whose version is compared
    Base,          // the same, of memory that only views are handed out of
    Itself,        // that input, which the backward writes: whatever it holds by then
  };
  struct How {
    As as = As::Undecided;
    int64_t of = -1;  // position of the input, result or base

    friend bool operator==(const How&, const How&) = default;
  };

  std::string name;  // as the graph text has it
  int64_t bytes = 0;
  std::string line;  // where the user's program made it; empty if unknown. split() fills it in
  std::string why;
  How how{};
};

/// A value that both halves compute: instead of keeping it, the backward makes it again.
struct Recomputed {
  std::string name;
  int64_t bytes = 0;  // that are not kept; of a view none
  std::string line;   // as of Saved
  std::string why;
};

/// The joint graph cut in two. An inference split has an empty backward.
/// Forward inputs: those of the joint without tangents; outputs: mutated, output, base, then saved.
/// With Mutations::in_graph the forward ends with writes to some inputs, in place of `mutated`.
/// Backward inputs: saved, then every tangent, read or not; outputs: the gradients of the joint.
struct Split {
  ir::Graph forward;
  ir::Graph backward;
  std::vector<Saved> saved;
  ir::Signature signature;
  std::vector<Recomputed> recomputed{};
};

using Partitioner = std::function<Split(const Joint&, const Options&)>;

/// Saves what the recorded backward reads. Constants, views of inputs and views of what is saved
/// anyway are made again.
TANDEM_API Split default_partition(const Joint& joint, const Options& options);
/// The cut that keeps the fewest bytes. The backward computes again what the backend computes
/// inside other kernels. On a backend that fuses nothing each op is a pass over memory, so only
/// views are made again: a step is never slower than with default_partition, and never keeps more.
TANDEM_API Split min_cut(const Joint& joint, const Options& options);
/// The same, as if the backend fused whatever is one pass over its operands, where it fuses
/// nothing: fewer bytes for more work.
TANDEM_API Split min_cut_recompute(const Joint& joint, const Options& options);

using Boxed = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>;

}  // namespace tandem
