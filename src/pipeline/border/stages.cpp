/// The stages one by one, for people who build on them.
#include "base/error.h"
#include "partition/finish_split.h"
#include "partition/saved_values.h"
#include "pipeline/backward_compiler.h"
#include "pipeline/lower.h"
#include "pipeline/pipeline.h"
#include "pipeline/settings/environment.h"
#include "pipeline/settings/options.h"
#include "runtime/bind.h"
#include "runtime/call/call.h"
#include "tandem/compile.h"

namespace tandem {

namespace detail {

Joint export_joint(const FlatFunction& function, const Flat& arguments, const Options& given) {
  const Options options = pipeline::effective_options(given);
  pipeline::StageLog log("export_joint", options.dump_dir);
  pipeline::Captured captured =
      pipeline::capture(pipeline::Program(function), arguments, options, log);
  pipeline::run_passes(captured.joint.graph, pipeline::chosen_decompositions(options),
                       options.rounding, log);
  return std::move(captured.joint);
}

}  // namespace detail

Split split(const Joint& joint, const Options& options) {
  pipeline::StageLog log("split", options.dump_dir);
  Split parts = pipeline::cut(joint, options, log);
  parts.saved = partition::saved_with_lines(parts);
  parts.recomputed = partition::recomputed_with_lines(parts);
  return parts;
}

Boxed lower(const Split& parts, std::shared_ptr<Backend> backend) {
  TANDEM_REQUIRE(backend, "lower",
                 "the backend is null\n  remedy: pass tandem::backend(\"eager\")");
  // Lifted tensors are explicit inputs here, first, as in the graph.
  Split split = parts;
  for (size_t i = 0; i < split.signature.inputs.size(); ++i) {
    split.signature.inputs[i].role = ir::Descriptor::user_input(static_cast<int64_t>(i));
  }
  split.signature.lifted_count = 0;
  partition::finish_split(split, Mutations::epilogue);
  const size_t arity = split.signature.inputs.size();
  const runtime::Guards guards(libtorch::ThreadState::now(), {}, {}, Options{});
  pipeline::StageLog log("lower", {});
  runtime::Artifact artifact = pipeline::lower(
      {.backend = std::string(backend->name()), .split = std::move(split), .guards = guards.rows()},
      *backend, log);
  const auto entry = runtime::bind(
      std::move(artifact),
      {.guards = guards, .compiler = pipeline::make_backward_compiler(std::move(backend))});
  return [entry, arity](std::vector<at::Tensor> inputs) {
    TANDEM_REQUIRE(inputs.size() == arity, "call", "the lowered function takes ", arity,
                   " tensors (lifted ones first), got ", inputs.size(),
                   "\n  remedy: pass joint.lifted, then the arguments");
    detail::Flat arguments;
    arguments.tensors.assign(inputs.begin(), inputs.end());
    detail::Flat results = runtime::call(entry, arguments);
    return std::vector<at::Tensor>(results.tensors.begin(), results.tensors.end());
  };
}

}  // namespace tandem
