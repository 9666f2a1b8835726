#pragma once

#include "signature/output_facts.h"
#include "tandem/ir/signature.h"
#include "tracing/trace.h"

#include <cstdint>
#include <vector>

namespace tandem::signature {

/// Stand-ins in the order of the graph's inputs: lifted tensors, then arguments. As indices into
/// Trace::stand_ins().
std::vector<size_t> calling_order(const tracing::Trace& trace);

/// Whether a call does to its inputs what the run has done to their stand-ins.
enum class Effects : uint8_t { Kept, Dropped };

/// What a run says of a call, and the stand-ins that joint needs to differentiate it.
struct Reading {
  ir::Signature signature;
  Effects effects = Effects::Kept;
  std::vector<Base> bases{};            // one per base of the signature
  std::vector<size_t> groups{};         // of the trace, one per group of the signature
  std::vector<ir::ValueId> new_data{};  // one per input: its value as the call leaves it
};

/// Reads off a finished run what the call does to every argument and result. Must come before any
/// gradient is computed: the backward would move version counters and functional storages. What a
/// call path cannot rebuild exactly is an UnsupportedError that names the input or output.
Reading read_signature(tracing::Trace& trace, Effects effects = Effects::Kept);

}  // namespace tandem::signature
