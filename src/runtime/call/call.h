#pragma once

#include "runtime/entry_state.h"

#include <memory>

namespace tandem::runtime {

/// Runs an entry whose guards hold: kernels, write-back, autograd node, rebuilt aliases.
detail::Flat call(const std::shared_ptr<const EntryState>& entry, const detail::Flat& arguments);

}  // namespace tandem::runtime
