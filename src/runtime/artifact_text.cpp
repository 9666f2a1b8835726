#include "base/build_info.h"
#include "base/error.h"
#include "ir/text/records.h"
#include "ir/text/signature_fields.h"
#include "runtime/artifact.h"

#include <algorithm>

/// The text of an artifact.
namespace tandem {

using ir::Field;

constexpr std::array<std::string_view, 2> words(const Rounding*) { return {"eager", "fast"}; }
constexpr std::array<std::string_view, 2> words(const Random*) { return {"eager", "fast"}; }

constexpr std::array<std::string_view, 10> words(const Saved::As*) {
  return {"undecided",     "value",         "copy",   "input", "input_as_found",
          "written_input", "data_of_input", "result", "base",  "itself"};
}
constexpr auto fields(const Saved::How*) {
  return std::tuple(Field{"as", &Saved::How::as}, Field{"of", &Saved::How::of});
}
constexpr auto fields(const Saved*) {
  using F = Saved;
  return std::tuple(Field{"name", &F::name}, Field{"bytes", &F::bytes}, Field{"line", &F::line},
                    Field{"why", &F::why}, Field{"how", &F::how});
}
constexpr auto fields(const Recomputed*) {
  using F = Recomputed;
  return std::tuple(Field{"name", &F::name}, Field{"bytes", &F::bytes}, Field{"line", &F::line},
                    Field{"why", &F::why});
}
constexpr auto fields(const Split*) {
  using F = Split;
  return std::tuple(Field{"signature", &F::signature}, Field{"forward", &F::forward},
                    Field{"backward", &F::backward}, Field{"saved", &F::saved},
                    Field{"recomputed", &F::recomputed});
}

namespace partition {
constexpr std::array<std::string_view, 3> words(const ReadAs*) {
  return {"found", "now", "several"};
}
}  // namespace partition

}  // namespace tandem

namespace tandem::partition {

constexpr auto fields(const Asked*) {
  return std::tuple(Field{"defined", &Asked::defined}, Field{"wanted", &Asked::wanted});
}

}  // namespace tandem::partition

