#include "backends/eager/program.h"
#include "base/error.h"
#include "ir/sized_type.h"
#include "ops/op_table.h"
#include "shapes/evaluate.h"
#include "tandem/ir/type.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>
#include <utility>

namespace tandem::backends::eager {
namespace {

/// The in-place overload if it takes the same arguments, so that one prepared stack serves both.
std::optional<c10::OperatorHandle> matching_inplace(const c10::OperatorHandle& op,
                                                    c10::ScalarType dtype) {
  std::optional<c10::OperatorHandle> inplace = ops::inplace_overload(op, dtype);
  if (!inplace.has_value()) return std::nullopt;
  const auto& wanted = op.schema().arguments();
  const auto& offered = inplace->schema().arguments();
  const bool same =
      std::ranges::equal(wanted, offered, [](const c10::Argument& a, const c10::Argument& b) {
        return a.name() == b.name() && *a.real_type() == *b.real_type();
      });
  return same && inplace->schema().returns().size() == 1 ? inplace : std::nullopt;
}

class Assembler {
 public:
  Assembler(const ir::Graph& graph, const CompileContext& context) : context_(context) {
    program_.input_count = graph.inputs().size();
    for (const ir::Symbol& symbol : graph.symbols()) program_.symbols.push_back(symbol.name);
    is_bound_.assign(program_.symbols.size(), false);
    // What is there for its sizes is always there; another input that nobody reads need not be.
    for (bool carries : {true, false}) {
      for (size_t i = 0; i < graph.inputs().size(); ++i) {
        const ir::TypePtr& type = graph.value(graph.inputs()[i]).tensor_type();
        if (type && ir::carries_sizes(*type) == carries) add_sized(program_.sized_inputs, i, type);
      }
    }
    std::vector<Source> inputs;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      inputs.push_back({Source::Kind::Input, false, static_cast<int32_t>(i)});
    }
    program_.outputs = lay_out(graph, inputs);
    for (const ir::Output& output : graph.outputs()) {
      if (output.value == ir::kNoValue || graph.value(output.value).tensor_type() != nullptr)
        continue;
      TANDEM_UNSUPPORTED("lower", "backend \"eager\" returns tensors only, ",
                         ir::to_string(output.role),
                         " is a number\n  remedy: return it as a tensor of no dimensions");
    }
  }

  Program finish() && {
    mark_last_uses();
    for (size_t i = 0; i < program_.input_count; ++i) {
      if (releasable(i) && !input_read_[i])
        program_.unread_inputs.push_back(static_cast<int32_t>(i));
    }
    return std::move(program_);
  }

 private:
  /// Appends the nodes of a graph; answers where its outputs are.
  std::vector<Source> lay_out(const ir::Graph& graph, const std::vector<Source>& inputs) {
    std::vector<Source> where(graph.value_limit());
    for (size_t i = 0; i < inputs.size(); ++i)
      where[static_cast<size_t>(graph.inputs()[i])] = inputs[i];
    auto source_of = [&](ir::ValueId id) {
      return id == ir::kNoValue ? Source{} : where[static_cast<size_t>(id)];
    };

    graph.for_each_node([&](const ir::Node& node) {
      std::vector<Source> results;
      switch (node.kind()) {
        case ir::NodeKind::Constant:
          results = {constant(node.constant())};
          break;
        case ir::NodeKind::Region: {
          std::vector<Source> arguments;
          for (const ir::Operand& operand : node.operands()) {
            const auto* id = operand.get_if<ir::ValueId>();
            TANDEM_CHECK(id != nullptr, "lower", "an operand of region ", node.label(),
                         " is no value");
            arguments.push_back(source_of(*id));
          }
          results = lay_out(node.region(), arguments);
          break;
        }
        case ir::NodeKind::Op:
          results = add_instruction(graph, node, source_of);
          break;
      }
      for (size_t i = 0; i < node.results().size(); ++i) {
        if (node.results()[i] != ir::kNoValue)
          where[static_cast<size_t>(node.results()[i])] = results[i];
      }
    });

    std::vector<Source> outputs;
    for (const ir::Output& output : graph.outputs()) outputs.push_back(source_of(output.value));
    return outputs;
  }

  template <class SourceOf>
  std::vector<Source> add_instruction(const ir::Graph& graph, const ir::Node& node,
                                      const SourceOf& source_of) {
    Instruction instruction{.op = node.op()};
    const auto& schema = node.op().schema();
    for (size_t i = 0; i < node.operands().size(); ++i) {
      if (ir::has_symbols(node.operands()[i])) {
        instruction.arguments.push_back(
            {Argument::Kind::Single,
             {sized_argument(node.operands()[i], schema.arguments()[i].real_type())}});
        continue;
      }
      instruction.arguments.push_back(ops::boxed_argument<Source>(
          graph, node.operands()[i], schema.arguments()[i].real_type(), source_of,
          [this](c10::IValue value) { return constant(std::move(value)); }));
    }
    instruction.shape = node.result_shape();
    std::vector<Source> results;
    for (size_t i = 0; i < node.results().size(); ++i) {
      if (node.results()[i] != ir::kNoValue)
        add_sized(instruction.sized, i, graph.value(node.results()[i]).tensor_type());
    }
    for (ir::ValueId id : node.results()) {
      // Nobody reads it: the result is dropped as soon as the call is over.
      const bool dropped = id == ir::kNoValue || !graph.value(id).has_users();
      instruction.results.push_back(dropped ? kDropped
                                            : static_cast<int32_t>(program_.slot_count++));
      results.push_back(dropped ? Source{}
                                : Source{Source::Kind::Slot, false, instruction.results.back()});
    }
    if (can_reuse_operand(graph, node)) {
      instruction.inplace =
          matching_inplace(node.op(), graph.value(node.results()[0]).tensor_type()->dtype);
    }
    if (node.op().schema().name() == "aten::view" && node.op().schema().overload_name().empty()) {
      instruction.reshape = c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "");
    }
    program_.stack_size = std::max(program_.stack_size, instruction.arguments.size() + 1);
    program_.instructions.push_back(std::move(instruction));
    return results;
  }

