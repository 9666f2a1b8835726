#include "pipeline/fingerprint.h"

#include "ir/operand_hash.h"
#include "ir/tensor_data.h"
#include "ops/op_table.h"
#include "shapes/stable_hash.h"
#include "tracing/recording/traced_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::pipeline {
namespace {

using shapes::StableHash;

/// What a value is to the function, whatever its number in this recording.
enum class Kind : uint64_t { Unknown, Argument, Lifted, Base, Constant, Result };

uint64_t identity(Kind kind, uint64_t number) {
  return StableHash().add(static_cast<uint64_t>(kind)).add(number).value();
}

/// Of two tensors on one storage: the same, or another handle that autograd knows nothing of.
/// `.data()` gives a new one each time.
bool are_one(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_same(b)) return true;
  return !a.requires_grad() && !b.requires_grad() && a.dtype() == b.dtype() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

std::string_view name_of(const ir::Node& node) { return node.op().operator_name().name; }

class Fingerprint {
 public:
  Fingerprint(const Program& program, const tracing::Trace& trace)
      : program_(program),
        trace_(trace),
        graph_(trace.recording().graph()),
        replacements_(program.replacements()),
        identities_(graph_.value_limit(), identity(Kind::Unknown, 0)),
        is_base_(graph_.value_limit(), false),
        is_first_(graph_.value_limit(), false) {
    name_lifted();
    name_inputs();
  }

  uint64_t run(ir::NodeId after) {
    bool counts = after == ir::kNoNode;
    graph_.for_each_node([&](const ir::Node& node) {
      add(node, counts);
      counts = counts || node.id() == after;
    });
    hash_.add(trace_.recording().calls_hash());
    for (const at::Tensor& result : trace_.results().tensors)
      hash_.add(result.defined() ? of(value_as_made(result)) : 0);
    return hash_.value();
  }

 private:
  uint64_t& of(ir::ValueId value) { return identities_[static_cast<size_t>(value)]; }

  /// Of the call that is differentiated, in the order of its inputs.
  void name_lifted() {
    if (program_.is_derived()) {
      lifted_ = program_.derivations.front().lifted;
    } else {
      for (size_t i = trace_.argument_count(); i < trace_.stand_ins().size(); ++i)
        lifted_.push_back(trace_.stand_ins()[i].real);
    }
    for (size_t i = 0; i < lifted_.size(); ++i)
      on_storage_[lifted_[i].storage().unsafeGetStorageImpl()].push_back(i);
  }

  uint64_t identity_of_lifted(const at::Tensor& real) const {
    const auto neighbours = on_storage_.find(real.storage().unsafeGetStorageImpl());
    if (neighbours == on_storage_.end()) return identity(Kind::Unknown, 0);
    for (size_t i : neighbours->second) {
      if (are_one(lifted_[i], real)) return identity(Kind::Lifted, i);
    }
    return identity(Kind::Unknown, 0);
  }

  uint64_t identity_of_input(const tracing::StandIn& stand_in) const {
    const ir::Descriptor& role = graph_.input_role(stand_in.input);
    if (role.role != ir::Role::UserInput) return identity_of_lifted(stand_in.real);
    const auto position = static_cast<size_t>(role.index);
    for (const tracing::Replacement& one : replacements_) {
      if (one.argument == position) return identity_of_lifted(one.closed_over);
    }
    return identity(Kind::Argument, position);
  }

  /// What the function sees first of an input: where inputs share memory, a view of their base.
  void name_inputs() {
    for (const tracing::Group& group : trace_.groups()) {
      of(group.input) = identity(Kind::Base, 0);
      is_base_[static_cast<size_t>(group.input)] = true;
    }
    for (const tracing::StandIn& stand_in : trace_.stand_ins()) {
      if (stand_in.duplicate_of >= 0) continue;
      of(stand_in.input) = of(stand_in.first_value) = identity_of_input(stand_in);
      is_first_[static_cast<size_t>(stand_in.first_value)] = true;
    }
  }

