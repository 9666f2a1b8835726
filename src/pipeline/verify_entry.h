#pragma once

#include "pipeline/program.h"
#include "runtime/entry_state.h"
#include "tandem/function.h"

namespace tandem::pipeline {

/// Traces the function again on arguments that the entry's guards let pass, and compares: lifted
/// tensors, graph, signature, constant results. A UserError names the first difference with both
/// texts. Nothing is run on data; what host code does besides is done.
void verify_entry(const runtime::EntryState& entry, const Program& program,
                  const detail::Flat& arguments, const Options& options);

}  // namespace tandem::pipeline
