#include "base/build_info.h"
#include "base/error.h"
#include "ir/text/records.h"
#include "ir/text/signature_fields.h"
#include "runtime/artifact.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <complex>
#include <concepts>
#include <type_traits>
#include <variant>

/// The text of an artifact: records, in which a generator is the number of one that a process
/// binds.
namespace tandem {

constexpr std::array<std::string_view, 2> words(const Rounding*) { return {"eager", "fast"}; }
constexpr std::array<std::string_view, 2> words(const Random*) { return {"eager", "fast"}; }

constexpr std::array<std::string_view, 9> words(const Saved::As*) {
  return {"undecided",     "value",         "copy",   "input", "input_as_found",
          "written_input", "data_of_input", "result", "base"};
}
constexpr auto fields(const Saved::How*) {
  return std::tuple(ir::Field{"as", &Saved::How::as}, ir::Field{"of", &Saved::How::of});
}
constexpr auto fields(const Saved*) {
  return std::tuple(ir::Field{"name", &Saved::name}, ir::Field{"bytes", &Saved::bytes},
                    ir::Field{"line", &Saved::line}, ir::Field{"why", &Saved::why},
                    ir::Field{"how", &Saved::how});
}
constexpr auto fields(const Recomputed*) {
  using F = Recomputed;
  return std::tuple(ir::Field{"name", &F::name}, ir::Field{"bytes", &F::bytes},
                    ir::Field{"line", &F::line}, ir::Field{"why", &F::why});
}

}  // namespace tandem

