#pragma once

#include "pipeline/pipeline.h"
#include "pipeline/verify/difference.h"
#include "runtime/entry_state.h"

#include <string>

namespace tandem::pipeline {

/// The first op in which a recording differs from that of an entry, sizes and numbers apart: among
/// the calls of the function, else among the nodes of the joint graphs. `what` fits behind "it":
/// `calls cos where entry 0 calls sin`.
Difference op_difference(const runtime::EntryState& entry, const std::string& name_of_entry,
                         const Captured& now);

/// `it calls cos where entry 0 calls sin (net.cpp:12)`
std::string to_string(const Difference& difference);

}  // namespace tandem::pipeline
