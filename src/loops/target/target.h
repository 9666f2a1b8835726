#pragma once

#include "tandem/decomposition.h"
#include "tandem/ir/graph.h"
#include "tandem/ir/type.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>

namespace tandem::loops {

/// How far fusing pays. Beyond these bounds two kernels are faster than one.
struct FusionLimits {
  // More would spill registers and read too many streams at once.
  size_t most_nodes = 64;
  size_t most_reads = 24;
  // With fewer rows than this and rows longer than that, a second sweep over a row would keep one
  // thread busy and find nothing in the cache.
  int64_t few_rows = 8;
  int64_t long_row = int64_t{1} << 15;
  // Whether a walk down the columns may be followed by another one in the same kernel.
  bool column_sweeps = false;
  // A result with this many times the bytes of what it is made of is computed where it is read.
  int64_t spread = 64;
  // A row that a kernel keeps to itself must fit into this. A longer one would not stay near its
  // thread, and computing it again is cheaper.
  int64_t kept_row_bytes = 16 * 1024;
};

/// How libtorch's own kernels for the device round. Rules that promise eager's bits follow them.
struct EagerRounding {
  // f32 and f64: the compiler made one step of a product and the sum that follows it.
  bool contracts = true;
  // f16: some kernels compute in f16 itself, so each step rounds.
  bool steps_in_f16 = true;
  // bf16: powers round between their multiplications.
  bool powers_in_bf16 = true;
  // f16: powers of 1/2 and -1/2 are pow's, not roots.
  bool f16_roots_by_pow = true;
  // bf16: fmax and fmin take the second of two equal zeros.
  bool second_zero_in_bf16 = true;
};

/// A kind of device that kernels are made for: what fusion, rules and runs have to know of it. Only
/// this class and the compilers of kernels know what a device is like. Any thread may ask.
class Target {
 public:
  explicit Target(c10::DeviceType type) : device_type(type) {}
  virtual ~Target() = default;

  const c10::DeviceType device_type;
  FusionLimits limits{};
  EagerRounding eager{};
  int64_t alignment = 64;  // of tensors inside an arena, in bytes
  // Whether blocks of an arena stay ours between runs. Not where the allocator keeps them itself.
  bool keeps_arenas = true;

  /// Whether kernels can read such a tensor where it lies.
  bool reads(const ir::TensorType& type) const {
    return type.device.type() == device_type && type.layout == c10::kStrided;
  }

  // ---- memory of one device of this kind, and the order of work there ----
  virtual at::DataPtr allocate(size_t bytes, c10::Device device) const = 0;
  virtual at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   c10::ScalarType dtype, c10::Device device) const = 0;
  /// Where the calling thread's work goes.
  virtual c10::Stream stream(c10::Device device) const = 0;

  // ---- what libtorch offers there ----
  /// Rows of its own for the ops that are rewritten before a graph is cut.
  virtual void adapt(Decompositions& /*table*/, Rounding /*rounding*/) const {}
  /// The operator to call for a node that no kernel computes.
  virtual c10::OperatorHandle operator_for(const ir::Graph& /*graph*/, const ir::Node& node,
                                           Rounding /*rounding*/) const {
    return node.op();
  }
};

}  // namespace tandem::loops