namespace tandem::runtime {

using ir::Field;

constexpr auto fields(const AllowedDifferences*) {
  using F = AllowedDifferences;
  return std::tuple(Field{"rounding", &F::rounding}, Field{"random", &F::random});
}

constexpr auto fields(const ThreadState*) {
  using F = ThreadState;
  return std::tuple(
      Field{"included_keys", &F::included_keys}, Field{"excluded_keys", &F::excluded_keys},
      Field{"grad_mode", &F::grad_mode}, Field{"deterministic", &F::deterministic},
      Field{"onednn", &F::onednn}, Field{"default_dtype", &F::default_dtype},
      Field{"cpu_autocast_dtype", &F::cpu_autocast_dtype},
      Field{"cuda_autocast_dtype", &F::cuda_autocast_dtype},
      Field{"autocast_cache", &F::autocast_cache}, Field{"flash_attention", &F::flash_attention},
      Field{"math_attention", &F::math_attention},
      Field{"efficient_attention", &F::efficient_attention}, Field{"threads", &F::threads});
}

constexpr auto fields(const TensorRow*) {
  using F = TensorRow;
  return std::tuple(Field{"defined", &F::defined}, Field{"type", &F::type}, Field{"keys", &F::keys},
                    Field{"requires_grad", &F::requires_grad}, Field{"is_leaf", &F::is_leaf},
                    Field{"wrapped_number", &F::wrapped_number});
}

constexpr auto fields(const ModuleRow*) {
  using F = ModuleRow;
  return std::tuple(Field{"path", &F::path}, Field{"training", &F::training},
                    Field{"parameters", &F::parameters}, Field{"buffers", &F::buffers},
                    Field{"children", &F::children});
}

constexpr auto fields(const GroupRow::Member*) {
  using F = GroupRow::Member;
  return std::tuple(Field{"input", &F::input}, Field{"offset", &F::offset},
                    Field{"creation", &F::creation});
}
constexpr auto fields(const GroupRow*) {
  return std::tuple(Field{"members", &GroupRow::members}, Field{"base", &GroupRow::base});
}

namespace {

/// One of the alternatives of a constant.
struct StoredConstant {
  enum class Kind : uint8_t { Bool, Integer, Real, Complex, Text, Generator };
  Kind kind = Kind::Bool;
  int64_t integer = 0;  // also a flag, also the number of a generator
  double real = 0, imaginary = 0;
  std::string text{};
};
constexpr std::array<std::string_view, 6> words(const StoredConstant::Kind*) {
  return {"bool", "integer", "real", "complex", "text", "generator"};
}
constexpr auto fields(const StoredConstant*) {
  using F = StoredConstant;
  return std::tuple(Field{"kind", &F::kind}, Field{"integer", &F::integer}, Field{"real", &F::real},
                    Field{"imaginary", &F::imaginary}, Field{"text", &F::text});
}

/// A graph, and which generator of the artifact each of its own is.
struct StoredGraph {
  ir::Graph graph{};
  std::vector<int64_t> generators{};
};
constexpr auto fields(const StoredGraph*) {
  using F = StoredGraph;
  return std::tuple(Field{"graph", &F::graph}, Field{"generators", &F::generators});
}

struct StoredGuards {
  ThreadState thread{};
  std::vector<std::string> effectful_ops{};
  std::vector<StoredConstant> constants{};
  std::vector<TensorRow> arguments{};
  std::vector<std::string> names{};
  std::vector<int64_t> first_same{};
  std::vector<ModuleRow> modules{};
  std::vector<std::string> closes_over{};
  std::optional<StoredConstant> guard_on{};
  std::vector<TensorRow> lifted{};
  std::vector<std::vector<int64_t>> shared_storage{};
  std::vector<int64_t> closed_over{};
  std::vector<int64_t> lifted_offsets{}, argument_offsets{};
  std::vector<GroupRow> groups{};
};
constexpr auto fields(const StoredGuards*) {
  using F = StoredGuards;
  return std::tuple(
      Field{"thread", &F::thread}, Field{"effectful_ops", &F::effectful_ops},
      Field{"constants", &F::constants}, Field{"arguments", &F::arguments},
      Field{"names", &F::names}, Field{"first_same", &F::first_same}, Field{"modules", &F::modules},
      Field{"closes_over", &F::closes_over}, Field{"guard_on", &F::guard_on},
      Field{"lifted", &F::lifted}, Field{"shared_storage", &F::shared_storage},
      Field{"closed_over", &F::closed_over}, Field{"lifted_offsets", &F::lifted_offsets},
      Field{"argument_offsets", &F::argument_offsets}, Field{"groups", &F::groups});
}

struct StoredBackward {
  std::vector<bool> defined{};
  std::optional<StoredGraph> graph{};
  std::vector<bool> reads{}, writes{};
  ir::Bytes kernels{};
};
constexpr auto fields(const StoredBackward*) {
  using F = StoredBackward;
  return std::tuple(Field{"defined", &F::defined}, Field{"graph", &F::graph},
                    Field{"reads", &F::reads}, Field{"writes", &F::writes},
                    Field{"kernels", &F::kernels});
}

struct StoredArtifact {
  std::string tandem{}, libtorch{};  // versions
  std::string backend{};
  AllowedDifferences allowed{};
  int64_t generators = 0;
  ir::Signature signature{};
  StoredGuards guards{};
  std::vector<StoredConstant> result_constants{};
  StoredGraph joint{}, forward{}, backward{};
  std::vector<Saved> saved{};
  std::vector<Recomputed> recomputed{};
  ir::Bytes forward_kernels{};
  std::vector<StoredBackward> backwards{};
};
constexpr auto fields(const StoredArtifact*) {
  using F = StoredArtifact;
  return std::tuple(
      Field{"tandem", &F::tandem}, Field{"libtorch", &F::libtorch}, Field{"backend", &F::backend},
      Field{"allowed", &F::allowed}, Field{"generators", &F::generators},
      Field{"signature", &F::signature}, Field{"guards", &F::guards},
      Field{"result_constants", &F::result_constants}, Field{"joint", &F::joint},
      Field{"forward", &F::forward}, Field{"backward", &F::backward}, Field{"saved", &F::saved},
      Field{"recomputed", &F::recomputed}, Field{"forward_kernels", &F::forward_kernels},
      Field{"backwards", &F::backwards});
}

// ---- there ----

/// Gives every generator of an artifact its number.
class Generators {
 public:
  int64_t number_of(const at::Generator& generator) {
    const auto known = std::ranges::find(all_, generator);
    const int64_t number = known - all_.begin();
    if (known == all_.end()) all_.push_back(generator);
    return number;
  }
  const std::vector<at::Generator>& all() const { return all_; }