namespace tandem::runtime {

constexpr auto fields(const AllowedDifferences*) {
  using F = AllowedDifferences;
  return std::tuple(Field{"rounding", &F::rounding}, Field{"random", &F::random});
}
/// What is ready to run has been saved before.
constexpr auto fields(const Kernels*) { return std::tuple(Field{"stored", &Kernels::stored}); }
constexpr auto fields(const Backward*) {
  using F = Backward;
  return std::tuple(Field{"asked", &F::asked}, Field{"autocast", &F::autocast},
                    Field{"graph", &F::graph}, Field{"reads", &F::reads},
                    Field{"checks", &F::checks}, Field{"uses_up", &F::uses_up},
                    Field{"kernels", &F::kernels});
}
constexpr auto fields(const CallRow*) {
  return std::tuple(Field{"op", &CallRow::op}, Field{"settings", &CallRow::settings});
}
constexpr auto fields(const Artifact*) {
  using F = Artifact;
  return std::tuple(
      Field{"tandem", &F::tandem}, Field{"libtorch", &F::libtorch}, Field{"backend", &F::backend},
      Field{"allowed", &F::allowed}, Field{"sizes_vary", &F::sizes_vary}, Field{"joint", &F::joint},
      Field{"split", &F::split}, Field{"guards", &F::guards},
      Field{"result_constants", &F::result_constants}, Field{"fingerprint", &F::fingerprint},
      Field{"after_exchange", &F::after_exchange}, Field{"recorded", &F::recorded},
      Field{"calls", &F::calls}, Field{"forward", &F::forward}, Field{"backwards", &F::backwards});
}

namespace {

void save(Kernels& kernels) {
  if (kernels.ready) kernels.stored.data = kernels.ready->save();
}

template <class List>
bool is_in(int64_t index, const List& list) {
  return index >= 0 && static_cast<size_t>(index) < list.size();
}

template <class List>
bool all_in(const std::vector<int64_t>& indices, const List& list) {
  return std::ranges::all_of(indices, [&](int64_t index) { return is_in(index, list); });
}

bool can_keep(const Split& split, int64_t index) {
  if (!is_in(index, split.saved)) return false;
  const Saved::How& how = split.saved[static_cast<size_t>(index)].how;
  switch (how.as) {
    case Saved::As::Undecided:
      return false;
    case Saved::As::Value:
    case Saved::As::Copy:
      return true;
    case Saved::As::Result:
      return is_in(how.of, split.signature.outputs);
    case Saved::As::Base:
      return is_in(how.of, split.signature.bases);
    default:
      return is_in(how.of, split.signature.inputs);
  }
}

bool none_or(size_t found, size_t expected) { return found == 0 || found == expected; }

/// The rows of guards that refer to others by position.
bool rows_fit(const GuardRows& guards, const ir::Signature& signature) {
  return all_in(guards.first_same, guards.arguments) &&
         all_in(guards.closed_over, guards.arguments) &&
         none_or(guards.lifted_offsets.size(), guards.lifted.size()) &&
         none_or(guards.argument_offsets.size(), guards.arguments.size()) &&
         std::ranges::all_of(guards.shared_storage,
                             [&](const std::vector<int64_t>& group) {
                               return !group.empty() && all_in(group, guards.lifted);
                             }) &&
         std::ranges::all_of(guards.groups, [&](const GroupRow& group) {
           return !group.members.empty() &&
                  std::ranges::all_of(group.members, [&](const GroupRow::Member& member) {
                    return is_in(member.input, signature.inputs);
                  });
         });
}

/// What indexes one list by another must fit, whoever wrote the bytes.
void check(const Artifact& artifact) {
  const ir::Signature& signature = artifact.split.signature;
  const GuardRows& guards = artifact.guards;
  size_t saved = 0;
  bool keeps = true;  // as the signature allows
  for (const ir::Output& output : artifact.split.forward.outputs()) {
    if (output.role.role != ir::Role::Saved) continue;
    ++saved;
    keeps = keeps && can_keep(artifact.split, output.role.index);
  }
  const auto lifted = static_cast<size_t>(signature.lifted_count);
  bool fits = keeps && lifted <= signature.inputs.size() && guards.lifted.size() == lifted &&
              guards.names.size() == guards.arguments.size() &&
              guards.first_same.size() == guards.arguments.size() &&
              guards.groups.size() == signature.groups.size() &&
              none_or(artifact.after_exchange.size(), signature.inputs.size()) &&
              artifact.backwards.empty() != signature.training && rows_fit(guards, signature);
  for (const ir::FormulaFacts& formula : signature.formulas) {
    fits = fits && all_in(formula.tangents, signature.tangents) &&
           all_in(formula.next, signature.formulas) &&
           all_in(formula.gradients, signature.gradients);
  }
  for (size_t i = lifted; i < signature.inputs.size() && fits; ++i) {
    fits = is_in(signature.inputs[i].role.index, guards.arguments);
  }
  for (const Backward& backward : artifact.backwards) {
    const std::vector<bool>& wanted = backward.asked.wanted;
    fits = fits && backward.asked.defined.size() == signature.tangents.size() &&
           (wanted.empty() || wanted.size() == signature.gradients.size()) &&
           backward.reads.size() == saved && backward.checks.size() == saved &&
           backward.uses_up.size() == std::max<size_t>(1, signature.formulas.size());
  }
  TANDEM_REQUIRE(fits, "read", "the parts of a stored entry do not fit each other",
                 "\n  remedy: store it again");
}

/// `fn` gets every graph of an artifact.
template <class AnyArtifact, class Fn>
void for_each_graph(AnyArtifact& artifact, const Fn& fn) {
  fn(artifact.joint);
  fn(artifact.split.forward);
  fn(artifact.split.backward);
  for (auto& backward : artifact.backwards) {
    if (backward.graph) fn(*backward.graph);
  }
}

/// `fn` gets every list of constants.
template <class AnyArtifact, class Fn>
void for_each_list(AnyArtifact& artifact, const Fn& fn) {
  fn(artifact.guards.constants);
  fn(artifact.result_constants);
}

}  // namespace

std::vector<at::Generator> generators_of(const Artifact& artifact) {
  std::vector<at::Generator> found;
  const auto add = [&](const at::Generator& generator) {
    if (std::ranges::count(found, generator) == 0) found.push_back(generator);
  };
  for_each_graph(artifact, [&](const ir::Graph& graph) {
    for (const at::Generator& generator : graph.generators()) add(generator);
  });
  for_each_list(artifact, [&](const std::vector<detail::Constant>& list) {
    for (const detail::Constant& constant : list) {
      if (const auto* generator = std::get_if<at::Generator>(&constant)) add(*generator);
    }
  });
  return found;
}

void replace_generators(Artifact& artifact, const std::vector<at::Generator>& by) {
  const std::vector<at::Generator> named = generators_of(artifact);
  const auto replacement = [&](const at::Generator& generator) {
    return by[static_cast<size_t>(std::ranges::find(named, generator) - named.begin())];
  };
  for_each_graph(artifact, [&](ir::Graph& graph) {
    for (size_t i = 0; i < graph.generators().size(); ++i)
      graph.bind_generator({static_cast<int64_t>(i)}, replacement(graph.generators()[i]));
  });
  for_each_list(artifact, [&](std::vector<detail::Constant>& list) {
    for (detail::Constant& constant : list) {
      if (auto* generator = std::get_if<at::Generator>(&constant))
        *generator = replacement(*generator);
    }
  });
}

std::string write_artifact(Artifact artifact) {
  artifact.tandem = base::kVersion;
  artifact.libtorch = base::kTorchVersion;
  save(artifact.forward);
  for (Backward& backward : artifact.backwards) save(backward.kernels);
  return ir::pack_record(artifact);
}

Artifact read_artifact(std::string_view bytes) {
  auto artifact = ir::unpack_record<Artifact>(bytes);
  TANDEM_REQUIRE(artifact.tandem == base::kVersion && artifact.libtorch == base::kTorchVersion,
                 "read", "an entry was stored by Tandem ", artifact.tandem, " with libtorch ",
                 artifact.libtorch, ", this is ", base::kVersion, " with ", base::kTorchVersion,
                 "\n  remedy: store it again");
  check(artifact);
  return artifact;
}

}  // namespace tandem::runtime
