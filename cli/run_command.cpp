#include "commands.h"
#include "graph_file.h"
#include "tandem/backend.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"
#include "tensor_text.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

namespace tandem::cli {
namespace {

/// Integers are indices more often than not: small enough for most tables.
constexpr int64_t kIntegerLimit = 4;

/// Elements that a tensor with these strides reaches, from the first to the last.
int64_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t span = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    span += (sizes[i] - 1) * strides[i];
  }
  return span;
}

at::Tensor random_elements(int64_t count, const at::TensorOptions& options,
                           const at::Generator& generator) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  // Always drawn on the host, so that a seed means the same numbers on every device.
  if (dtype == at::kBool) return at::randint(2, {count}, generator, at::kLong).to(options);
  if (c10::isIntegralType(dtype, false))
    return at::randint(kIntegerLimit, {count}, generator, at::kLong).to(options);
  if (c10::isComplexType(dtype))
    return at::randn({count}, generator, at::kComplexDouble).to(options);
  return at::randn({count}, generator, at::kFloat).to(options);
}

at::Tensor make_input(const ir::Graph& graph, ir::ValueId id, const RunOptions& options,
                      const at::Generator& generator) {
  const ir::Type& type = graph.value(id).type();
  if (type.tensor == nullptr || !type.tensor->is_static() ||
      type.tensor->layout != c10::Layout::Strided) {
    throw UnsupportedError(
        "run", fmt::format("input {} of graph {} is {}: only strided tensors with constant sizes "
                           "can be made up\n  remedy: write sizes into the file",
                           ir::to_string(graph.input_role(id)), graph.name(), ir::to_string(type)));
  }
  const ir::TensorType& tensor = *type.tensor;
  const std::vector<int64_t> sizes = tensor.static_sizes();
  const std::vector<int64_t> strides = tensor.static_strides();
  const auto element_options = at::TensorOptions().dtype(tensor.dtype).device(tensor.device);
  const int64_t span = span_of(sizes, strides);
  // The memory first, then the view of it: strides may leave gaps or overlap.
  const at::Tensor elements = options.inputs == "zeros"
                                  ? at::zeros({span}, element_options)
                                  : random_elements(span, element_options, generator);
  return elements.as_strided(sizes, strides);
}

/// A parsed graph names its generators only.
void bind_generators(ir::Graph& graph, int64_t seed) {
  for (size_t i = 0; i < graph.generators().size(); ++i) {
    graph.bind_generator({static_cast<int64_t>(i)},
                         at::detail::createCPUGenerator(static_cast<uint64_t>(seed) + i + 1));
  }
}

void check_type(const ir::Graph& graph, const ir::Output& output, const at::Tensor& result) {
  if (output.value == ir::kNoValue && !result.defined()) return;
  const std::string expected =
      output.value == ir::kNoValue ? "none" : ir::to_string(graph.value(output.value).type());
  const std::string got = result.defined() ? ir::to_string(type_of(result)) : "none";
  if (expected == got) return;
  throw UserError(
      "run", fmt::format("{} of graph {} does not have its type: expected {}, got {}\n  remedy: "
                         "correct the type in the file",
                         ir::to_string(output.role), graph.name(), expected, got));
}

void run_graph(ir::Graph& graph, Backend& backend, const RunOptions& options) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(options.seed));
  bind_generators(graph, options.seed);
  // Ops without a generator of their own draw from the default one.
  at::manual_seed(static_cast<uint64_t>(options.seed));
  std::vector<at::Tensor> inputs;
  for (ir::ValueId id : graph.inputs()) inputs.push_back(make_input(graph, id, options, generator));

  const auto executable = backend.compile(graph, {});
  std::vector<at::Tensor> results;
  try {
    results = executable->run(inputs);
  } catch (const c10::Error& error) {
    throw UserError(
        "run", fmt::format("graph {} cannot be run on {} inputs: {}\n  remedy: try --inputs {}, or "
                           "correct the graph",
                           graph.name(), options.inputs, error.what_without_backtrace(),
                           options.inputs == "zeros" ? "random" : "zeros"));
  }

  std::cout << fmt::format("graph {}: {} on backend {}\n", graph.name(),
                           counted(graph.node_count(), "node"), backend.name());
  for (size_t i = 0; i < results.size(); ++i) {
    const ir::Output& output = graph.outputs()[i];
    check_type(graph, output, results[i]);
    std::cout << fmt::format(
        "  {:<16} {}\n", ir::to_string(output.role),
        results[i].defined()
            ? fmt::format("{:<24} {}", ir::to_string(type_of(results[i])), summary(results[i]))
            : "none");
  }
}

}  // namespace

std::shared_ptr<Backend> find_backend(const std::string& name) {
  try {
    return backend(name);
  } catch (const UserError& error) {
    // Without stage and remedy, which speak to a program.
    std::string text = error.what();
    text = text.substr(error.stage().size() + 2);
    throw UsageError("--backend: " + text.substr(0, text.find("\n  remedy:")));
  }
}

void run_graphs(const RunOptions& options) {
  const std::shared_ptr<Backend> backend = find_backend(options.backend);
  std::vector<ir::Graph> graphs = read_graphs(options.file);
  for (ir::Graph& graph : graphs) run_graph(graph, *backend, options);
}

}  // namespace tandem::cli