  /// A view of a base that is taken again is the input that it shows.
  uint64_t identity_in_base(const ir::Node& view, ir::ValueId base) {
    for (const tracing::StandIn& stand_in : trace_.stand_ins()) {
      const ir::ValueId first = stand_in.first_value;
      const ir::NodeId producer = graph_.value(first).producer();
      if (producer == ir::kNoNode) continue;
      const ir::Node& node = graph_.node(producer);
      if (node.kind() == ir::NodeKind::Op && node.op() == view.op() &&
          std::ranges::equal(node.operands(), view.operands()))
        return of(first);
    }
    return of(base);
  }

  void add(const ir::Node& node, bool counts) {
    if (node.kind() == ir::NodeKind::Constant) {
      const std::vector<std::byte> bytes = ir::constant_bytes(node.constant());
      of(node.results()[0]) =
          StableHash()
              .add(identity(Kind::Constant,
                            node.constant().unsafeGetTensorImpl()->is_wrapped_number()))
              .add(static_cast<uint64_t>(node.constant().scalar_type()))
              .add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
              .value();
    }
    if (node.kind() != ir::NodeKind::Op) return;
    if (!add_without_count(node) && counts) count(node);
  }

  /// Views do not count by themselves: which of them are recorded depends on how inputs lie in each
  /// other's memory. They count where they are read.
  bool add_without_count(const ir::Node& node) {
    const auto* source =
        node.operands().empty() ? nullptr : node.operands()[0].get_if<ir::ValueId>();
    if (source == nullptr || *source == ir::kNoValue) return false;
    const bool of_base = is_base_[static_cast<size_t>(*source)];
    if (of_base && name_of(node) == "aten::as_strided_scatter") {
      // The base with a new value of one of the inputs that lie in it.
      is_base_[static_cast<size_t>(node.results()[0])] = true;
      of(node.results()[0]) = of(*node.operands()[1].get_if<ir::ValueId>());
      return true;
    }
    const ops::OpInfo& info = ops::info(node.op());
    if (!info.is_view) return false;
    const bool same = name_of(node) == "aten::alias";
    const bool in_base = of_base && name_of(node) == "aten::as_strided";
    for (size_t i = 0; i < node.results().size(); ++i) {
      const ir::ValueId result = node.results()[i];
      if (result == ir::kNoValue || is_first_[static_cast<size_t>(result)]) continue;
      of(result) = same      ? of(*source)
                   : in_base ? identity_in_base(node, *source)
                             : add_call(StableHash(), node).add(i).value();
    }
    return true;
  }

  void count(const ir::Node& node) {
    hash_ = add_call(hash_, node);
    ++calls_;
    for (size_t i = 0; i < node.results().size(); ++i) {
      if (node.results()[i] != ir::kNoValue)
        of(node.results()[i]) = StableHash().add(identity(Kind::Result, calls_)).add(i).value();
    }
  }

  StableHash add_call(StableHash hash, const ir::Node& node) {
    hash.add(ops::info(node.op()).name_hash);
    ir::OperandHasher operands(hash, [&](ir::ValueId value) { return of(value); });
    for (const ir::Operand& operand : node.operands()) operands.add(operand);
    return hash;
  }

  /// Without applying writes that are pending: what reads the trace next shall find it as it was.
  static ir::ValueId value_as_made(const at::Tensor& result) {
    const at::Tensor inner = at::functionalization::impl::from_functional_tensor(result);
    return tracing::as_traced(inner)->value();
  }

  const Program& program_;
  const tracing::Trace& trace_;
  const ir::Graph& graph_;
  std::vector<at::Tensor> lifted_;
  const std::vector<tracing::Replacement> replacements_;
  std::unordered_map<const c10::StorageImpl*, std::vector<size_t>> on_storage_;  // of lifted_
  // By value.
  std::vector<uint64_t> identities_;
  std::vector<bool> is_base_;   // of a group, or with what was written to it since
  std::vector<bool> is_first_;  // as the function finds an input
  uint64_t calls_ = 0;
  StableHash hash_;
};

}  // namespace

uint64_t fingerprint(const Program& program, const tracing::Trace& trace, ir::NodeId after) {
  return Fingerprint(program, trace).run(after);
}

}  // namespace tandem::pipeline
