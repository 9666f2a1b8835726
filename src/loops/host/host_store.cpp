#include "loops/host/host_store.h"

#include "base/error.h"
#include "ir/ivalue.h"
#include "ir/text/records.h"

#include <algorithm>
#include <utility>

namespace tandem::ops {

// Found where the enumeration is.
constexpr std::array<std::string_view, 3> words(const loops::LibraryStep::Argument::Kind*) {
  return {"single", "tensors", "optional_tensors"};
}

}  // namespace tandem::ops

namespace tandem::loops {

using ir::Field;

namespace {

struct StoredKernel {
  std::string loops{};
  ir::Bytes code{};
};
constexpr auto fields(const StoredKernel*) {
  using F = StoredKernel;
  return std::tuple(Field{"loops", &F::loops}, Field{"code", &F::code});
}

struct StoredTensor {
  Slot slot = kNoSlot;
  ir::TypePtr type{};
  int64_t arena_offset = -1;
};
constexpr auto fields(const StoredTensor*) {
  using F = StoredTensor;
  return std::tuple(Field{"slot", &F::slot}, Field{"type", &F::type},
                    Field{"arena_offset", &F::arena_offset});
}

/// Nodes that stand by themselves, and the slots of what they read and make.
struct StoredNodes {
  ir::Graph graph{};
  std::vector<Slot> inputs{}, outputs{};
};
constexpr auto fields(const StoredNodes*) {
  using F = StoredNodes;
  return std::tuple(Field{"graph", &F::graph}, Field{"inputs", &F::inputs},
                    Field{"outputs", &F::outputs});
}

struct StoredArgument {
  LibraryStep::Argument::Kind kind = LibraryStep::Argument::Kind::Single;
  std::vector<Slot> slots{};  // of a constant none: the node has it
};
constexpr auto fields(const StoredArgument*) {
  using F = StoredArgument;
  return std::tuple(Field{"kind", &F::kind}, Field{"slots", &F::slots});
}

struct StoredStep {
  enum class Kind : uint8_t { Kernel, Library, View, Eager };
  Kind kind = Kind::Library;
  std::vector<Slot> released{};
  int32_t node = kNone;  // of the graph: Library, Eager
  // Kernel
  int32_t kernel = kNone;
  std::vector<Slot> buffers{};
  std::vector<int32_t> tensors{};
  int64_t bytes_read = 0, bytes_written = 0;
  // Kernel, Eager
  std::optional<StoredNodes> nodes{};
  std::vector<std::string> op_names{};
  std::string why{};
  // Library
  std::vector<StoredArgument> arguments{};
  std::vector<Slot> readable{};
  // View: one of each; Eager: all; Library: results
  std::vector<Slot> from{}, to{};
  std::vector<int64_t> sizes{}, strides{};
  int64_t offset = 0;
};
constexpr std::array<std::string_view, 4> words(const StoredStep::Kind*) {
  return {"kernel", "library", "view", "eager"};
}
constexpr auto fields(const StoredStep*) {
  using F = StoredStep;
  return std::tuple(
      Field{"kind", &F::kind}, Field{"released", &F::released}, Field{"node", &F::node},
      Field{"kernel", &F::kernel}, Field{"buffers", &F::buffers}, Field{"tensors", &F::tensors},
      Field{"bytes_read", &F::bytes_read}, Field{"bytes_written", &F::bytes_written},
      Field{"nodes", &F::nodes}, Field{"op_names", &F::op_names}, Field{"why", &F::why},
      Field{"arguments", &F::arguments}, Field{"readable", &F::readable}, Field{"from", &F::from},
      Field{"to", &F::to}, Field{"sizes", &F::sizes}, Field{"strides", &F::strides},
      Field{"offset", &F::offset});
}

struct StoredConstant {
  Slot slot = kNoSlot;
  int32_t node = kNone;
};
constexpr auto fields(const StoredConstant*) {
  using F = StoredConstant;
  return std::tuple(Field{"slot", &F::slot}, Field{"node", &F::node});
}

struct StoredList {
  int64_t slots = 0, arena_bytes = 0;
  std::vector<Slot> inputs{}, outputs{};
  std::vector<Slot> readable_inputs{};
  std::vector<StoredKernel> kernels{};
  std::vector<StoredConstant> constants{};
  std::vector<StoredTensor> tensors{};
  std::vector<StoredStep> steps{};
};
constexpr auto fields(const StoredList*) {
  using F = StoredList;
  return std::tuple(Field{"slots", &F::slots}, Field{"arena_bytes", &F::arena_bytes},
                    Field{"inputs", &F::inputs}, Field{"outputs", &F::outputs},
                    Field{"readable_inputs", &F::readable_inputs}, Field{"kernels", &F::kernels},
                    Field{"constants", &F::constants}, Field{"tensors", &F::tensors},
                    Field{"steps", &F::steps});
}

// ---- there ----

std::vector<Slot> slots_of(const std::vector<ir::ValueId>& values) {
  std::vector<Slot> slots;
  for (ir::ValueId id : values) slots.push_back(static_cast<Slot>(id));
  return slots;
}

std::vector<Slot> slots_of(const std::vector<Readable>& values) {
  std::vector<Slot> slots;
  for (const Readable& value : values) slots.push_back(value.slot);
  return slots;
}

StoredNodes store(const ExtractedGroup& nodes) {
  return {nodes.graph, slots_of(nodes.inputs), slots_of(nodes.outputs)};
}

/// With their lines: addresses say nothing in another process.
std::vector<std::string> texts_of(const std::vector<OpName>& ops) {
  std::vector<std::string> texts;
  for (const OpName& op : ops) texts.push_back(op.text());
  return texts;
}

StoredStep store(const KernelStep& step) {
  return {.kind = StoredStep::Kind::Kernel,
          .kernel = step.kernel,
          .buffers = step.buffers,
          .tensors = step.outputs,
          .bytes_read = step.bytes_read,
          .bytes_written = step.bytes_written,
          .nodes = store(*step.nodes),
          .op_names = texts_of(step.op_names)};
}

StoredStep store(const LibraryStep& step) {
  StoredStep stored{.kind = StoredStep::Kind::Library, .node = step.node, .to = step.results};
  for (const LibraryStep::Argument& argument : step.arguments) {
    StoredArgument& stored_argument = stored.arguments.emplace_back();
    stored_argument.kind = argument.kind;
    for (const LibraryStep::Source& source : argument.sources)
      if (source.constant < 0) stored_argument.slots.push_back(source.slot);
  }
  stored.readable = slots_of(step.readable);
  return stored;
}

StoredStep store(const ViewStepping& step) {
  return {.kind = StoredStep::Kind::View,
          .from = {step.from},
          .to = {step.to},
          .sizes = step.sizes,
          .strides = step.strides,
          .offset = step.offset};
}

StoredStep store(const EagerStep& step) {
  StoredStep stored{.kind = StoredStep::Kind::Eager,
                    .node = step.node,
                    .op_names = texts_of(step.op_names),
                    .why = step.why,
                    .from = step.inputs,
                    .to = step.outputs};
  if (step.nodes) stored.nodes = store(*step.nodes);
  return stored;
}

// ---- and back ----

class Loader {
 public:
  Loader(StoredList stored, const ir::Graph& graph, const CompileContext& context,
         KernelCompiler& compiler, Backend& judge)
      : stored_(std::move(stored)),
        graph_(graph),
        context_(context),
        compiler_(compiler),
        judge_(judge) {
    graph.for_each_node([&](const ir::Node& node) { nodes_.push_back(&node); });
  }

