#include "loops/host/host_list.h"

#include "base/error.h"
#include "loops/fusion/step_order.h"
#include "loops/host/memory_plan.h"
#include "loops/kernels/build_kernel.h"
#include "ops/memory/memory_roots.h"
#include "ops/op_table.h"
#include "passes/facts/memory_facts.h"
#include "shapes/reach.h"
#include "tandem/ir/text.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tandem::loops {
namespace {

Slot slot_of(ir::ValueId id) { return static_cast<Slot>(id); }

class Lowering {
 public:
  Lowering(const ir::Graph& graph, const CompileContext& context, KernelCompiler& compiler,
           Backend& judge)
      : graph_(graph),
        context_(context),
        compiler_(compiler),
        judge_(judge),
        views_(graph),
        plan_(fuse(graph, views_, compiler.target())),
        owners_(ops::memory_roots(graph)),
        names_(ir::value_names(graph)),
        in_slot_(graph.value_limit(), false),
        from_outside_(graph.value_limit(), false),
        keeps_tensor_(graph.value_limit(), false),
        readable_(graph.value_limit(), kNoSlot),
        numbers_(graph.node_limit()) {
    int32_t next = 0;
    graph.for_each_node([&](const ir::Node& node) {
      number_of(node) = next++;
      if (node.kind() == ir::NodeKind::Op && may_write(node.op())) keep_tensors_of(node);
    });
    for (const ir::Output& output : graph.outputs()) {
      if (output.value != ir::kNoValue && graph.value(output.value).is_input())
        keeps_tensor_[static_cast<size_t>(output.value)] = true;
    }
  }

  HostList run() && {
    list_.name = graph_.name();
    list_.slot_count = graph_.value_limit();
    for (ir::ValueId input : graph_.inputs()) {
      list_.inputs.push_back(slot_of(input));
      in_slot_[static_cast<size_t>(input)] = true;
      from_outside_[static_cast<size_t>(input)] = true;
    }
    list_.releasable = context_.releasable_inputs;
    list_.releasable.resize(list_.inputs.size(), false);
    build_kernels();
    for (const KernelOrNode& next : order_steps(graph_, views_, plan_)) {
      if (next.group >= 0) {
        add_kernel(static_cast<size_t>(next.group));
      } else {
        add_node(graph_.node(next.node));
      }
    }
    for (const ir::Output& output : graph_.outputs()) {
      list_.outputs.push_back(output.value == ir::kNoValue ? kNoSlot : tensor(output.value));
    }
    for (ir::ValueId input : graph_.inputs())
      list_.readable_inputs.push_back(readable_value(input));
    for (const auto& [step, node] : library_steps_) {
      auto& call = std::get<LibraryStep>(list_.steps[step].what);
      for (ir::ValueId id : node->results())
        call.readable.push_back(id == ir::kNoValue ? Readable{} : readable_value(id));
    }
    plan_arena();
    release_slots();
    return std::move(list_);
  }

 private:
  const Target& target() const { return compiler_.target(); }

  // ---- kernels ----
  void build_kernels() {
    built_.resize(plan_.groups.size());
    kernel_at_.assign(plan_.groups.size(), -1);
    std::unordered_map<std::string, int32_t> known;
    for (size_t i = 0; i < plan_.groups.size(); ++i) {
      if (plan_.groups[i].members.empty()) continue;
      built_[i] = build_kernel(graph_, plan_, plan_.groups[i], views_, names_, target());
      Kernel& kernel = built_[i].kernel;
      if (built_[i].stored.empty()) continue;  // nobody reads what it computes
      kernel.name = "k" + std::to_string(list_.kernels.size());
#ifndef NDEBUG
      verify(kernel);
#endif
      const auto [it, is_new] =
          known.try_emplace(structural_key(kernel), static_cast<int32_t>(list_.kernels.size()));
      kernel_at_[i] = it->second;
      if (is_new) list_.kernels.push_back(kernel);
    }
    std::vector<const Kernel*> pointers;
    for (const Kernel& kernel : list_.kernels) pointers.push_back(&kernel);
    const Sizes sizes = context_.sizes_vary ? Sizes::Vary : Sizes::Fixed;
    for (KernelCompiler::Result& result : compiler_.compile(pointers, sizes)) {
      list_.compiled.push_back(std::move(result.kernel));
      reasons_.push_back(std::move(result.reason));
    }
  }

