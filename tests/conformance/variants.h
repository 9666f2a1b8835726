#pragma once

#include "conformance/inputs.h"
#include "support/environment.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Programs with a calling form or options of their own, and what is counted in their graphs.
namespace tandem::conformance {

/// A callable on whatever arguments; `call` makes them from a list of tensors:
/// `[](const auto& f, Tensors& a) -> Tensors { return {f(2, a[0])}; }`.
template <class F, class Call>
MakeProgram in_form(MakeInputs inputs, F function, Call call) {
  return [=] {
    return Program{inputs, [=](Tensors& a) -> Tensors { return call(function, a); },
                   [=](const Options& options) {
                     return handle_of(tandem::compile(function, options), call);
                   }};
  };
}

/// The program compiled with changed options.
inline Program with_options(Program program, std::function<void(Options&)> change) {
  const auto function = program.function;
  program.compile = [=](Options options) {
    change(options);
    return handle_of(
        tandem::compile_boxed([function](Tensors list) { return function(list); }, options),
        [](const auto& compiled, Tensors& a) { return compiled(a); });
  };
  return program;
}
inline MakeProgram with_options(MakeInputs inputs, Function function,
                                std::function<void(Options&)> change) {
  return [=] { return with_options(Program{inputs, function}, change); };
}

/// Names of the ops of a graph, in order: `aten::add`.
inline std::vector<std::string> op_names(const ir::Graph& graph) {
  std::vector<std::string> names;
  graph.for_each_node([&](const ir::Node& node) {
    if (node.kind() == ir::NodeKind::Op) names.push_back(node.op().operator_name().name);
  });
  return names;
}

inline int64_t count_of(const ir::Graph& graph, const std::string& op) {
  int64_t count = 0;
  for (const std::string& name : op_names(graph)) count += name == op;
  return count;
}

/// Outputs of a graph that have this role.
inline int64_t outputs_of(const ir::Graph& graph, ir::Role role) {
  int64_t count = 0;
  for (const ir::Output& output : graph.outputs()) count += output.role.role == role;
  return count;
}

/// Runs a graph as it is, without call path.
inline Tensors run_graph(const ir::Graph& graph, Tensors inputs) {
  const torch::NoGradGuard no_grad;
  return tandem::backend("eager")->compile(graph, {})->run(inputs);
}

/// The backend `eager`, and what it was asked to compile. Where it is given as an option the
/// environment has no say.
class RecordingBackend : public Backend {
 public:
  std::string_view name() const override { return "recording"; }
  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    contexts.push_back(context);
    graphs.push_back(graph);
    return tandem::backend("eager")->compile(graph, context);
  }
  int64_t count(GraphRole role) const {
    int64_t count = 0;
    for (const CompileContext& context : contexts) count += context.role == role;
    return count;
  }

  std::vector<CompileContext> contexts{};
  std::vector<ir::Graph> graphs{};

 private:
  const test::EnvironmentVariable no_other_{"TANDEM_BACKEND", nullptr};
};

}  // namespace tandem::conformance
