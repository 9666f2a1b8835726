/// A module's forward as one graph with names, for whoever runs graphs without Tandem's call path.
#include "base/error.h"
#include "joint/build_module_graph.h"
#include "pipeline/pipeline.h"
#include "pipeline/settings/environment.h"
#include "signature/read_signature.h"
#include "tandem/exported.h"
#include "tracing/trace.h"

#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>
#include <ostream>
#include <unordered_map>
#include <unordered_set>

namespace tandem {
namespace {

/// The module's tensors by all of their names, and each of them once in order.
struct State {
  explicit State(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters())
      add(item.value(), ir::Descriptor::param(item.key()));
    for (const auto& item : module.named_buffers())
      add(item.value(), ir::Descriptor::buffer(item.key()));
  }

  std::vector<joint::ModuleTensor> tensors;
  tracing::KnownTensors roles;                       // the first name of each
  std::vector<std::vector<ir::Descriptor>> aliases;  // per tensor: all its names

 private:
  void add(const at::Tensor& tensor, const ir::Descriptor& role) {
    const auto [place, is_new] = places_.try_emplace(tensor.unsafeGetTensorImpl(), tensors.size());
    if (is_new) {
      tensors.push_back({tensor, role});
      roles.emplace(tensor.unsafeGetTensorImpl(), role);
      aliases.emplace_back();
    }
    aliases[place->second].push_back(role);
  }

  std::unordered_map<const c10::TensorImpl*, size_t> places_;
};

/// Inputs of the graph are independent of each other: an argument that is given twice, or that is a
/// parameter too, gets a handle of its own.
detail::Flat told_apart(const detail::Flat& arguments, const State& state) {
  detail::Flat apart = arguments;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const joint::ModuleTensor& one : state.tensors)
    seen.insert(one.tensor.unsafeGetTensorImpl());
  for (at::Tensor& argument : apart.tensors) {
    if (!argument.defined() || seen.insert(argument.unsafeGetTensorImpl()).second) continue;
    argument = argument.detach().set_requires_grad(argument.requires_grad());
  }
  return apart;
}

/// What a graph by itself cannot do to an input.
void check_effects(const tracing::Trace& trace, const tracing::StandIn& stand_in,
                   const ir::InputFacts& facts) {
  const std::string name = trace.name_of(stand_in);
  if (facts.metadata_changed || facts.storage != ir::StorageChange::None) {
    TANDEM_UNSUPPORTED(
        "export", name, " leaves the forward with other sizes, strides or storage",
        base::detail_line("at", trace.line_of(stand_in.tensor)),
        "\n  cause:  an in-place view or resize (t_, squeeze_, resize_, set_, ...) of it",
        "\n  remedy: use the out-of-place form and return the result");
  }
  if (facts.history_changed) {
    TANDEM_UNSUPPORTED(
        "export", name, " is written in place by a differentiable operation",
        base::detail_line("at", trace.line_of(stand_in.tensor)),
        "\n  remedy: use the out-of-place form and return the result, or write under "
        "torch::NoGradGuard");
  }
  if (facts.requires_grad != facts.requires_grad_after) {
    TANDEM_UNSUPPORTED("export", name, " has its requires_grad switched ",
                       facts.requires_grad_after ? "on" : "off", " inside the forward",
                       "\n  remedy: call requires_grad_() or detach_() outside the module");
  }
}