  void add_kernel(size_t group) {
    const BuiltKernel& built = built_[group];
    if (built.stored.empty()) return;
    const auto kernel = static_cast<size_t>(kernel_at_[group]);
    auto nodes = std::make_shared<const ExtractedGroup>(
        extract_group(graph_, views_, plan_, plan_.groups[group], built.stored));
    std::vector<OpName> op_names;
    for (const Member& member : plan_.groups[group].members)
      op_names.push_back(op_name(graph_.node(member.node)));
    if (list_.compiled[kernel] == nullptr) {
      EagerStep step{.why = reasons_[kernel], .op_names = std::move(op_names), .nodes = nodes};
      step.graph = judge_.compile(nodes->graph, {});
      for (ir::ValueId id : nodes->inputs) step.inputs.push_back(tensor(id));
      for (ir::ValueId id : nodes->outputs) step.outputs.push_back(made(id));
      list_.steps.push_back({std::move(step)});
      return;
    }
    KernelStep step{.name = list_.kernels[kernel].name,
                    .kernel = static_cast<int32_t>(kernel),
                    .op_names = std::move(op_names),
                    .bytes_read = built.bytes_read,
                    .bytes_written = built.bytes_written};
    for (size_t i = 0; i < built.buffers.size(); ++i) {
      const ir::ValueId id = built.buffers[i];
      if (id == ir::kNoValue) {
        step.buffers.push_back(kNoSlot);
      } else if (built.kernel.buffers[i].role == BufferRole::Out) {
        step.outputs.push_back(static_cast<int32_t>(list_.tensors.size()));
        const ir::TypePtr& type = graph_.value(id).tensor_type();
        list_.tensors.push_back({.slot = made(id),
                                 .type = type,
                                 .sizes = type->static_sizes(),
                                 .strides = type->static_strides()});
        step.buffers.push_back(slot_of(id));
      } else {
        step.buffers.push_back(readable(id));
      }
    }
    step.nodes = std::move(nodes);
    list_.steps.push_back({std::move(step)});
  }

  static OpName op_name(const ir::Node& node) {
    std::string name = node.op().operator_name().name;
    if (name.starts_with("aten::")) name = name.substr(6);
    return {std::move(name), node.location()};
  }

  // ---- everything else ----
  void add_node(const ir::Node& node) {
    if (node.kind() == ir::NodeKind::Constant) {
      list_.constants.emplace_back(node.constant());
      list_.constant_slots.emplace_back(made(node.results()[0]),
                                        static_cast<int32_t>(list_.constants.size() - 1));
      list_.constant_nodes.push_back(number_of(node));
      return;
    }
    if (node.kind() == ir::NodeKind::Region) {
      EagerStep step{.node = number_of(node)};
      step.graph = judge_.compile(node.region(), {});
      for (const ir::Operand& operand : node.operands())
        step.inputs.push_back(tensor(*operand.get_if<ir::ValueId>()));
      for (ir::ValueId id : node.results())
        step.outputs.push_back(id == ir::kNoValue ? kNoSlot : made(id));
      list_.steps.push_back({std::move(step)});
      return;
    }
    LibraryStep step{.op = target().operator_for(graph_, node, context_.rounding),
                     .shape = node.result_shape(),
                     .node = number_of(node)};
    const auto& arguments = node.op().schema().arguments();
    // A view that takes no work shows a copy of what was lazy: what libtorch then makes of it may
    // be lazy where it was not in the trace.
    const bool readably = passes::reinterprets(node);
    for (size_t i = 0; i < node.operands().size(); ++i)
      step.arguments.push_back(argument(node.operands()[i], arguments[i].real_type(), readably));
    for (ir::ValueId id : node.results()) {
      const bool read = id != ir::kNoValue && graph_.value(id).has_users();
      step.results.push_back(read ? made(id) : kNoSlot);
      if (read) from_outside_[static_cast<size_t>(id)] = true;
    }
    library_steps_.emplace_back(list_.steps.size(), &node);
    list_.steps.push_back({std::move(step)});
  }

