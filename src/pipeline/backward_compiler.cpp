#include "pipeline/backward_compiler.h"

#include "base/error.h"
#include "pipeline/lower.h"
#include "pipeline/pipeline.h"
#include "runtime/backward/found_memory.h"
#include "tracing/recording/with_autocast.h"

namespace tandem::pipeline {
namespace {

class GraphCompiler : public runtime::BackwardCompiler {
 public:
  explicit GraphCompiler(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  runtime::Backward compile(const runtime::Artifact& artifact, const partition::Asked& asked,
                            const libtorch::AutocastState& autocast) override {
    const ir::Graph& recorded = artifact.split.backward;
    if (!autocast.any()) return lower_backward(artifact, recorded, asked, *backend_);
    runtime::Backward backward =
        lower_backward(artifact, tracing::with_autocast(recorded, autocast), asked, *backend_);
    backward.autocast = autocast;
    return backward;
  }

  bool knows_function() const override { return false; }
  std::shared_ptr<detail::CompiledFunction> compile_gradients(
      const runtime::EntryState&, const runtime::WantedGradients&) override {
    TANDEM_CHECK(false, "call", "nobody knows the function of this entry");
  }

 private:
  const std::shared_ptr<Backend> backend_;
};

class ProgramCompiler final : public GraphCompiler {
 public:
  ProgramCompiler(std::shared_ptr<Backend> backend, std::shared_ptr<const Program> program,
                  Options options, const libtorch::ThreadState& thread)
      : GraphCompiler(std::move(backend)),
        program_(std::move(program)),
        options_(std::move(options)),
        thread_(thread) {
    // The user hears of what his own calls do.
    options_.on_event = nullptr;
    options_.verify_every = 0;
    options_.dump_dir.clear();
    options_.on_overflow = OnOverflow::error;
    options_.on_unsupported = OnUnsupported::error;
  }

  bool knows_function() const override { return true; }

  std::shared_ptr<detail::CompiledFunction> compile_gradients(
      const runtime::EntryState& entry, const runtime::WantedGradients& wanted) override {
    // Formulas of the call, not of its gradients, have saved what was exchanged: the trace would
    // have to know which input of the call it is.
    if (program_->is_derived() && !wanted.exchanged.empty())
      runtime::refuse_exchanged(entry.signature().inputs[wanted.exchanged.front()]);
    auto derived = std::make_shared<Program>(*program_);
    if (!program_->is_derived()) {
      derived->thread = thread_;
      derived->fingerprint = entry.artifact().fingerprint;
    }
    joint::Derivation step{.of = entry.signature(),
                           .lifted = entry.lifted(),
                           .arguments = entry.argument_count(),
                           .part = static_cast<size_t>(entry.plan().parts[wanted.part].of),
                           .defined = wanted.asked.defined,
                           .wanted = wanted.asked.wanted,
                           .replaced = {},
                           .exchanged = wanted.exchanged,
                           .histories = {},
                           .generators = entry.primals().generators};
    for (size_t i : runtime::replaced_lifted(entry, wanted.exchanged))
      step.replaced.push_back(entry.lifted()[i]);
    for (const runtime::CallPlan::PassedHistory& one : entry.plan().parts[wanted.part].passed)
      step.histories.push_back(one.of);
    derived->derivations.push_back(std::move(step));
    return pipeline::compile_gradients(std::move(derived), options_);
  }

 private:
  const std::shared_ptr<const Program> program_;
  Options options_;
  const libtorch::ThreadState thread_;
};

}  // namespace

std::shared_ptr<runtime::BackwardCompiler> make_backward_compiler(
    std::shared_ptr<Backend> backend) {
  return std::make_shared<GraphCompiler>(std::move(backend));
}

std::shared_ptr<runtime::BackwardCompiler> make_backward_compiler(
    std::shared_ptr<Backend> backend, std::shared_ptr<const Program> program, Options options,
    const libtorch::ThreadState& thread) {
  if (!options.higher_order) return make_backward_compiler(std::move(backend));
  return std::make_shared<ProgramCompiler>(std::move(backend), std::move(program),
                                           std::move(options), thread);
}

}  // namespace tandem::pipeline
