#pragma once

#include "tandem/ir/type.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tandem::ops {

/// A tensor without its data, as a tracer knows it: its type, and where in its storage it starts.
struct TensorMeta {
  ir::TypePtr type;  // null: an undefined tensor
  int64_t offset = 0;
  bool wrapped_number = false;  // a Scalar in disguise: promotes like one
  bool conjugate = false, negative = false;
};

/// One argument of a call: tensors as metadata, everything else as libtorch has it.
struct MetaArg {
  enum class Kind : uint8_t { Tensor, TensorList, Other } kind = Kind::Other;
  std::vector<TensorMeta>
      tensors{};  // one of a Tensor, any number of a TensorList (null types: absent)
  c10::IValue other{};
};

/// One return of a call, likewise. `Other` holds a number or string that the rule could tell.
using MetaResult = MetaArg;

struct MetaCall {
  const c10::OperatorHandle& op;
  std::span<const MetaArg> args;
};

/// How often an answer came from where, so that a trace can say how often it had to guess.
struct MetadataCounts {
  int64_t memo = 0, rules = 0, meta_kernels = 0, zeros = 0;
};

/// From the metadata of operands to that of results, without touching data.
///
/// Order: memo, our own rule, libtorch's Meta kernel, the real kernel on zeros (pure ops whose
/// sizes do not depend on data, bounded bytes), an UnsupportedError that names the op. Types that
/// it returns are interned: equal types are the same object, which is what makes the memo cheap.
class MetadataPropagator {
 public:
  MetadataPropagator();
  ~MetadataPropagator();
  MetadataPropagator(const MetadataPropagator&) = delete;
  MetadataPropagator& operator=(const MetadataPropagator&) = delete;

  /// How to see a tensor operand: the tracer's own tensors know their interned type.
  using MetaOf = TensorMeta (*)(MetadataPropagator&, const at::Tensor&);

  /// `args` are those of the schema, in order. A hit reads them in place and allocates nothing.
  /// Never moves a generator, never writes an operand, never leaves a thread setting changed.
  /// The reference is valid until the propagator dies. With `must_run`, what the kernel would
  /// refuse is raised now.
  const std::vector<MetaResult>& propagate(const c10::OperatorHandle& op,
                                           std::span<const c10::IValue> args, MetaOf meta_of,
                                           bool must_run = false);

  ir::TypePtr intern(ir::TensorType type);
  TensorMeta meta_of(const at::Tensor& tensor);

  const MetadataCounts& counts() const { return counts_; }

 private:
  struct Memo;
  std::unique_ptr<Memo> memo_;
  MetadataCounts counts_;
};

}  // namespace tandem::ops