  /// Without symbols nothing is to do at run time.
  void add_sized(std::vector<SizedTensor>& list, size_t index, const ir::TypePtr& type) {
    if (type == nullptr || type->is_static()) return;
    SizedTensor sized{.index = index, .type = type};
    for (size_t dim = 0; dim < type->sizes.size(); ++dim) {
      const std::string name = shapes::symbol_name(type->sizes[dim]);
      if (name.empty()) continue;
      const size_t symbol = symbol_of(name);
      if (is_bound_[symbol]) continue;
      is_bound_[symbol] = true;
      sized.binds.emplace_back(dim, symbol);
    }
    for (const ir::Size& size : type->sizes) require_bound(size);
    list.push_back(std::move(sized));
  }

  size_t symbol_of(const std::string& name) const {
    const auto at = std::ranges::find(program_.symbols, name);
    TANDEM_CHECK(at != program_.symbols.end(), "lower", "no symbol ", name);
    return static_cast<size_t>(at - program_.symbols.begin());
  }

  void require_bound(const ir::Size& size) const {
    if (size.is_constant()) return;
    for (const std::string& name : size.symbols()) {
      TANDEM_CHECK(is_bound_[symbol_of(name)], "lower",
                   "nothing before its first use has the size ", name);
    }
  }

  Source sized_argument(const ir::Operand& operand, const c10::TypePtr& type) {
    if (const auto* size = operand.get_if<ir::Size>()) require_bound(*size);
    if (const auto* sizes = operand.get_if<ir::Operand::Sizes>())
      std::ranges::for_each(*sizes, [&](const ir::Size& size) { require_bound(size); });
    program_.sized_arguments.push_back({operand, type});
    return {Source::Kind::Sized, false, static_cast<int32_t>(program_.sized_arguments.size() - 1)};
  }

  Source constant(c10::IValue value) {
    program_.constants.push_back(std::move(value));
    return {Source::Kind::Constant, false, static_cast<int32_t>(program_.constants.size() - 1)};
  }

  /// Judges by what types can tell. Whether anybody else sees the memory shows at run time.
  static bool can_reuse_operand(const ir::Graph& graph, const ir::Node& node) {
    if (ops::info(node.op()).work != ops::Work::Pointwise) return false;
    if (node.results().size() != 1 || node.results()[0] == ir::kNoValue || node.operands().empty())
      return false;
    const auto* first = node.operands()[0].get_if<ir::ValueId>();
    if (first == nullptr || *first == ir::kNoValue) return false;
    const ir::Value& overwritten = graph.value(*first);
    if (overwritten.is_input() || !(overwritten.type() == graph.value(node.results()[0]).type()))
      return false;
    if (overwritten.tensor_type() == nullptr || overwritten.tensor_type()->layout != c10::kStrided)
      return false;
    // A view of dead memory could be overwritten, but would keep all of that memory alive as a
    // result.
    const ir::Node& producer = graph.node(overwritten.producer());
    if (producer.kind() != ir::NodeKind::Op || ops::info(producer.op()).is_view) return false;
    int64_t mentions = 0;
    for (const ir::Operand& operand : node.operands()) {
      operand.for_each_value([&](ir::ValueId id) { mentions += id == *first ? 1 : 0; });
    }
    return mentions == 1;
  }

  bool releasable(size_t input) const {
    return !context_.releasable_inputs.empty() && context_.releasable_inputs[input];
  }

  void mark(Source& source, std::vector<bool>& slot_read) {
    const auto at = static_cast<size_t>(source.index);
    if (source.kind == Source::Kind::Slot) {
      source.last_use = !slot_read[at];
      slot_read[at] = true;
    } else if (source.kind == Source::Kind::Input) {
      source.last_use = releasable(at) && !input_read_[at];
      input_read_[at] = true;
    }
  }

  // Backwards, so that the first mention met is the last use; the same within one call, whose
  // operands are pushed from left to right.
  void mark_last_uses() {
    std::vector<bool> slot_read(program_.slot_count, false);
    input_read_.assign(program_.input_count, false);
    for (auto output = program_.outputs.rbegin(); output != program_.outputs.rend(); ++output) {
      mark(*output, slot_read);
    }
    for (auto call = program_.instructions.rbegin(); call != program_.instructions.rend(); ++call) {
      for (auto argument = call->arguments.rbegin(); argument != call->arguments.rend();
           ++argument) {
        for (auto source = argument->sources.rbegin(); source != argument->sources.rend();
             ++source) {
          mark(*source, slot_read);
        }
      }
      if (call->inplace.has_value()) {
        const Source& first = call->arguments[0].sources[0];
        if (first.kind != Source::Kind::Slot || !first.last_use) call->inplace.reset();
      }
      // A region may use less of a value than the graph around it says.
      for (int32_t& result : call->results) {
        if (result != kDropped && !slot_read[static_cast<size_t>(result)]) result = kDropped;
      }
    }
  }

  const CompileContext& context_;
  Program program_;
  std::vector<bool> input_read_;
  std::vector<bool> is_bound_;  // by symbol
};

}  // namespace

Program assemble(const ir::Graph& graph, const CompileContext& context) {
  return Assembler(graph, context).finish();
}

}  // namespace tandem::backends::eager