/// What the graph could not say, or would say wrongly.
void check_inputs(const tracing::Trace& trace, const ir::Signature& signature, bool joint) {
  const std::vector<size_t> order = signature::calling_order(trace);
  for (size_t i = 0; i < order.size(); ++i) {
    const ir::InputFacts& facts = signature.inputs[i];
    const std::string name = trace.name_of(trace.stand_ins()[order[i]]);
    if (facts.role.role == ir::Role::Lifted) {
      TANDEM_UNSUPPORTED("export", name, " is neither a parameter nor a buffer of the module",
                         "\n  remedy: register it with register_buffer or register_parameter, or "
                         "pass it as an argument");
    }
    if (joint && facts.data_written && facts.requires_grad) {
      TANDEM_UNSUPPORTED("export", name, " requires grad and is written by the forward",
                         "\n  remedy: write it outside the module, or export without joint");
    }
    check_effects(trace, trace.stand_ins()[order[i]], facts);
  }
  if (!signature.groups.empty()) {
    const auto first = static_cast<size_t>(signature.groups[0].members[0]);
    const auto member = [&](size_t i) {
      const auto input = static_cast<size_t>(signature.groups[0].members[i]);
      return trace.name_of(trace.stand_ins()[order[input]]);
    };
    TANDEM_UNSUPPORTED(
        "export", member(0), " and ", member(1),
        " share memory that the forward writes, and inputs of a graph are "
        "independent of each other",
        base::detail_line("at", trace.line_of(trace.stand_ins()[order[first]].tensor)),
        "\n  remedy: pass tensors that do not overlap, or clone() one of them");
  }
  if (signature.grad_mode_after) {
    TANDEM_UNSUPPORTED("export", "the forward leaves grad mode ",
                       *signature.grad_mode_after ? "on" : "off", ", which a graph cannot do",
                       "\n  remedy: use guards (torch::NoGradGuard, at::AutoGradMode) that end "
                       "inside it");
  }
  // A compiled function guards such an answer; a graph by itself has no guards.
  for (const ir::EqualityFacts& facts : signature.equalities) {
    auto name = [&](int64_t input) {
      return trace.name_of(trace.stand_ins()[order[static_cast<size_t>(input)]]);
    };
    TANDEM_UNSUPPORTED("export", "the forward asks whether ", name(facts.a), " and ", name(facts.b),
                       " have equal values, and the graph would keep today's answer",
                       "\n  remedy: compare outside the module; if it is one tensor by design "
                       "(self-attention), take one argument and use it twice");
  }
}

void check_loss(const ir::Signature& signature, int64_t loss_output) {
  const auto count = static_cast<int64_t>(signature.outputs.size());
  TANDEM_REQUIRE(loss_output >= 0 && loss_output < count, "export", "loss_output is ", loss_output,
                 ", but the forward returns ", count, count == 1 ? " tensor" : " tensors",
                 "\n  remedy: count the tensors of the result from 0");
  const ir::OutputFacts& loss = signature.outputs[static_cast<size_t>(loss_output)];
  TANDEM_REQUIRE(loss.kind != ir::OutputKind::Undefined, "export", "output ", loss_output,
                 " cannot be the loss: it is undefined",
                 "\n  remedy: set loss_output to a result that is always there");
  TANDEM_REQUIRE(loss.requires_grad, "export", "output ", loss_output,
                 " cannot be the loss: ", ir::to_string(*loss.type), " does not require grad",
                 "\n  remedy: set loss_output to a result that is computed from parameters which "
                 "require grad");
  TANDEM_REQUIRE(loss.type->numel() == ir::Size(1), "export", "output ", loss_output,
                 " cannot be the loss: expected one element, got ", ir::to_string(*loss.type),
                 "\n  remedy: reduce it with sum() or mean()");
  for (int64_t i = 0; i < count; ++i) {
    TANDEM_REQUIRE(i == loss_output || !signature.outputs[static_cast<size_t>(i)].requires_grad,
                   "export", "output ", i, " requires grad beside the loss, which is output ",
                   loss_output, "\n  remedy: detach() it in the forward");
  }
}

/// Zeros would move a parameter under weight decay, and `none` is no gradient.
void check_gradients(const ir::Graph& graph, const std::vector<std::string>& argument_names) {
  std::string missing;
  for (const ir::Output& output : graph.outputs()) {
    if (output.role.role != ir::Role::Grad || output.value != ir::kNoValue) continue;
    const ir::Descriptor& of =
        graph.input_role(graph.inputs()[static_cast<size_t>(output.role.index)]);
    missing += (missing.empty() ? "" : ", ");
    missing += of.role == ir::Role::UserInput ? argument_names[static_cast<size_t>(of.index)]
                                              : ir::to_string(of);
  }
  TANDEM_REQUIRE(missing.empty(), "export", "the loss does not depend on ", missing,
                 ", which should get a gradient",
                 "\n  remedy: set requires_grad_(false) on it, or use it in the forward");
}

