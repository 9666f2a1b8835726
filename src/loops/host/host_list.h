#pragma once

#include "loops/ir/kernel_compiler.h"
#include "loops/ir/loop_ir.h"
#include "loops/kernels/extract_group.h"
#include "ops/boxed_call.h"
#include "tandem/backend.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace tandem::loops {

/// Where a run keeps a value: slots are numbered as the values of the graph, those of `Readable`
/// after them.
using Slot = int32_t;
inline constexpr Slot kNoSlot = -1;

/// What comes from outside of the kernels may lie otherwise than the graph says: strides of its
/// own, a conjugation or negation still to be done. Kernels, and views that take no work, read it
/// in this slot, which then holds a copy. Where an operator writes it or the caller gets it back,
/// that is a slot beside its own, which keeps the tensor itself.
struct Readable {
  Slot slot = kNoSlot;  // none: no kernel reads it
  ir::TypePtr type{};
};

/// A tensor that a kernel writes.
struct OutputTensor {
  Slot slot = kNoSlot;
  ir::TypePtr type{};
  int64_t arena_offset = -1;  // -1: new memory in every run, since the caller will own it
  std::vector<int64_t> sizes{}, strides{};
};

/// An op inside a kernel, for reports. Its line is looked up when somebody reads it: a compile that
/// reads debug information would be slow.
struct OpName {
  std::string op{};
  ir::Location location{};

  std::string text() const;  // `exp at train.cpp:7`
};

/// Runs one kernel.
struct KernelStep {
  std::string name{};
  int32_t kernel = 0;                             // of HostList::kernels
  std::vector<Slot> buffers{};                    // per buffer of the kernel; kNoSlot: scratch
  std::vector<int32_t> outputs{};                 // of HostList::tensors
  std::shared_ptr<const ExtractedGroup> nodes{};  // what it stands for
  std::vector<OpName> op_names{};
  int64_t bytes_read = 0, bytes_written = 0;
};

/// Calls an operator of libtorch with everything ready that does not depend on the data.
struct LibraryStep {
  struct Source {
    Slot slot = kNoSlot;
    int32_t constant = -1;  // of HostList::constants, if it is one
  };
  using Argument = ops::BoxedArgument<Source>;
  c10::OperatorHandle op;
  std::vector<Argument> arguments{};
  ir::ResultShape shape{};
  std::vector<Slot> results{};       // flat; kNoSlot: nobody reads it
  std::vector<Readable> readable{};  // per result
  int32_t node = kNone;              // of the graph, counted in its order
};

/// Makes a tensor that shows memory of another one: for operators and results, kernels need none.
struct ViewStepping {
  Slot from = kNoSlot, to = kNoSlot;
  std::vector<int64_t> sizes{}, strides{};
  int64_t offset = 0;
};

/// Runs nodes as eager does: a graph inside the graph, or a kernel that could not be generated.
struct EagerStep {
  std::shared_ptr<Executable> graph{};
  std::vector<Slot> inputs{}, outputs{};
  std::string why{};  // empty: it is a region
  std::vector<OpName> op_names{};
  int32_t node = kNone;                           // of a region, counted as in a LibraryStep
  std::shared_ptr<const ExtractedGroup> nodes{};  // of a kernel
};

struct Step {
  std::variant<KernelStep, LibraryStep, ViewStepping, EagerStep> what;
  std::vector<Slot> released{};  // nobody reads them afterwards
};

/// A graph as the list of what a call does, one step after the other. Immutable: what a run
/// changes is in its RunState.
struct HostList {
  std::string name{};
  std::vector<Kernel> kernels{};  // different ones
  std::vector<std::shared_ptr<const CompiledKernel>> compiled{};
  std::vector<c10::IValue> constants{};
  std::vector<std::pair<Slot, int32_t>> constant_slots{};  // tensors of the graph itself
  std::vector<int32_t> constant_nodes{};                   // one per such tensor
  std::vector<OutputTensor> tensors{};
  std::vector<Step> steps{};
  std::vector<Slot> inputs{};
  std::vector<Readable> readable_inputs{};  // per input
  std::vector<bool> releasable{};
  std::vector<Slot> outputs{};  // kNoSlot: undefined
  size_t slot_count = 0;
  int64_t arena_bytes = 0;
};

/// Lowers a graph: fusion, kernels, memory. `judge` runs what is no kernel and no single operator.
/// Sizes must be constant.
HostList make_host_list(const ir::Graph& graph, const CompileContext& context,
                        KernelCompiler& compiler, Backend& judge);

/// Whether it may write an operand: as its schema says, or as its effect.
bool may_write(const c10::OperatorHandle& op);

/// The device of the arena: where the first kernel writes. Kernels on another device of the target
/// get new memory in every run.
c10::Device arena_device(const HostList& list, const Target& target);

/// From the first element to the last one.
int64_t tensor_bytes(const ir::TensorType& type);

/// The text of dumps: one line per step.
std::string print(const HostList& list);
/// Lines for `report()`: kernels with the ops in each, the bytes they move, their best run so far
/// and its share of a copy's bandwidth (0: not known); calls of libtorch; what could not be
/// generated and why.
std::string report(const HostList& list, double copy_bytes_per_second);

}  // namespace tandem::loops
