#include "pipeline/pipeline.h"

#include "base/error.h"
#include "joint/build_joint.h"
#include "ops/op_table.h"
#include "ops/own/fast_draws.h"
#include "partition/finish_split.h"
#include "partition/keeping.h"
#include "passes/decompose.h"
#include "passes/registry.h"
#include "passes/remove_dead_nodes.h"
#include "pipeline/options.h"
#include "runtime/backward/primals.h"
#include "signature/read_signature.h"
#include "tracing/ambient.h"
#include "tracing/trace.h"
#include "tracing/with_autocast.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <span>

namespace tandem::pipeline {
namespace {

/// The clean-up in order. Dead nodes are work for nobody; constants show that an op does nothing;
/// no-ops hide equal views, those hide round trips, and all of them hide duplicates. Each leaves
/// dead nodes.
constexpr const char* kJointPasses[] = {
    "remove-dead-nodes",  "fold-constants",   "remove-no-ops",    "merge-views",
    "remove-round-trips", "merge-duplicates", "remove-dead-nodes"};

/// While Tandem is developed every step is verified by itself, so that an error names the step that
/// made it. A release verifies what goes into the partition and what comes out of it.
#ifdef NDEBUG
constexpr bool kVerifyEveryStep = false;
#else
constexpr bool kVerifyEveryStep = true;
#endif

tracing::KnownTensors known_tensors(const Options& options) {
  tracing::KnownTensors known;
  for (size_t i = 0; i < options.modules.size(); ++i) {
    // Several modules may use one path; their position keeps the names apart.
    const std::string prefix = options.modules.size() > 1 ? std::to_string(i) + "." : "";
    for (const auto& item : options.modules[i]->named_parameters()) {
      known.try_emplace(item.value().unsafeGetTensorImpl(),
                        ir::Descriptor::param(prefix + item.key()));
    }
    for (const auto& item : options.modules[i]->named_buffers()) {
      known.try_emplace(item.value().unsafeGetTensorImpl(),
                        ir::Descriptor::buffer(prefix + item.key()));
    }
  }
  return known;
}

/// The ops that address memory from the start of the storage; their gradients do so, too.
bool counts_from_storage_start(const Joint& joint) {
  bool found = false;
  const auto look = [&](const ir::Node& node) {
    found = found || (node.kind() == ir::NodeKind::Op &&
                      node.op().operator_name().name.starts_with("aten::as_strided"));
  };
  joint.graph.for_each_node(look);
  for (const ir::ViewReplay& replay : joint.signature.replays) replay.graph.for_each_node(look);
  return found;
}

/// Makes the functions that compute gradients of calls of an entry.
runtime::GradientFunctions::Make derive(std::shared_ptr<const Program> program, Options options,
                                        const tracing::ThreadSwitches& switches,
                                        uint64_t fingerprint) {
  // The user hears of what his own calls do.
  options.on_event = nullptr;
  options.verify_every = 0;
  options.dump_dir.clear();
  options.on_overflow = OnOverflow::error;
  options.on_unsupported = OnUnsupported::error;
  return [=, program = std::move(program), options = std::move(options)](
             const runtime::EntryState& entry, size_t part, const std::vector<bool>& defined) {
    auto derived = std::make_shared<Program>(*program);
    if (!program->is_derived()) {
      derived->switches = switches;
      derived->fingerprint = fingerprint;
    }
    joint::Derivation step{.of = entry.signature(),
                           .lifted = entry.lifted(),
                           .arguments = entry.argument_count(),
                           .part = part,
                           .defined = defined,
                           .replaced = {},
                           .histories = {},
                           .generators = entry.primals().generators};
    for (size_t i : entry.primals().replaced) step.replaced.push_back(entry.lifted()[i]);
    for (const runtime::CallPlan::PassedHistory& one : entry.plan().parts[part].passed)
      step.histories.push_back(one.of);
    derived->derivations.push_back(std::move(step));
    return compile_gradients(std::move(derived), options);
  };
}

/// Effects that the calls before have had. What such an op returned cannot be had again.
void drop_happened(ir::Graph& graph, ir::NodeId last) {
  bool dropped = true;
  while (dropped) {
    dropped = false;
    graph.for_each_node_reversed([&](ir::Node& node) {
      if (node.id() > last || node.kind() != ir::NodeKind::Op) return;
      const ops::OpInfo& info = ops::info(node.op());
      const bool read = std::ranges::any_of(node.results(), [&](ir::ValueId id) {
        return id != ir::kNoValue && graph.value(id).has_users();
      });
      if (read || !info.has_effect || info.random) return;
      graph.erase(node);
      dropped = true;
    });
    if (dropped) passes::remove_dead_nodes(graph);
  }
  graph.for_each_node([&](const ir::Node& node) {
    if (node.id() > last || node.kind() != ir::NodeKind::Op || !ops::info(node.op()).has_effect)
      return;
    TANDEM_UNSUPPORTED("call", "backward with create_graph=true reads what ",
                       node.op().operator_name().name,
                       " returned, an op with effects, which must not happen twice",
                       base::detail_line("at", ir::to_string(node.location())),
                       "\n  remedy: call the op outside the compiled function");
  });
}

}  // namespace

Captured capture(const Program& program, const detail::Flat& arguments, const Options& options,
                 StageLog& log) {
  const std::vector<std::string> names = program.tensor_names(arguments);
  const std::vector<tracing::Replacement> replacements = program.replacements();
  std::optional<tracing::Trace> trace;
  Captured captured;
  const auto run = [&](tracing::Retrace retrace) {
    trace.emplace(arguments, known_tensors(options), names, std::move(retrace), replacements,
                  program.own_tensors(arguments));
    log.time("trace", [&] { captured.run = run_program(program, *trace); });
  };
  run({});
  if (std::optional<tracing::Retrace> retrace = trace->retrace()) {
    // Stand-ins that were made apart cannot share a write any more.
    trace.reset();
    run(*std::move(retrace));
    ++captured.counts.traces;
  }
  const auto effects =
      program.is_derived() ? signature::Effects::Dropped : signature::Effects::Kept;
  signature::Reading reading =
      log.time("signature", [&] { return signature::read_signature(*trace, effects); });
  captured.joint = log.time(
      "joint", [&] { return joint::build_joint(*trace, std::move(reading), "function.joint"); });
  partition::note_inputs_read(captured.joint);
  captured.result_constants.assign(trace->results().constants.begin(),
                                   trace->results().constants.end());
  captured.counts.zero_fallbacks = trace->recording().metadata().counts().zeros;
  if (kVerifyEveryStep) ir::verify(captured.joint.graph, "joint");
  log.dump("joint", captured.joint.graph);
  return captured;
}

Decompositions chosen_decompositions(const Options& options) {
  const std::shared_ptr<Backend> backend = options.backend.resolve();
  Decompositions table = backend->decompositions(options.rounding);
  // Only in fused kernels are such draws faster than libtorch's.
  if (options.random == Random::fast && backend->fuses()) table.merge(ops::fast_draws());
  return table.merge(options.decompositions);
}

std::span<const char* const> joint_passes() { return kJointPasses; }

void run_passes(ir::Graph& graph, const Decompositions& table, Rounding rounding, StageLog& log) {
  passes::PassObserver observer;
  observer.verify = kVerifyEveryStep;
  for (const PassInfo& pass : passes::all_passes()) {
    if (!runs(pass, rounding)) observer.disabled.insert(pass.name);
  }
  observer.after_step = [&](const passes::StepReport& step) {
    if (!step.disabled) log.note_step("passes", std::string(step.name), step.seconds);
    log.dump(std::string(step.name), step.graph, step.changes > 0);
  };
  log.time("passes", [&] {
    // An export has its trace still open; what a pass computes is no part of it.
    std::optional<tracing::OutsideTrace> outside;
    if (tracing::is_tracing()) outside.emplace();
    if (!table.empty()) {
      const PassResult result = passes::decompose(graph, table);
      if (kVerifyEveryStep) ir::verify(graph, "passes");
      log.dump("decompose", graph, result.changes > 0);
    }
    for (const char* name : kJointPasses)
      passes::run_pass(passes::find_pass(name), graph, observer);
    if (!kVerifyEveryStep) ir::verify(graph, "passes");
  });
}

Split cut(const Joint& joint, const Options& options, StageLog& log) {
  Split split = log.time("partition", [&] { return options.partitioner(joint, options); });
  partition::finish_split(split, options.mutations);
  ir::verify(split.forward, "partition");
  log.dump("forward", split.forward);
  if (split.signature.training) {
    ir::verify(split.backward, "partition");
    log.dump("backward", split.backward);
  }
  return split;
}

std::shared_ptr<const runtime::EntryState> compile_entry(
    const std::shared_ptr<const Program>& program, const detail::Flat& arguments,
    const Options& options, StageLog& log, CaptureCounts& counts) {
  runtime::Guards guards(runtime::ThreadState::now(), arguments, program->tensor_names(arguments),
                         options);
  const tracing::ThreadSwitches switches = tracing::ThreadSwitches::now();
  Captured captured = capture(*program, arguments, options, log);
  counts = captured.counts;
  if (program->is_derived()) *program->derived_traces += counts.traces;
  const std::vector<bool> come_from = runtime::gradients_come_from(captured.joint.graph);
  run_passes(captured.joint.graph, chosen_decompositions(options), options.rounding, log);
  if (program->is_derived()) drop_happened(captured.joint.graph, captured.run.happened);
  Split split = cut(captured.joint, options, log);
  guards.add_trace(captured.joint.lifted, split.signature, arguments);
  if (counts_from_storage_start(captured.joint)) guards.add_storage_offsets(arguments);
  runtime::Higher higher;
  if (options.higher_order && split.signature.training) {
    higher.make = derive(program, options, switches, captured.run.fingerprint);
    higher.gradients_come_from = come_from;
    higher.argument_count = arguments.tensors.size();
    higher.argument_constants.assign(arguments.constants.begin(), arguments.constants.end());
  }
  auto entry = log.time("lower", [&] {
    return std::make_shared<const runtime::EntryState>(
        std::move(captured.joint), std::move(split), options.backend.resolve(), std::move(guards),
        std::move(captured.result_constants), std::move(higher),
        runtime::Liberties{options.rounding, options.random});
  });
  log.dump("forward", entry->forward());
  if (entry->signature().training) {
    entry->backward().set_with_autocast(tracing::with_autocast);
    log.dump("backward", entry->backward().whole());
  }
  log.finish();
  return entry;
}

}  // namespace tandem::pipeline
