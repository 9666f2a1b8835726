#pragma once

#include "loops/host/host_list.h"

#include <optional>
#include <string>
#include <string_view>

namespace tandem::loops {

/// A host list as bytes: its steps, its kernels as loops and as what their compiler has saved. What
/// it takes from the nodes of its graph (operators, constants, types) it leaves there.
std::string store(const HostList& list);

/// The way back, for the same graph and context. A kernel that does not fit this machine is
/// compiled from its loops; nothing if that cannot be done either. A UserError if the bytes do not
/// belong to the graph.
std::optional<HostList> load_host_list(std::string_view stored, const ir::Graph& graph,
                                       const CompileContext& context, KernelCompiler& compiler,
                                       Backend& judge);

}  // namespace tandem::loops
