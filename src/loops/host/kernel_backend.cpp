#include "loops/host/kernel_backend.h"

#include "base/error.h"
#include "loops/host/check_kernel.h"
#include "loops/host/host_list.h"
#include "loops/host/host_store.h"
#include "loops/host/run_state.h"
#include "loops/rules/rule.h"
#include "ops/own/seeded_draws.h"
#include "tandem/decomposition.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem::loops {
namespace {

class LlvmExecutable final : public Executable {
 public:
  LlvmExecutable(HostList list, std::shared_ptr<KernelCompiler> compiler,
                 std::shared_ptr<Backend> judge, bool check)
      : list_(std::move(list)),
        states_(list_, compiler->target()),
        compiler_(std::move(compiler)),
        judge_(std::move(judge)) {
    if (!check) return;
    check_ = [this](const KernelStep& step, std::span<const at::Tensor> inputs,
                    std::span<const at::Tensor> outputs) {
      check_kernel(step, *judge_, inputs, outputs);
    };
  }

  std::string report() const override {
    const bool measure = !list_.kernels.empty();
    return loops::report(list_, measure ? compiler_->copy_bytes_per_second() : 0);
  }

  std::vector<Listing> listings() const override {
    std::vector<Listing> out{{"steps", print(list_)}};
    std::string kernels;
    for (size_t i = 0; i < list_.kernels.size(); ++i) {
      kernels += print(list_.kernels[i]);
      if (list_.compiled[i] == nullptr) continue;
      for (CompiledKernel::Listing& listing : list_.compiled[i]->listings())
        out.push_back({list_.kernels[i].name + "." + listing.ending, std::move(listing.text)});
    }
    out.push_back({"kernels.loops", std::move(kernels)});
    return out;
  }

  std::string save() const override { return store(list_); }

  void release_cached_memory() override { states_.clear(); }

  std::vector<at::Tensor> run(std::span<at::Tensor> inputs) override {
    TANDEM_REQUIRE(inputs.size() == list_.inputs.size(), "call", "the graph takes ",
                   list_.inputs.size(), " inputs, got ", inputs.size(),
                   "\n  remedy: pass one tensor per input, undefined ones too");
    // The graph was recorded below autograd, version counting and autocast, and runs there.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
    std::unique_ptr<RunState> state = states_.take();
    // A state that an error left goes with it.
    std::vector<at::Tensor> outputs = state->run(inputs, *judge_, check_);
    states_.give_back(std::move(state));
    return outputs;
  }

 private:
  HostList list_;
  RunStates states_;
  std::shared_ptr<KernelCompiler> compiler_;
  std::shared_ptr<Backend> judge_;
  KernelCheck check_;
};

/// Whether a graph has constant sizes, and a tensor that kernels of the target could read.
bool is_for(const ir::Graph& graph, const Target& target) {
  bool known = graph.symbols().empty(), reads = false;
  auto look = [&](ir::ValueId id) {
    if (id == ir::kNoValue) return;
    const ir::TypePtr& type = graph.value(id).tensor_type();
    known = known && (type == nullptr || type->is_static());
    reads = reads || (type != nullptr && target.reads(*type));
  };
  for (ir::ValueId id : graph.inputs()) look(id);
  graph.for_each_node([&](const ir::Node& node) {
    for (ir::ValueId id : node.results()) look(id);
  });
  return known && reads;
}

/// Whether the call is about tensors that kernels of the target can read, and about no others, in a
/// graph with constant sizes.
bool is_for(const OpCall& call, const Target& target) {
  const ir::Graph& graph = call.builder().graph();
  bool reads = graph.symbols().empty();
  const auto look = [&](ir::ValueId id) {
    const ir::TypePtr& type = graph.value(id).tensor_type();
    reads = reads && (type == nullptr || target.reads(*type));
  };
  for (const ir::Operand& operand : call.node().operands()) {
    operand.for_each_value([&](ir::ValueId id) {
      if (id != ir::kNoValue) look(id);
    });
  }
  for (ir::ValueId id : call.node().results())
    if (id != ir::kNoValue) look(id);
  return reads;
}

/// The rows, for calls on such tensors only. In parts, other ops are slower than the op itself.
Decompositions only_for(const Target& target, const Decompositions& table) {
  Decompositions limited;
  for (const auto& [op, row] : table.rows()) {
    if (!row.body) continue;
    limited.set(op, [&target, body = row.body](const OpCall& call) {
      return is_for(call, target) ? body(call) : std::vector<Expr>{};
    });
  }
  return limited;
}

class LlvmBackend final : public Backend {
 public:
  LlvmBackend(std::shared_ptr<KernelCompiler> compiler, std::shared_ptr<Backend> judge, bool check)
      : compiler_(std::move(compiler)),
        judge_(std::move(judge)),
        check_(check),
        can_compile_(compiler_->can_compile()) {}

  std::string_view name() const override { return "llvm"; }

  Decompositions decompositions(Rounding rounding, Random random) const override {
    if (!can_compile_) return {};
    Decompositions table = Decompositions::standard(rounding);
    // An op with a rule is not decomposed: its rule would never be reached.
    for (const Rule* rule : all_rules()) {
      const std::string op = full_name(*rule);
      if (table.rows().contains(op)) table.keep(op);
    }
    compiler_->target().adapt(table, rounding);
    // Only in fused kernels are such draws faster than libtorch's.
    if (random == Random::fast) table.merge(ops::seeded_draws());
    return only_for(compiler_->target(), table);
  }

  bool can_fuse(const ir::Graph& graph, const ir::Node& node) const override {
    if (!can_compile_ || !graph.symbols().empty()) return false;
    const Rule* rule = find_rule(Call(graph, node), compiler_->target());
    return rule != nullptr && rule->weight != Weight::Pass;
  }

  std::unique_ptr<Executable> compile(const ir::Graph& graph,
                                      const CompileContext& context) override {
    const size_t inputs = graph.inputs().size();
    TANDEM_REQUIRE(context.releasable_inputs.empty() || context.releasable_inputs.size() == inputs,
                   "lower", "graph ", graph.name(), " has ", inputs, " inputs, got ",
                   context.releasable_inputs.size(),
                   " flags\n  remedy: leave releasable_inputs empty, or give one flag per input");
    ir::verify(graph, "lower");
    // Nothing to fuse: on other devices and other processors each node is an operator of libtorch.
    if (!can_compile_ || !is_for(graph, compiler_->target()))
      return judge_->compile(graph, context);
    return std::make_unique<LlvmExecutable>(make_host_list(graph, context, *compiler_, *judge_),
                                            compiler_, judge_, check_);
  }

  std::unique_ptr<Executable> load(std::string_view stored, const ir::Graph& graph,
                                   const CompileContext& context) override {
    auto list = load_host_list(stored, graph, context, *compiler_, *judge_);
    if (!list) return nullptr;
    return std::make_unique<LlvmExecutable>(*std::move(list), compiler_, judge_, check_);
  }

 private:
  std::shared_ptr<KernelCompiler> compiler_;
  std::shared_ptr<Backend> judge_;
  bool check_;
  bool can_compile_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(std::shared_ptr<KernelCompiler> compiler,
                                      std::shared_ptr<Backend> judge, bool check) {
  return std::make_shared<LlvmBackend>(std::move(compiler), std::move(judge), check);
}

}  // namespace tandem::loops
