#include "pipeline/pipeline.h"

#include "base/error.h"
#include "joint/build_joint.h"
#include "libtorch/tensor_hooks.h"
#include "ops/reads.h"
#include "partition/carry_sizes.h"
#include "partition/direct_reads.h"
#include "partition/finish_split.h"
#include "passes/decompose.h"
#include "passes/drop_happened.h"
#include "passes/registry.h"
#include "pipeline/backward_compiler.h"
#include "pipeline/data_sizes.h"
#include "pipeline/lower.h"
#include "pipeline/settings/options.h"
#include "runtime/backward/generator_states.h"
#include "runtime/bind.h"
#include "runtime/guards/constant_text.h"
#include "runtime/guards/sizes_key.h"
#include "runtime/with_fallback.h"
#include "shapes/stable_hash.h"
#include "signature/read_signature.h"
#include "tracing/recording/tracing_state.h"
#include "tracing/trace.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

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

std::vector<at::Tensor> lifted_by(const tracing::Trace& trace) {
  std::vector<at::Tensor> lifted;
  for (size_t i = trace.argument_count(); i < trace.stand_ins().size(); ++i)
    lifted.push_back(trace.stand_ins()[i].real);
  return lifted;
}

/// Each call would make another one, which begins anew; the graph draws from the one of the trace.
void refuse_own_generators(const ir::Graph& graph) {
  for (size_t i = 0; i < graph.generators().size(); ++i) {
    const at::Generator& generator = graph.generators()[i];
    if (!generator.defined() || generator.getIntrusivePtr().use_count() > 1) continue;
    const ir::Operand drawn_from(ir::GeneratorRef{static_cast<int64_t>(i)});
    std::string line;
    graph.for_each_node([&](const ir::Node& node) {
      if (line.empty() && std::ranges::count(node.operands(), drawn_from) > 0)
        line = ir::to_string(node.location());
    });
    TANDEM_UNSUPPORTED("trace", "the function draws from a generator that it makes",
                       base::detail_line("at", line),
                       "\n  remedy: make it outside and seed it before each call; pass it as an "
                       "argument or close over it");
  }
}

std::vector<runtime::CallRow> call_rows(const std::vector<tracing::UserCall>& calls) {
  std::vector<runtime::CallRow> rows;
  for (const tracing::UserCall& call : calls)
    rows.push_back({call.op_name(), call.setting_texts()});
  return rows;
}

/// Of the calls of a function without a named module, the first that tells of training mode.
std::optional<tracing::UserCall> unnamed_training(const std::vector<tracing::UserCall>& calls,
                                                  const Options& options) {
  if (!options.modules.empty()) return std::nullopt;
  const auto it = std::ranges::find_if(calls, &tracing::UserCall::trains);
  return it == calls.end() ? std::nullopt : std::optional(*it);
}

uint64_t shape_free_hash(const Joint& joint, std::span<const detail::Constant> results) {
  shapes::StableHash hash;
  hash.add(ir::shape_free_hash(joint.graph)).add(ir::shape_free_hash(joint.signature));
  for (const detail::Constant& result : results) {
    hash.add(result.index());
    if (!runtime::varies(result)) hash.add(runtime::constant_text(result));
  }
  return hash.value();
}

bool counts_from_storage_start(const Joint& joint) {
  const auto counts = [](const ir::ViewReplay& replay) {
    return ops::counts_from_storage_start(replay.graph);
  };
  // What a call reshapes gets the offset that it had after the trace.
  const auto is_reshaped = [](const ir::InputFacts& facts) {
    return facts.metadata_changed || facts.storage == ir::StorageChange::Replaced;
  };
  return ops::counts_from_storage_start(joint.graph) ||
         std::ranges::any_of(joint.signature.replays, counts) ||
         std::ranges::any_of(joint.signature.inputs, is_reshaped);
}

