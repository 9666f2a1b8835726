#include "ir/operand_hash.h"
#include "ir/shape_free.h"
#include "ir/tensor_data.h"
#include "shapes/stable_hash.h"
#include "tandem/ir/graph.h"

#include <unordered_map>

namespace tandem::ir {
namespace {

using shapes::StableHash;

class Hasher {
 public:
  Hasher(const Graph& graph, Numbers which)
      : graph_(graph), which_(which), numbers_(graph.value_limit(), 0) {}

  uint64_t run() {
    hash_.add(graph_.symbols().size());
    for (const Symbol& symbol : graph_.symbols()) this->symbol(symbol);
    hash_.add(graph_.inputs().size());
    for (ValueId input : graph_.inputs()) {
      descriptor(graph_.input_role(input));
      define(input);
    }
    hash_.add(graph_.node_count());
    graph_.for_each_node([&](const Node& node) { this->node(node); });
    hash_.add(graph_.outputs().size());
    for (const Output& output : graph_.outputs()) {
      descriptor(output.role);
      value(output.value);
    }
    return hash_.value();
  }

 private:
  void symbol(const Symbol& symbol) {
    hash_.add(symbol.name);
    if (which_ == Numbers::None) return;
    number(symbol.min);
    hash_.add(symbol.max.has_value());
    number(symbol.max.value_or(0));
    hash_.add(symbol.hint.has_value());
    number(symbol.hint.value_or(0));
  }

  void descriptor(const Descriptor& descriptor) {
    hash_.add(static_cast<uint64_t>(descriptor.role));
    number(descriptor.index);
    hash_.add(descriptor.name);
  }

  void node(const Node& node) {
    hash_.add(static_cast<uint64_t>(node.kind())).add(static_cast<uint64_t>(node.phase()));
    switch (node.kind()) {
      case NodeKind::Op:
        hash_.add(node.op().operator_name().name).add(node.op().operator_name().overload_name);
        break;
      case NodeKind::Constant:
        constant(node.constant());
        break;
      case NodeKind::Region:
        hash_.add(node.label()).add(Hasher(node.region(), which_).run());
        break;
    }
    hash_.add(node.operands().size());
    const auto value_of = [&](ValueId id) { return numbers_[static_cast<size_t>(id)]; };
    OperandHasher operands(hash_, value_of, which_);
    for (const Operand& operand : node.operands()) operands.add(operand);
    hash_.add(node.result_shape().size());
    for (int64_t length : node.result_shape()) number(length);
    for (ValueId result : node.results()) {
      if (result == kNoValue) {
        value(result);
      } else {
        define(result);
      }
    }
  }

  void constant(const at::Tensor& tensor) {
    hash_.add(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    if (which_ == Numbers::None) return;  // its type is that of the result
    std::vector<std::byte> bytes = constant_bytes(tensor);
    hash_.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  /// Values are numbered as they are defined, so that neither ids nor names count.
  void define(ValueId id) {
    numbers_[static_cast<size_t>(id)] = ++defined_;
    const Type& type = graph_.value(id).type();
    hash_.add(static_cast<uint64_t>(type.kind));
    if (!type.tensor) return;
    auto [entry, added] = types_.try_emplace(type.tensor.get(), 0);
    if (added) {
      entry->second = which_ == Numbers::All ? type.tensor->hash() : shape_free_hash(*type.tensor);
    }
    hash_.add(entry->second);
  }

  void value(ValueId id) { hash_.add(id == kNoValue ? 0 : numbers_[static_cast<size_t>(id)]); }
  void number(int64_t number) { hash_.add(static_cast<uint64_t>(number)); }

  const Graph& graph_;
  const Numbers which_;
  StableHash hash_;
  std::vector<uint64_t> numbers_;
  uint64_t defined_ = 0;
  std::unordered_map<const TensorType*, uint64_t> types_;  // addresses as keys only
};

}  // namespace

uint64_t structural_hash(const Graph& graph) { return Hasher(graph, Numbers::All).run(); }
uint64_t shape_free_hash(const Graph& graph) { return Hasher(graph, Numbers::None).run(); }

}  // namespace tandem::ir