  std::optional<HostList> run() && {
    list_.name = graph_.name();
    require(stored_.slots >= 0 && stored_.slots <= kMostSlots);
    list_.slot_count = static_cast<size_t>(stored_.slots);
    list_.arena_bytes = stored_.arena_bytes;
    list_.inputs = checked(stored_.inputs);
    list_.outputs = checked(stored_.outputs);
    require(list_.inputs.size() == graph_.inputs().size() &&
            list_.outputs.size() == graph_.outputs().size() &&
            stored_.readable_inputs.size() == list_.inputs.size());
    for (size_t i = 0; i < list_.inputs.size(); ++i)
      list_.readable_inputs.push_back(readable(stored_.readable_inputs[i], graph_.inputs()[i]));
    list_.releasable = context_.releasable_inputs;
    list_.releasable.resize(list_.inputs.size(), false);
    for (StoredTensor& tensor : stored_.tensors) add(tensor);
    if (!load_kernels()) return std::nullopt;
    for (const StoredConstant& constant : stored_.constants) {
      const ir::Node& node = this->node(constant.node);
      require(node.kind() == ir::NodeKind::Constant);
      list_.constants.emplace_back(node.constant());
      list_.constant_slots.emplace_back(checked(constant.slot), last_constant());
      list_.constant_nodes.push_back(constant.node);
    }
    for (StoredStep& step : stored_.steps) add(step);
    return std::move(list_);
  }

 private:
  static constexpr int64_t kMostSlots = int64_t{1} << 28;

