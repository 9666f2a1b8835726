#pragma once

#include "pipeline/program.h"
#include "runtime/entry_state.h"
#include "tandem/function.h"

namespace tandem::pipeline {

/// Traces the function again on arguments that the entry's guards let pass, and compares with what
/// was compiled: ops and what they are told, tensors from outside, graph, effects on arguments and
/// results, constant results. A UserError names the first difference. Nothing is run on data, and
/// generators and hooks are as they were; what host code does besides is done.
void verify_entry(const runtime::EntryState& entry, const Program& program,
                  const detail::Flat& arguments, const Options& options);

}  // namespace tandem::pipeline