/// `draws`: which numbers stand for sizes that depend on data (`tracing::DataSizes`).
Captured capture_in(std::optional<tracing::Trace>& trace, const Program& program,
                    const detail::Flat& arguments, const Options& options, StageLog& log,
                    size_t draws, DrawnSizes& sizes) {
  const std::vector<std::string> names = program.tensor_names(arguments);
  const std::vector<tracing::Replacement> replacements = program.replacements();
  Captured captured;
  const auto run = [&](tracing::Retrace retrace) {
    trace.emplace(
        arguments,
        tracing::InputOptions{.known = known_tensors(options),
                              .names = names,
                              .retrace = std::move(retrace),
                              .with_grad = program.is_derived() ? program.thread.grad_mode
                                                                : c10::GradMode::is_enabled(),
                              .own_tensors = program.own_tensors(arguments),
                              .met_earlier = program.met_leaves->all()},
        replacements);
    if (!program.is_derived()) trace->recording().draw_data_sizes(draws);
    log.time("trace", [&] { captured.run = run_program(program, *trace); });
  };
  run({});
  if (std::optional<tracing::Retrace> retrace = std::move(captured.run.retrace)) {
    // Stand-ins that were made apart cannot be made to share writes later, so the function runs
    // again.
    trace.reset();
    run(*std::move(retrace));
    ++captured.counts.traces;
  }
  const auto effects =
      program.is_derived() ? signature::Effects::Dropped : signature::Effects::Kept;
  signature::Reading reading =
      log.time("signature", [&] { return signature::read_signature(*trace, effects); });
  {
    const joint::ExchangedData exchanged(*trace, program.derivations);
    captured.joint = log.time(
        "joint", [&] { return joint::build_joint(*trace, std::move(reading), "function.joint"); });
  }
  captured.result_constants.assign(trace->results().constants.begin(),
                                   trace->results().constants.end());
  program.met_leaves->note(*trace);
  sizes = DrawnSizes::of(trace->recording());
  captured.counts.zero_fallbacks = trace->recording().metadata().counts().zeros;
  if (program.is_derived()) *program.derived_traces += captured.counts.traces;
  trace.reset();  // by now only whoever made a generator holds it
  refuse_own_generators(captured.joint.graph);
  captured.shape_free = shape_free_hash(captured.joint, captured.result_constants);
  return captured;
}

/// What a run does to real things, of which a call knows nothing, is taken back when this dies.
class KeptHost {
 public:
  explicit KeptHost(const Captured& first)
      : lifted_(first.joint.lifted), generators_(first.joint.graph) {
    for (const at::Tensor& tensor : lifted_) hooks_.push_back(libtorch::hook_count(tensor));
  }
  ~KeptHost() {
    generators_.restore();
    for (size_t i = 0; i < lifted_.size(); ++i) libtorch::drop_later_hooks(lifted_[i], hooks_[i]);
  }
  KeptHost(const KeptHost&) = delete;
  KeptHost& operator=(const KeptHost&) = delete;

 private:
  const std::vector<at::Tensor>& lifted_;
  const runtime::GeneratorStates generators_;
  std::vector<size_t> hooks_;
};

/// The error of a run at sizes that it has drawn itself.
std::string first_line(const std::exception& error) {
  const auto* raised = dynamic_cast<const c10::Error*>(&error);
  const std::string text = raised ? raised->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

FurtherRun further_run(const Captured& first, const Program& program, const detail::Flat& arguments,
                       const Options& options, size_t draws) {
  const KeptHost kept(first);
  FurtherRun run;
  std::optional<tracing::Trace> trace;
  StageLog log("sizes", {});
  try {
    run.captured = capture_in(trace, program, arguments, options, log, draws, run.sizes);
  } catch (const std::exception& error) {
    run.error = first_line(error);
    if (trace) {
      run.sizes = DrawnSizes::of(trace->recording());
      run.captured.joint.graph = trace->recording().graph();
    }
  }
  return run;
}

}  // namespace