  /// `readably`: tensors as they may be read through the strides of their types.
  LibraryStep::Argument argument(const ir::Operand& operand, const c10::TypePtr& type,
                                 bool readably) {
    using Source = LibraryStep::Source;
    return ops::boxed_argument<Source>(
        graph_, operand, type,
        [&](ir::ValueId id) {
          if (id == ir::kNoValue) return Source{kNoSlot};
          return Source{readably ? readable(id) : tensor(id)};
        },
        [&](c10::IValue value) {
          list_.constants.push_back(std::move(value));
          return Source{kNoSlot, static_cast<int32_t>(list_.constants.size() - 1)};
        });
  }

  /// The slot of a value as a tensor; makes the view if it is one.
  Slot tensor(ir::ValueId id) {
    if (in_slot_[static_cast<size_t>(id)]) return slot_of(id);
    const Address& address = views_.address(id);
    TANDEM_CHECK(address.root != id && in_slot_[static_cast<size_t>(address.root)], "lower", "%",
                 names_[static_cast<size_t>(id)], " is read before it is made");
    const ir::TypePtr& type = graph_.value(id).tensor_type();
    list_.steps.push_back({ViewStepping{.from = readable(address.root),
                                        .to = made(id),
                                        .sizes = type->static_sizes(),
                                        .strides = type->static_strides(),
                                        .offset = address.offset}});
    return slot_of(id);
  }