  static void require(bool holds) {
    TANDEM_REQUIRE(holds, "read", "stored kernels do not belong to their graph",
                   "\n  remedy: store the entry again");
  }
  Slot checked(Slot slot) const {
    require(slot >= kNoSlot && slot < stored_.slots);
    return slot;
  }
  std::vector<Slot> checked(std::vector<Slot> slots) const {
    for (Slot slot : slots) checked(slot);
    return slots;
  }
  Readable readable(Slot slot, ir::ValueId value) const {
    if (checked(slot) == kNoSlot) return {};
    require(value != ir::kNoValue && graph_.value(value).tensor_type() != nullptr);
    return {slot, graph_.value(value).tensor_type()};
  }
  const ir::Node& node(int32_t number) const {
    require(number >= 0 && static_cast<size_t>(number) < nodes_.size());
    return *nodes_[static_cast<size_t>(number)];
  }
  int32_t last_constant() const { return static_cast<int32_t>(list_.constants.size()) - 1; }

  void add(StoredTensor& stored) {
    require(stored.type != nullptr && checked(stored.slot) != kNoSlot);
    OutputTensor& tensor = list_.tensors.emplace_back();
    tensor = {.slot = stored.slot,
              .type = stored.type,
              .arena_offset = stored.arena_offset,
              .sizes = stored.type->static_sizes(),
              .strides = stored.type->static_strides()};
    require(tensor.arena_offset < 0 ||
            tensor.arena_offset + tensor_bytes(*tensor.type) <= list_.arena_bytes);
  }

  /// False if a kernel can neither be loaded nor compiled.
  bool load_kernels() {
    std::vector<const Kernel*> missing;
    std::vector<size_t> places;
    list_.kernels.reserve(stored_.kernels.size());
    for (StoredKernel& stored : stored_.kernels) {
      const Kernel& kernel = list_.kernels.emplace_back(parse_kernel(stored.loops));
      KernelCompiler::Result loaded;
      if (!stored.code.data.empty()) loaded = compiler_.load(kernel, stored.code.data);
      if (!loaded.kernel) {
        missing.push_back(&kernel);
        places.push_back(list_.compiled.size());
      }
      list_.compiled.push_back(std::move(loaded.kernel));
    }
    if (missing.empty()) return true;
    const Sizes sizes = context_.sizes_vary ? Sizes::Vary : Sizes::Fixed;
    std::vector<KernelCompiler::Result> made = compiler_.compile(missing, sizes);
    for (size_t i = 0; i < made.size(); ++i) list_.compiled[places[i]] = std::move(made[i].kernel);
    // One that no step runs need not be there: it could not be generated where it was stored
    // either.
    return std::ranges::all_of(stored_.steps, [&](const StoredStep& step) {
      if (step.kind != StoredStep::Kind::Kernel) return true;
      require(step.kernel >= 0 && static_cast<size_t>(step.kernel) < list_.compiled.size());
      return list_.compiled[static_cast<size_t>(step.kernel)] != nullptr;
    });
  }

  void add(StoredStep& stored) {
    switch (stored.kind) {
      case StoredStep::Kind::Kernel:
        list_.steps.push_back({kernel_step(stored)});
        break;
      case StoredStep::Kind::Library:
        list_.steps.push_back({library_step(stored)});
        break;
      case StoredStep::Kind::View:
        require(stored.from.size() == 1 && stored.to.size() == 1 &&
                stored.sizes.size() == stored.strides.size());
        list_.steps.push_back({ViewStepping{.from = checked(stored.from[0]),
                                            .to = checked(stored.to[0]),
                                            .sizes = std::move(stored.sizes),
                                            .strides = std::move(stored.strides),
                                            .offset = stored.offset}});
        break;
      case StoredStep::Kind::Eager:
        list_.steps.push_back({eager_step(stored)});
        break;
    }
    list_.steps.back().released = checked(std::move(stored.released));
  }

  std::shared_ptr<const ExtractedGroup> nodes_of(StoredStep& stored) const {
    require(stored.nodes.has_value());
    ExtractedGroup group{.graph = std::move(stored.nodes->graph)};
    for (Slot slot : checked(stored.nodes->inputs))
      group.inputs.push_back(static_cast<ir::ValueId>(slot));
    for (Slot slot : checked(stored.nodes->outputs))
      group.outputs.push_back(static_cast<ir::ValueId>(slot));
    return std::make_shared<const ExtractedGroup>(std::move(group));
  }

  static std::vector<OpName> names_of(std::vector<std::string>& texts) {
    std::vector<OpName> names;
    for (std::string& text : texts) names.push_back({std::move(text)});
    return names;
  }