Captured capture(const Program& program, const detail::Flat& arguments, const Options& options,
                 StageLog& log, std::vector<at::Tensor>* lifted) {
  std::optional<tracing::Trace> trace;
  Captured captured;
  DrawnSizes sizes;
  try {
    captured = capture_in(trace, program, arguments, options, log, 0, sizes);
  } catch (const c10::Error& error) {
    if (lifted && trace) *lifted = lifted_by(*trace);
    // The numbers in its text mean nothing to the user.
    if (trace && !DrawnSizes::of(trace->recording()).drawn.empty())
      refuse_sizes(first_line(error), ir::to_string(trace->recording().lines().last()));
    throw;
  } catch (...) {
    if (lifted && trace) *lifted = lifted_by(*trace);
    throw;
  }
  if (!sizes.drawn.empty()) {
    const auto run = [&](size_t draws) {
      ++captured.counts.traces;
      return further_run(captured, program, arguments, options, draws);
    };
    try {
      log.time("trace", [&] { generalise(captured, sizes, run); });
    } catch (...) {
      if (lifted) *lifted = std::move(captured.joint.lifted);
      throw;
    }
    captured.shape_free = shape_free_hash(captured.joint, captured.result_constants);
  }
  if (kVerifyEveryStep) ir::verify(captured.joint.graph, "joint");
  log.dump("joint", captured.joint.graph);
  captured.recorded = ir::structural_hash(captured.joint.graph);
  return captured;
}

Decompositions chosen_decompositions(const Options& options) {
  const std::shared_ptr<Backend> backend = options.backend.resolve();
  return backend->decompositions(options.rounding, options.random).merge(options.decompositions);
}

std::span<const char* const> joint_passes() { return kJointPasses; }

void run_passes(ir::Graph& graph, const Decompositions& table, Rounding rounding, StageLog& log,
                ir::NodeId happened) {
  passes::PassObserver observer;
  observer.verify = kVerifyEveryStep;
  for (const PassInfo& pass : passes::all_passes()) {
    // Of decompositions each says for itself whether it is exact, and the table has only those that
    // the rounding allows.
    const bool on =
        std::string_view(pass.name) == "decompose" ? is_switched_on(pass) : runs(pass, rounding);
    if (!on) observer.disabled.insert(pass.name);
  }
  observer.after_step = [&](const passes::StepReport& step) {
    if (!step.disabled) log.note_step("passes", std::string(step.name), step.seconds);
    log.dump(std::string(step.name), step.graph, step.changes > 0);
  };
  log.time("passes", [&] {
    // An export has its trace still open; what a pass computes is no part of it.
    std::optional<tracing::OutsideTrace> outside;
    if (tracing::is_tracing()) outside.emplace();
    const auto decompose = [&](ir::Graph& joint) { return passes::decompose(joint, table); };
    if (!table.empty()) passes::run_step("decompose", decompose, graph, observer);
    for (const char* name : kJointPasses)
      passes::run_pass(passes::find_pass(name), graph, observer);
    const auto drop = [&](ir::Graph& joint) { return passes::drop_happened(joint, happened); };
    if (happened != ir::kNoNode) passes::run_step("drop-happened", drop, graph, observer);
    if (!kVerifyEveryStep) ir::verify(graph, "passes");
  });
}

Split cut(const Joint& joint, const Options& options, StageLog& log) {
  Split split = log.time("partition", [&] { return options.partitioner(joint, options); });
  if (!joint.graph.symbols().empty()) partition::carry_sizes(split);
  partition::finish_split(split, options.mutations);
  ir::verify(split.forward, "partition");
  log.dump("forward", split.forward);
  if (split.signature.training) {
    ir::verify(split.backward, "partition");
    log.dump("backward", split.backward);
  }
  return split;
}

runtime::Guards guards_of(const Program& program, const libtorch::ThreadState& thread,
                          const detail::Flat& arguments, const Options& options) {
  return {thread, arguments, program.tensor_names(arguments),
          program.is_derived() ? Options() : options};
}

