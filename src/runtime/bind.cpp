#include "runtime/bind.h"

#include "base/error.h"
#include "runtime/with_fallback.h"

#include <map>

namespace tandem::runtime {
namespace {

void load(Kernels& kernels, const ir::Graph& graph, const CompileContext& context,
          Backend& backend) {
  if (kernels.ready) return;
  if (!kernels.stored.data.empty())
    kernels.ready = backend.load(kernels.stored.data, graph, context);
  // The backend has stored nothing, or cannot use it on this machine.
  if (!kernels.ready) kernels.ready = backend.compile(graph, context);
  kernels.stored.data.clear();
}

void bind_generators(Artifact& artifact, const std::vector<at::Generator>& given) {
  const std::vector<at::Generator> named = generators_of(artifact);
  TANDEM_REQUIRE(given.size() == named.size(), "bind", "the entry draws from ", named.size(),
                 " generators beside the default one, got ", given.size(),
                 "\n  remedy: pass one generator for each, in the order of the graph's numbers");
  replace_generators(artifact, given);
}

}  // namespace

std::shared_ptr<const EntryState> bind(Artifact artifact, Bindings bindings) {
  const auto lifted = static_cast<size_t>(artifact.split.signature.lifted_count);
  TANDEM_REQUIRE(bindings.lifted.size() == lifted, "bind", "the entry closes over ", lifted,
                 " tensors, got ", bindings.lifted.size(),
                 "\n  remedy: pass one for each, in the order of the signature");
  bind_generators(artifact, bindings.generators);
  const std::shared_ptr<Backend> backend =
      with_fallback(bindings.backend ? bindings.backend : tandem::backend(artifact.backend),
                    std::make_shared<std::atomic<int64_t>>(0));
  load(artifact.forward, artifact.split.forward, forward_context(artifact), *backend);
  for (Backward& backward : artifact.backwards) {
    load(backward.kernels, backward.graph ? *backward.graph : artifact.split.backward,
         backward_context(artifact), *backend);
  }
  Guards guards(artifact.guards, artifact.split.signature, bindings.lifted,
                std::move(bindings.watched));
  return bind(std::move(artifact), {.guards = std::move(guards),
                                    .lifted = std::move(bindings.lifted),
                                    .compiler = std::move(bindings.compiler)});
}

std::shared_ptr<const EntryState> bind(Artifact artifact, Connections connections) {
  return std::make_shared<const EntryState>(std::move(artifact), std::move(connections));
}

}  // namespace tandem::runtime
