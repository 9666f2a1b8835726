#pragma once

#include "partition/direct_reads.h"
#include "pipeline/program.h"
#include "pipeline/reports/stage_log.h"
#include "runtime/entry_state.h"
#include "runtime/guards/guards.h"
#include "tandem/function.h"
#include "tandem/stages.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::pipeline {

struct CaptureCounts {
  int64_t traces = 1;  // runs of the function
  int64_t zero_fallbacks = 0;
  std::vector<at::Tensor> lifted{};  // by a compile that fails, until then
  /// No module is named, and this is told that one is in training mode.
  std::optional<tracing::UserCall> unnamed_training{};
};

/// What capture finds, beside the joint graph.
struct Captured {
  Joint joint;
  std::vector<detail::Constant> result_constants;
  CaptureCounts counts;
  ProgramRun run;
  uint64_t recorded = 0;  // hash of the joint graph before the passes
  /// Of the same recording and what it does to arguments and results, without sizes and numbers.
  uint64_t shape_free = 0;
};

/// trace, signature, joint: runs the user's function once; twice if only the first run could tell
/// which inputs belong together (tracing::Retrace). If it fails, `lifted` gets what the last run
/// had lifted by then.
Captured capture(const Program& program, const detail::Flat& arguments, const Options& options,
                 StageLog& log, std::vector<at::Tensor>* lifted = nullptr);

/// What the backend wants decomposed, overridden by the user.
Decompositions chosen_decompositions(const Options& options);

/// The passes over a joint graph, in order; one may come twice.
std::span<const char* const> joint_passes();

/// Decompositions and clean-up of a joint graph before it is cut. `happened`: the last node of what
/// calls before have done already, whose effects go.
void run_passes(ir::Graph& graph, const Decompositions& table, Rounding rounding, StageLog& log,
                ir::NodeId happened = ir::kNoNode);

/// The cut, by the partitioner of the options; both graphs verified.
Split cut(const Joint& joint, const Options& options, StageLog& log);

/// Guards of a call before its trace, of all that the options name. Of gradients none of that: what
/// the host decided in the call is part of the program, whatever it would decide now.
runtime::Guards guards_of(const Program& program, const libtorch::ThreadState& thread,
                          const detail::Flat& arguments, const Options& options);

/// A call that no entry serves, up to the cut: nothing is lowered yet.
struct Prepared {
  std::shared_ptr<Backend> backend;
  Captured captured;
  Split split;
  runtime::Guards guards;
  std::vector<partition::ReadAs> after_exchange{};
  bool moves_generators = false;
  libtorch::ThreadState thread{};
};

/// Every stage in order, in two halves: between them one knows which entry a call belongs to.
/// `counts` are filled if the first half fails, too.
Prepared prepare_entry(const std::shared_ptr<const Program>& program, const detail::Flat& arguments,
                       const Options& options, StageLog& log, CaptureCounts& counts);
/// Uses `prepared` up, but for the lifted tensors if it fails. `sizes_vary`: the kernels are to
/// serve other sizes of the entry, too.
std::shared_ptr<const runtime::EntryState> finish_entry(
    Prepared& prepared, const std::shared_ptr<const Program>& program,
    const detail::Flat& arguments, const Options& options, bool sizes_vary, StageLog& log);

/// Both halves, for whoever makes a single entry.
std::shared_ptr<const runtime::EntryState> compile_entry(
    const std::shared_ptr<const Program>& program, const detail::Flat& arguments,
    const Options& options, StageLog& log, CaptureCounts& counts);

/// A compiled function that computes gradients of a call. Never runs eagerly.
std::shared_ptr<detail::CompiledFunction> compile_gradients(std::shared_ptr<const Program> program,
                                                            Options options);

}  // namespace tandem::pipeline