Prepared prepare_entry(const std::shared_ptr<const Program>& program, const detail::Flat& arguments,
                       const Options& options, StageLog& log, CaptureCounts& counts) {
  // What holds when the call begins; the trace may change it.
  const libtorch::ThreadState thread = libtorch::ThreadState::now();
  runtime::Guards guards = guards_of(*program, thread, arguments, options);
  std::shared_ptr<Backend> backend =
      runtime::with_fallback(options.backend.resolve(), program->backend_fallbacks);

  const runtime::GeneratorStates generators{ir::Graph()};
  Captured captured = capture(*program, arguments, options, log, &counts.lifted);
  const bool moves_generators = generators.have_moved();
  counts = captured.counts;
  if (!program->is_derived())
    counts.unnamed_training = unnamed_training(captured.run.calls, options);
  try {
    const std::vector<partition::DirectReads> reads = partition::direct_reads(captured.joint);
    // Before the passes: a view that nobody reads is left out, and raises where it does not fit.
    const bool counts_offsets = counts_from_storage_start(captured.joint);
    run_passes(captured.joint.graph, chosen_decompositions(options), options.rounding, log,
               captured.run.happened);
    Split split = cut(captured.joint, options, log);
    guards.add_trace(captured.joint, split.signature, arguments);
    if (counts_offsets) guards.watch_offsets(arguments);
    std::vector<partition::ReadAs> after_exchange =
        partition::reads_after_exchange(reads, captured.joint, split);
    return {.backend = std::move(backend),
            .captured = std::move(captured),
            .split = std::move(split),
            .guards = std::move(guards),
            .after_exchange = std::move(after_exchange),
            .moves_generators = moves_generators,
            .thread = thread};
  } catch (...) {
    counts.lifted = std::move(captured.joint.lifted);
    throw;
  }
}

std::shared_ptr<const runtime::EntryState> finish_entry(
    Prepared& prepared, const std::shared_ptr<const Program>& program,
    const detail::Flat& arguments, const Options& options, bool sizes_vary, StageLog& log) {
  Captured& captured = prepared.captured;
  runtime::Artifact artifact = lower({.backend = std::string(prepared.backend->name()),
                                      .allowed = {options.rounding, options.random},
                                      .sizes_vary = sizes_vary,
                                      .joint = std::move(captured.joint.graph),
                                      .split = std::move(prepared.split),
                                      .guards = prepared.guards.rows(),
                                      .result_constants = std::move(captured.result_constants),
                                      .fingerprint = captured.run.fingerprint,
                                      .after_exchange = std::move(prepared.after_exchange),
                                      .recorded = captured.recorded,
                                      .calls = call_rows(captured.run.calls)},
                                     *prepared.backend, log);
  log.finish();
  // Gradients of a variant have other sizes, too.
  Options of_gradients = options;
  if (sizes_vary) of_gradients.dynamic = Dynamic::always;
  runtime::ArgumentPlaces places(captured.joint.lifted, arguments.tensors);
  return runtime::bind(std::move(artifact),
                       {.guards = std::move(prepared.guards),
                        .lifted = std::move(captured.joint.lifted),
                        .compiler = make_backward_compiler(
                            prepared.backend, program, std::move(of_gradients), prepared.thread),
                        .moves_generators = prepared.moves_generators,
                        .places = std::move(places)});
}

std::shared_ptr<const runtime::EntryState> compile_entry(
    const std::shared_ptr<const Program>& program, const detail::Flat& arguments,
    const Options& options, StageLog& log, CaptureCounts& counts) {
  Prepared prepared = prepare_entry(program, arguments, options, log, counts);
  const bool sizes_vary = options.dynamic == Dynamic::always;
  return finish_entry(prepared, program, arguments, options, sizes_vary, log);
}

}  // namespace tandem::pipeline