 private:
  std::vector<at::Generator> all_;
};

StoredGraph store(const ir::Graph& graph, Generators& generators) {
  StoredGraph stored{.graph = graph};
  for (const at::Generator& generator : graph.generators())
    stored.generators.push_back(generators.number_of(generator));
  return stored;
}

StoredConstant store(const detail::Constant& constant, Generators& generators) {
  using Kind = StoredConstant::Kind;
  return std::visit(
      [&](const auto& value) -> StoredConstant {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return {.kind = Kind::Bool, .integer = value};
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return {.kind = Kind::Integer, .integer = value};
        } else if constexpr (std::is_same_v<T, double>) {
          return {.kind = Kind::Real, .real = value};
        } else if constexpr (std::is_same_v<T, std::complex<double>>) {
          return {.kind = Kind::Complex, .real = value.real(), .imaginary = value.imag()};
        } else if constexpr (std::is_same_v<T, std::string>) {
          return {.kind = Kind::Text, .text = value};
        } else {
          return {.kind = Kind::Generator, .integer = generators.number_of(value)};
        }
      },
      constant);
}

std::vector<StoredConstant> store(const std::vector<detail::Constant>& constants,
                                  Generators& generators) {
  std::vector<StoredConstant> stored;
  for (const detail::Constant& constant : constants) stored.push_back(store(constant, generators));
  return stored;
}

StoredGuards store(const GuardRows& rows, Generators& generators) {
  StoredGuards stored{.thread = rows.thread,
                      .effectful_ops = rows.effectful_ops,
                      .constants = store(rows.constants, generators),
                      .arguments = rows.arguments,
                      .names = rows.names,
                      .first_same = rows.first_same,
                      .modules = rows.modules,
                      .closes_over = rows.closes_over,
                      .lifted = rows.lifted,
                      .shared_storage = rows.shared_storage,
                      .closed_over = rows.closed_over,
                      .lifted_offsets = rows.lifted_offsets,
                      .argument_offsets = rows.argument_offsets,
                      .groups = rows.groups};
  if (rows.guard_on) {
    stored.guard_on =
        std::visit([&](const auto& value) { return store(detail::Constant(value), generators); },
                   *rows.guard_on);
  }
  return stored;
}

ir::Bytes store(const Kernels& kernels) {
  return {kernels.ready ? kernels.ready->save() : kernels.stored};
}

// ---- and back ----

/// Stand for those that bind() puts in their place.
using StandIns = std::vector<at::Generator>;

at::Generator stand_in(const StandIns& all, int64_t number) {
  TANDEM_REQUIRE(number >= 0 && static_cast<size_t>(number) < all.size(), "read",
                 "a stored entry names generator ", number, " of ", all.size(),
                 "\n  remedy: store it again");
  return all[static_cast<size_t>(number)];
}

ir::Graph restore(StoredGraph stored, const StandIns& generators) {
  for (size_t i = 0; i < stored.generators.size(); ++i) {
    stored.graph.bind_generator({static_cast<int64_t>(i)},
                                stand_in(generators, stored.generators[i]));
  }
  return std::move(stored.graph);
}

detail::Constant restore(StoredConstant stored, const StandIns& generators) {
  using Kind = StoredConstant::Kind;
  switch (stored.kind) {
    case Kind::Bool:
      return stored.integer != 0;
    case Kind::Integer:
      return stored.integer;
    case Kind::Real:
      return stored.real;
    case Kind::Complex:
      return std::complex<double>(stored.real, stored.imaginary);
    case Kind::Text:
      return std::move(stored.text);
    case Kind::Generator:
      break;
  }
  return stand_in(generators, stored.integer);
}

std::vector<detail::Constant> restore(std::vector<StoredConstant> stored,
                                      const StandIns& generators) {
  std::vector<detail::Constant> constants;
  for (StoredConstant& constant : stored)
    constants.push_back(restore(std::move(constant), generators));
  return constants;
}

GuardRows restore(StoredGuards stored, const StandIns& generators) {
  GuardRows rows{.thread = stored.thread,
                 .effectful_ops = std::move(stored.effectful_ops),
                 .constants = restore(std::move(stored.constants), generators),
                 .arguments = std::move(stored.arguments),
                 .names = std::move(stored.names),
                 .first_same = std::move(stored.first_same),
                 .modules = std::move(stored.modules),
                 .closes_over = std::move(stored.closes_over),
                 .lifted = std::move(stored.lifted),
                 .shared_storage = std::move(stored.shared_storage),
                 .closed_over = std::move(stored.closed_over),
                 .lifted_offsets = std::move(stored.lifted_offsets),
                 .argument_offsets = std::move(stored.argument_offsets),
                 .groups = std::move(stored.groups)};
  if (stored.guard_on) {
    rows.guard_on = std::visit(
        [](auto value) -> GuardFn::Value {
          if constexpr (std::constructible_from<GuardFn::Value, decltype(value)>) {
            return value;
          } else {
            TANDEM_REQUIRE(false, "read", "a stored entry is guarded by what guard_on never gives",
                           "\n  remedy: store it again");
          }
        },
        restore(std::move(*stored.guard_on), generators));
  }
  return rows;
}

bool can_keep(const Split& split, int64_t index) {
  const auto is_in = [](int64_t i, const auto& list) {
    return i >= 0 && static_cast<size_t>(i) < list.size();
  };
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
              artifact.backwards.empty() != signature.training;
  for (size_t i = lifted; i < signature.inputs.size() && fits; ++i) {
    const int64_t argument = signature.inputs[i].role.index;
    fits = argument >= 0 && static_cast<size_t>(argument) < guards.arguments.size();
  }
  for (const Backward& backward : artifact.backwards) {
    fits = fits && backward.defined.size() == signature.tangents.size() &&
           backward.reads.size() == saved && backward.writes.size() == saved;
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
  Generators found;
  for_each_graph(artifact, [&](const ir::Graph& graph) {
    for (const at::Generator& generator : graph.generators()) found.number_of(generator);
  });
  for_each_list(artifact, [&](const std::vector<detail::Constant>& list) {
    for (const detail::Constant& constant : list) {
      if (const auto* generator = std::get_if<at::Generator>(&constant))
        found.number_of(*generator);
    }
  });
  return found.all();
}

void replace_generators(Artifact& artifact, const std::vector<at::Generator>& by) {
  const std::vector<at::Generator> named = generators_of(artifact);
  const auto replacement = [&](const at::Generator& generator) {
    return by[static_cast<size_t>(std::ranges::find(named, generator) - named.begin())];
  };
  for_each_graph(artifact, [&](ir::Graph& graph) {
    for (size_t i = 0; i < graph.generators().size(); ++i) {
      graph.bind_generator({static_cast<int64_t>(i)}, replacement(graph.generators()[i]));
    }
  });
  for_each_list(artifact, [&](std::vector<detail::Constant>& list) {
    for (detail::Constant& constant : list) {
      if (auto* generator = std::get_if<at::Generator>(&constant))
        *generator = replacement(*generator);
    }
  });
}

std::string write_artifact(const Artifact& artifact) {
  Generators generators;
  for (const at::Generator& generator : generators_of(artifact)) generators.number_of(generator);
  const Split& split = artifact.split;
  StoredArtifact stored{.tandem = base::kVersion,
                        .libtorch = base::kTorchVersion,
                        .backend = artifact.backend,
                        .allowed = artifact.allowed,
                        .generators = static_cast<int64_t>(generators.all().size()),
                        .signature = split.signature,
                        .guards = store(artifact.guards, generators),
                        .result_constants = store(artifact.result_constants, generators),
                        .joint = store(artifact.joint, generators),
                        .forward = store(split.forward, generators),
                        .backward = store(split.backward, generators),
                        .saved = split.saved,
                        .recomputed = split.recomputed,
                        .forward_kernels = store(artifact.forward)};
  for (const Backward& backward : artifact.backwards) {
    StoredBackward& row = stored.backwards.emplace_back();
    row = {.defined = backward.defined,
           .reads = backward.reads,
           .writes = backward.writes,
           .kernels = store(backward.kernels)};
    if (backward.graph) row.graph = store(*backward.graph, generators);
  }
  return ir::pack_record(stored);
}

Artifact read_artifact(std::string_view bytes) {
  auto stored = ir::unpack_record<StoredArtifact>(bytes);
  TANDEM_REQUIRE(stored.tandem == base::kVersion && stored.libtorch == base::kTorchVersion, "read",
                 "an entry was stored by Tandem ", stored.tandem, " with libtorch ",
                 stored.libtorch, ", this is ", base::kVersion, " with ", base::kTorchVersion,
                 "\n  remedy: store it again");
  constexpr int64_t kMostGenerators = 10000;
  TANDEM_REQUIRE(stored.generators >= 0 && stored.generators <= kMostGenerators, "read",
                 "a stored entry has ", stored.generators, " generators",
                 "\n  remedy: store it again");
  StandIns generators;
  for (int64_t i = 0; i < stored.generators; ++i)
    generators.push_back(at::detail::createCPUGenerator());
  Artifact artifact{.backend = std::move(stored.backend),
                    .allowed = stored.allowed,
                    .joint = restore(std::move(stored.joint), generators),
                    .guards = restore(std::move(stored.guards), generators),
                    .result_constants = restore(std::move(stored.result_constants), generators),
                    .forward = {.stored = std::move(stored.forward_kernels.data)}};
  artifact.split = {.forward = restore(std::move(stored.forward), generators),
                    .backward = restore(std::move(stored.backward), generators),
                    .saved = std::move(stored.saved),
                    .signature = std::move(stored.signature),
                    .recomputed = std::move(stored.recomputed)};
  for (StoredBackward& row : stored.backwards) {
    Backward& backward = artifact.backwards.emplace_back();
    backward.defined = std::move(row.defined);
    backward.reads = std::move(row.reads);
    backward.writes = std::move(row.writes);
    backward.kernels.stored = std::move(row.kernels.data);
    if (row.graph) backward.graph = restore(std::move(*row.graph), generators);
  }
  check(artifact);
  return artifact;
}

}  // namespace tandem::runtime