  /// The slot of a value as it may be read through the strides of its type.
  Slot readable(ir::ValueId id) {
    const Slot slot = tensor(id);
    if (!from_outside_[static_cast<size_t>(id)] || views_.is_loose(id)) return slot;
    Slot& copy = readable_[static_cast<size_t>(id)];
    if (copy != kNoSlot) return copy;
    if (!keeps_tensor_[static_cast<size_t>(id)]) return copy = slot;
    owners_.push_back(owners_[static_cast<size_t>(id)]);
    return copy = static_cast<Slot>(list_.slot_count++);
  }
  /// What an operator may write, and what it gives back of that: in a copy the write would be lost.
  void keep_tensors_of(const ir::Node& node) {
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) {
        if (id != ir::kNoValue) keeps_tensor_[static_cast<size_t>(id)] = true;
      });
    }
    for (ir::ValueId id : node.results())
      if (id != ir::kNoValue) keeps_tensor_[static_cast<size_t>(id)] = true;
  }
  Readable readable_value(ir::ValueId id) const {
    const Slot slot = readable_[static_cast<size_t>(id)];
    return slot == kNoSlot ? Readable{} : Readable{slot, graph_.value(id).tensor_type()};
  }

  int32_t& number_of(const ir::Node& node) { return numbers_[static_cast<size_t>(node.id())]; }

  Slot made(ir::ValueId id) {
    in_slot_[static_cast<size_t>(id)] = true;
    return slot_of(id);
  }

  // ---- memory ----
  template <class Fn>
  static void for_each_slot(const Step& step, const Fn& fn) {
    if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
      for (Slot slot : kernel->buffers) fn(slot);
      for (ir::ValueId id : kernel->nodes->inputs) fn(slot_of(id));
    } else if (const auto* call = std::get_if<LibraryStep>(&step.what)) {
      for (const LibraryStep::Argument& argument : call->arguments) {
        for (const LibraryStep::Source& source : argument.sources) fn(source.slot);
      }
      for (Slot slot : call->results) fn(slot);
      for (const Readable& readable : call->readable) fn(readable.slot);
    } else if (const auto* view = std::get_if<ViewStepping>(&step.what)) {
      fn(view->from);
      fn(view->to);
    } else {
      const auto& eager = std::get<EagerStep>(step.what);
      for (Slot slot : eager.inputs) fn(slot);
      for (Slot slot : eager.outputs) fn(slot);
    }
  }

  /// Kernel results that do not leave the call, as long as any tensor shows them.
  void plan_arena() {
    std::unordered_set<ir::ValueId> leaving;
    for (const ir::Output& output : graph_.outputs()) {
      if (output.value != ir::kNoValue) leaving.insert(owners_[static_cast<size_t>(output.value)]);
    }
    std::vector<std::pair<int32_t, int32_t>> life(list_.slot_count, {-1, -1});
    for (size_t i = 0; i < list_.steps.size(); ++i) {
      const bool is_region = [&] {
        const auto* eager = std::get_if<EagerStep>(&list_.steps[i].what);
        return eager != nullptr && eager->why.empty();
      }();
      for_each_slot(list_.steps[i], [&](Slot slot) {
        if (slot == kNoSlot) return;
        const ir::ValueId owner = owners_[static_cast<size_t>(slot)];
        // What a region returns may show what it was given.
        if (is_region) leaving.insert(owner);
        auto& [begin, end] = life[static_cast<size_t>(owner)];
        if (begin < 0) begin = static_cast<int32_t>(i);
        end = static_cast<int32_t>(i);
      });
    }
    std::vector<MemoryNeed> needs;
    std::vector<size_t> tensors;
    for (size_t i = 0; i < list_.tensors.size(); ++i) {
      const OutputTensor& tensor = list_.tensors[i];
      if (leaving.contains(static_cast<ir::ValueId>(tensor.slot)) ||
          tensor.type->device != arena_device(list_, target()))
        continue;
      const auto& [begin, end] = life[static_cast<size_t>(tensor.slot)];
      needs.push_back({tensor_bytes(*tensor.type), begin, end});
      tensors.push_back(i);
    }
    const MemoryPlan plan = plan_memory(needs, target().alignment);
    list_.arena_bytes = plan.bytes;
    for (size_t i = 0; i < tensors.size(); ++i)
      list_.tensors[tensors[i]].arena_offset = plan.offsets[i];
  }

  /// The handle of a slot goes with its last mention: memory that libtorch allocated is freed
  /// there.
  void release_slots() {
    std::vector<bool> read(list_.slot_count, false);
    for (Slot slot : list_.outputs) {
      if (slot != kNoSlot) read[static_cast<size_t>(slot)] = true;
    }
    for (auto step = list_.steps.rbegin(); step != list_.steps.rend(); ++step) {
      for_each_slot(*step, [&](Slot slot) {
        if (slot == kNoSlot || read[static_cast<size_t>(slot)]) return;
        read[static_cast<size_t>(slot)] = true;
        step->released.push_back(slot);
      });
    }
  }

  const ir::Graph& graph_;
  const CompileContext& context_;
  KernelCompiler& compiler_;
  Backend& judge_;
  Views views_;
  FusionPlan plan_;
  std::vector<ir::ValueId> owners_;  // by slot
  std::vector<std::string> names_;
  std::vector<bool> in_slot_;
  std::vector<bool> from_outside_;  // by value: an input, or made by an operator
  std::vector<bool> keeps_tensor_;  // by value
  std::vector<Slot> readable_;      // by value
  std::vector<std::pair<size_t, const ir::Node*>> library_steps_;
  std::vector<int32_t> numbers_;  // by node id
  std::vector<BuiltKernel> built_;
  std::vector<int32_t> kernel_at_;
  std::vector<std::string> reasons_;
  HostList list_;
};

}  // namespace

bool may_write(const c10::OperatorHandle& op) {
  const ops::OpInfo& info = ops::info(op);
  return info.writes() || info.has_effect;
}

c10::Device arena_device(const HostList& list, const Target& target) {
  return list.tensors.empty() ? c10::Device(target.device_type) : list.tensors.front().type->device;
}

int64_t tensor_bytes(const ir::TensorType& type) {
  return shapes::reach(type.static_sizes(), type.static_strides()) *
         static_cast<int64_t>(c10::elementSize(type.dtype));
}

HostList make_host_list(const ir::Graph& graph, const CompileContext& context,
                        KernelCompiler& compiler, Backend& judge) {
  return Lowering(graph, context, compiler, judge).run();
}

}  // namespace tandem::loops