  KernelStep kernel_step(StoredStep& stored) const {
    require(stored.kernel >= 0 && static_cast<size_t>(stored.kernel) < list_.kernels.size());
    const Kernel& kernel = list_.kernels[static_cast<size_t>(stored.kernel)];
    require(stored.buffers.size() == kernel.buffers.size());
    for (int32_t tensor : stored.tensors)
      require(tensor >= 0 && static_cast<size_t>(tensor) < list_.tensors.size());
    return {.name = kernel.name,
            .kernel = stored.kernel,
            .buffers = checked(std::move(stored.buffers)),
            .outputs = std::move(stored.tensors),
            .nodes = nodes_of(stored),
            .op_names = names_of(stored.op_names),
            .bytes_read = stored.bytes_read,
            .bytes_written = stored.bytes_written};
  }

  LibraryStep library_step(StoredStep& stored) {
    using Kind = LibraryStep::Argument::Kind;
    const ir::Node& node = this->node(stored.node);
    require(node.kind() == ir::NodeKind::Op && stored.arguments.size() == node.operands().size() &&
            stored.to.size() == node.results().size() &&
            stored.readable.size() == stored.to.size());
    LibraryStep step{.op = compiler_.target().operator_for(graph_, node, context_.rounding),
                     .shape = node.result_shape(),
                     .results = checked(std::move(stored.to)),
                     .node = stored.node};
    const auto& arguments = node.op().schema().arguments();
    for (size_t i = 0; i < stored.arguments.size(); ++i) {
      StoredArgument& argument = stored.arguments[i];
      require(argument.kind != Kind::Single || argument.slots.size() <= 1);
      LibraryStep::Argument& made = step.arguments.emplace_back();
      made.kind = argument.kind;
      for (Slot slot : argument.slots) made.sources.push_back({checked(slot)});
      if (argument.kind != Kind::Single || !argument.slots.empty()) continue;
      list_.constants.push_back(ir::to_ivalue(graph_, node.operands()[i], arguments[i].real_type(),
                                              [](ir::ValueId) { return at::Tensor(); }));
      made.sources.push_back({kNoSlot, last_constant()});
    }
    for (size_t i = 0; i < step.results.size(); ++i)
      step.readable.push_back(readable(stored.readable[i], node.results()[i]));
    return step;
  }

  EagerStep eager_step(StoredStep& stored) const {
    EagerStep step{.inputs = checked(std::move(stored.from)),
                   .outputs = checked(std::move(stored.to)),
                   .why = std::move(stored.why),
                   .op_names = names_of(stored.op_names),
                   .node = stored.node};
    if (stored.nodes) {
      step.nodes = nodes_of(stored);
      step.graph = judge_.compile(step.nodes->graph, {});
    } else {
      const ir::Node& node = this->node(stored.node);
      require(node.kind() == ir::NodeKind::Region);
      step.graph = judge_.compile(node.region(), {});
    }
    return step;
  }

  StoredList stored_;
  const ir::Graph& graph_;
  const CompileContext& context_;
  KernelCompiler& compiler_;
  Backend& judge_;
  std::vector<const ir::Node*> nodes_;
  HostList list_;
};

}  // namespace

std::string store(const HostList& list) {
  StoredList stored{.slots = static_cast<int64_t>(list.slot_count),
                    .arena_bytes = list.arena_bytes,
                    .inputs = list.inputs,
                    .outputs = list.outputs,
                    .readable_inputs = slots_of(list.readable_inputs)};
  for (size_t i = 0; i < list.kernels.size(); ++i) {
    const CompiledKernel* const compiled = list.compiled[i].get();
    stored.kernels.push_back(
        {print(list.kernels[i]), {compiled ? compiled->save() : std::string()}});
  }
  for (size_t i = 0; i < list.constant_slots.size(); ++i)
    stored.constants.push_back({list.constant_slots[i].first, list.constant_nodes[i]});
  for (const OutputTensor& tensor : list.tensors)
    stored.tensors.push_back({tensor.slot, tensor.type, tensor.arena_offset});
  for (const Step& step : list.steps) {
    stored.steps.push_back(std::visit([](const auto& what) { return store(what); }, step.what));
    stored.steps.back().released = step.released;
  }
  return ir::pack_record(stored);
}

std::optional<HostList> load_host_list(std::string_view stored, const ir::Graph& graph,
                                       const CompileContext& context, KernelCompiler& compiler,
                                       Backend& judge) {
  return Loader(ir::unpack_record<StoredList>(stored), graph, context, compiler, judge).run();
}

}  // namespace tandem::loops
