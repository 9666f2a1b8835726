#include "pipeline/lower.h"

#include "ir/sized_type.h"
#include "partition/tangents/drop_tangents.h"
#include "partition/tangents/parted_results.h"

#include <algorithm>
#include <optional>

namespace tandem::pipeline {
namespace {

bool all(const std::vector<bool>& flags) {
  return std::ranges::all_of(flags, [](bool is) { return is; });
}

/// The tensor of the call whose version is compared when the value is read, if there is one.
std::optional<ir::CallTensor> watched_by(const Saved::How& how) {
  switch (how.as) {
    case Saved::As::Undecided:
    case Saved::As::Value:
    case Saved::As::Copy:
    case Saved::As::Itself:
      return std::nullopt;
    case Saved::As::Input:
    case Saved::As::InputAsFound:
    case Saved::As::WrittenInput:
    case Saved::As::DataOfInput:
      return ir::CallTensor::input(how.of);
    case Saved::As::Result:
      return ir::CallTensor::output(how.of);
    case Saved::As::Base:
      return ir::CallTensor::base(how.of);
  }
  return std::nullopt;
}

/// Fills in which saved values a backward reads, of which eager would look whether they were
/// written, and what it uses up.
void note_use_of_saved(const runtime::Artifact& artifact, const ir::Graph& graph,
                       runtime::Backward& backward) {
  const ir::Signature& signature = artifact.split.signature;
  std::vector<Saved::How> kept;
  for (const ir::Output& output : artifact.split.forward.outputs()) {
    if (output.role.role == ir::Role::Saved)
      kept.push_back(artifact.split.saved[static_cast<size_t>(output.role.index)].how);
  }
  for (ir::ValueId input : graph.inputs()) {
    if (graph.input_role(input).role != ir::Role::Saved) continue;
    const ir::TypePtr& type = graph.value(input).tensor_type();
    backward.reads.push_back(graph.value(input).has_users() || (type && ir::carries_sizes(*type)));
  }
  backward.checks = backward.reads;
  if (signature.formulas.empty()) {
    backward.uses_up = {std::ranges::count(backward.reads, true) > 0};
    return;
  }
  const std::vector<bool> run = partition::formulas_run(signature, backward.asked);
  for (size_t i = 0; i < run.size(); ++i)
    backward.uses_up.push_back(run[i] && signature.formulas[i].saves);
  // A formula that computes some of its gradients still looks at all that it has saved.
  if (backward.asked.wanted.empty()) return;
  for (size_t slot = 0; slot < kept.size() && slot < backward.checks.size(); ++slot) {
    const std::optional<ir::CallTensor> watched = watched_by(kept[slot]);
    for (size_t i = 0; i < run.size() && watched && !backward.checks[slot]; ++i) {
      backward.checks[slot] =
          run[i] && std::ranges::count(signature.formulas[i].reads, *watched) > 0;
    }
  }
}

/// Which tangents belong to each autograd node of a call, unless one node has them all.
std::vector<std::vector<bool>> tangents_of_parts(const ir::Signature& signature) {
  const std::vector<ir::TangentFacts>& tangents = signature.tangents;
  const partition::PartedResults results = partition::parted_results(signature);
  std::vector<std::vector<bool>> parts;
  if (results.tangents.size() == 1 &&
      std::ranges::all_of(tangents, [](const auto& one) { return one.part == 0; }))
    return parts;
  for (const std::vector<size_t>& node : results.tangents) {
    parts.emplace_back(tangents.size());
    for (size_t tangent : node) parts.back()[tangent] = true;
  }
  const size_t first = parts.size() - 1;  // what was part 0 is taken care of
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i].part <= 0) continue;
    const size_t part = first + static_cast<size_t>(tangents[i].part);
    if (parts.size() <= part) parts.resize(part + 1, std::vector<bool>(tangents.size()));
    parts[part][i] = true;
  }
  std::erase_if(parts, [](const auto& part) { return !std::ranges::count(part, true); });
  return parts;
}

}  // namespace

runtime::Backward lower_backward(const runtime::Artifact& artifact, const ir::Graph& whole,
                                 const partition::Asked& asked, Backend& backend) {
  runtime::Backward backward{.asked = asked};
  if (!all(asked.defined) || !asked.wanted.empty()) {
    backward.graph = partition::drop_tangents(whole, asked, artifact.split.signature);
  } else if (partition::has_arrival_marks(whole)) {
    backward.graph = whole;
    partition::drop_arrival_marks(*backward.graph);
  } else if (&whole != &artifact.split.backward) {
    backward.graph = whole;
  }
  const ir::Graph& graph = backward.graph ? *backward.graph : whole;
  backward.kernels.ready = backend.compile(graph, backward_context(artifact));
  note_use_of_saved(artifact, graph, backward);
  return backward;
}

runtime::Artifact lower(runtime::Artifact artifact, Backend& backend, StageLog& log) {
  const ir::Signature& signature = artifact.split.signature;
  const auto add = [&](const std::vector<bool>& defined) {
    artifact.backwards.push_back(
        lower_backward(artifact, artifact.split.backward, {.defined = defined}, backend));
  };
  log.time("lower", [&] {
    artifact.forward.ready = backend.compile(artifact.split.forward, forward_context(artifact));
    if (!signature.training) return;
    add(std::vector<bool>(signature.tangents.size(), true));
    for (const std::vector<bool>& part : tangents_of_parts(signature)) add(part);
  });
  log.dump("forward", *artifact.forward.ready);
  if (signature.training) log.dump("backward", *artifact.backwards.front().kernels.ready);
  return artifact;
}

}  // namespace tandem::pipeline
