#pragma once

#include "pipeline/program.h"
#include "runtime/backward/backward_compiler.h"
#include "runtime/entry_state.h"
#include "tandem/options.h"

#include <memory>

namespace tandem::pipeline {

/// What compiles the further backwards of an entry whose function nobody knows: a graph that was
/// lowered by itself, an entry that was loaded.
std::shared_ptr<runtime::BackwardCompiler> make_backward_compiler(std::shared_ptr<Backend> backend);

/// The same for an entry of this program. Gradients of gradients trace it again, with the switches
/// of the thread at the call; not without Options::higher_order.
std::shared_ptr<runtime::BackwardCompiler> make_backward_compiler(
    std::shared_ptr<Backend> backend, std::shared_ptr<const Program> program, Options options,
    const libtorch::ThreadState& thread);

}  // namespace tandem::pipeline