ModuleSignature signature_of(const ir::Graph& graph, const State& state,
                             const ExportOptions& options) {
  ModuleSignature signature;
  // Adds `place` under every name of input `input`.
  auto put = [&](int64_t input, int64_t place, auto& params, auto& buffers, auto& arguments) {
    if (input >= static_cast<int64_t>(state.aliases.size())) {
      arguments[graph.input_role(graph.inputs()[static_cast<size_t>(input)]).index] = place;
      return;
    }
    for (const ir::Descriptor& alias : state.aliases[static_cast<size_t>(input)]) {
      (alias.role == ir::Role::Param ? params : buffers)[alias.name] = place;
    }
  };
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    put(place, place, signature.parameters, signature.buffers, signature.user_inputs);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Descriptor& role = graph.outputs()[i].role;
    const auto place = static_cast<int64_t>(i);
    if (role.role == ir::Role::Mutated) {
      put(role.index, place, signature.mutated_parameters, signature.mutated_buffers,
          signature.mutated_user_inputs);
    } else if (role.role == ir::Role::Grad) {
      put(role.index, place, signature.gradients, signature.gradients,
          signature.user_input_gradients);
    } else {
      signature.user_outputs.push_back(place);
    }
  }
  if (options.joint)
    signature.loss_output = signature.user_outputs[static_cast<size_t>(options.loss_output)];
  return signature;
}

}  // namespace

Exported detail::export_module(const FlatFunction& function, const Flat& arguments,
                               const torch::nn::Module& module, const ExportOptions& options) {
  TANDEM_REQUIRE(!options.joint || torch::GradMode::is_enabled(), "export",
                 "a joint export needs gradients, but grad mode is off on this thread",
                 "\n  remedy: leave the scope of torch::NoGradGuard, or export without joint");
  // Without a backward nothing is differentiable, whatever the caller's mode.
  torch::AutoGradMode grad_mode(options.joint);
  const State state(module);
  const Flat apart = told_apart(arguments, state);
  const std::vector<std::string> names = function.tensor_names(apart);
  pipeline::StageLog log("export_module", pipeline::apply_environment({}).dump_dir);

  tracing::Trace trace(apart, {.known = state.roles, .names = names});
  log.time("trace", [&] { trace.run(function); });
  const ir::Signature facts =
      log.time("signature", [&] { return signature::read_signature(trace).signature; });
  check_inputs(trace, facts, options.joint);
  if (options.joint) check_loss(facts, options.loss_output);

  joint::ModuleForm form{.state = state.tensors};
  if (options.joint) form.loss_output = options.loss_output;
  Exported exported;
  exported.graph = log.time("joint", [&] {
    return joint::build_module_graph(trace, facts, form,
                                     options.joint ? "module.joint" : "module.forward");
  });
  check_gradients(exported.graph, names);
  log.dump("joint", exported.graph);
  pipeline::run_passes(exported.graph, {}, Rounding::eager, log);
  exported.signature = signature_of(exported.graph, state, options);
  return exported;
}

std::string to_string(const ModuleSignature& signature) {
  std::vector<std::pair<std::string, std::string>> rows;
  auto add = [&](const std::string& name, int64_t input, const auto& key, const auto& mutated,
                 const auto& gradients) {
    std::string text = base::str("input ", input);
    if (const auto it = mutated.find(key); it != mutated.end())
      text += base::str(", new data: output ", it->second);
    if (const auto it = gradients.find(key); it != gradients.end())
      text += base::str(", gradient: output ", it->second);
    rows.emplace_back(name, text);
  };
  for (const auto& [name, input] : signature.parameters) {
    add(base::str("parameter \"", name, "\""), input, name, signature.mutated_parameters,
        signature.gradients);
  }
  for (const auto& [name, input] : signature.buffers) {
    add(base::str("buffer \"", name, "\""), input, name, signature.mutated_buffers,
        signature.gradients);
  }
  for (const auto& [index, input] : signature.user_inputs) {
    add(base::str("user input ", index), input, index, signature.mutated_user_inputs,
        signature.user_input_gradients);
  }
  for (size_t i = 0; i < signature.user_outputs.size(); ++i) {
    const bool loss = signature.loss_output == signature.user_outputs[i];
    rows.emplace_back(base::str("user output ", i),
                      base::str("output ", signature.user_outputs[i], loss ? ", the loss" : ""));
  }
  size_t width = 0;
  for (const auto& [name, text] : rows) width = std::max(width, name.size());
  std::string out;
  for (const auto& [name, text] : rows)
    out += name + std::string(width - name.size() + 2, ' ') + text + "\n";
  return out;
}

std::ostream& operator<<(std::ostream& out, const ModuleSignature& signature) {
  return out << to_string(signature);
}

}  // namespace tandem
