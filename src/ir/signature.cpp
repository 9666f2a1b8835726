#include "tandem/ir/signature.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace tandem::ir {
namespace {

/// One line of the table: tensor, role or kind, type, remarks.
using Row = std::array<std::string, 4>;

void remark(std::string& out, const std::string& text) {
  if (!out.empty()) out += ", ";
  out += text;
}

std::string type_text(const TypePtr& type) { return type ? to_string(*type) : "undefined"; }

Row input_row(size_t index, const InputFacts& facts) {
  std::string remarks;
  if (facts.requires_grad)
    remark(remarks, facts.is_leaf ? "requires grad" : "requires grad, not a leaf");
  if (facts.closed_over) remark(remarks, "also closed over");
  if (facts.duplicate_of >= 0)
    remark(remarks, base::str("same tensor as input ", facts.duplicate_of));
  if (facts.group >= 0) remark(remarks, base::str("in group ", facts.group));
  if (facts.data_written) remark(remarks, "data written");
  if (facts.history_changed) remark(remarks, "history changed");
  if (facts.histories > 1) remark(remarks, base::str(facts.histories, " histories"));
  if (facts.history_only) remark(remarks, "passed for its history");
  if (facts.metadata_changed) remark(remarks, "metadata changed");
  if (facts.storage == StorageChange::Grown) remark(remarks, "storage grown");
  if (facts.storage == StorageChange::Replaced)
    remark(remarks, facts.set_to >= 0 ? base::str("memory of input ", facts.set_to, " afterwards")
                                      : std::string("new memory afterwards"));
  if (facts.storage == StorageChange::Resized)
    remark(remarks, base::str("storage of ", facts.bytes_after, " bytes afterwards"));
  if (facts.version_delta != 0) remark(remarks, base::str("version +", facts.version_delta));
  if (facts.requires_grad_after != facts.requires_grad) {
    remark(remarks, facts.requires_grad_after ? "requires grad afterwards" : "no grad afterwards");
  }
  return {base::str("input ", index), to_string(facts.role), type_text(facts.type),
          std::move(remarks)};
}

std::string kind_text(const OutputFacts& facts) {
  switch (facts.kind) {
    case OutputKind::Fresh:
      return "fresh";
    case OutputKind::IsInput:
      return base::str("is input ", facts.source);
    case OutputKind::AliasOfInput:
      return base::str("view of input ", facts.source);
    case OutputKind::AliasOfGroup:
      return base::str("view of group ", facts.source);
    case OutputKind::AliasOfBase:
      return base::str("view of base ", facts.source);
    case OutputKind::AliasOfOutput:
      return base::str("view of output ", facts.source);
    case OutputKind::SameAsOutput:
      return base::str("same as output ", facts.source);
    case OutputKind::Undefined:
      return "undefined";
  }
  return "unknown";
}

/// The tangents that belong to one tensor of the call.
void remark_tangents(std::string& out, const CallTensor& tensor,
                     const std::vector<TangentFacts>& tangents) {
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!(tangents[i].of.tensor == tensor)) continue;
    remark(out, base::str("tangent ", i));
    if (!tangents[i].raises.empty()) remark(out, "raises in backward: " + tangents[i].raises);
  }
}

Row group_row(size_t index, const GroupFacts& facts) {
  std::string members, remarks;
  for (int64_t member : facts.members) remark(members, std::to_string(member));
  if (facts.requires_grad)
    remark(remarks, facts.is_leaf ? "requires grad" : "requires grad, not a leaf");
  remark(remarks, "data written");
  if (facts.history_changed) remark(remarks, "history changed");
  return {base::str("group ", index), "inputs " + members, type_text(facts.type),
          std::move(remarks)};
}

Row base_row(size_t index, const BaseFacts& facts) {
  return {base::str("base ", index),
          facts.output >= 0 ? base::str("is output ", facts.output) : std::string("hidden"),
          type_text(facts.type), facts.requires_grad ? "requires grad" : ""};
}

Row output_row(size_t index, const OutputFacts& facts) {
  std::string remarks;
  if (facts.requires_grad) remark(remarks, facts.is_leaf ? "requires grad, leaf" : "requires grad");
  if (facts.own_history) remark(remarks, "history of its own");
  std::string type = facts.kind == OutputKind::Undefined ? "" : type_text(facts.type);
  return {base::str("output ", index), kind_text(facts), std::move(type), std::move(remarks)};
}

std::string counted(size_t count, const char* noun) {
  return base::str(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

bool Signature::writes_any_input() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const InputFacts& facts) {
    return facts.data_written || facts.metadata_changed || facts.storage != StorageChange::None;
  });
}

bool Signature::is_view_of_group(size_t input) const {
  const int64_t group = inputs[input].group;
  return group >= 0 && groups[static_cast<size_t>(group)].is_root;
}

bool Signature::is_rewritten(size_t input) const {
  const InputFacts& facts = inputs[input];
  return facts.duplicate_of < 0 && facts.history_changed && !is_view_of_group(input) &&
         (facts.data_written || !facts.metadata_changed);
}

int64_t Signature::histories(const CallTensor& tensor) const {
  const auto index = static_cast<size_t>(tensor.index);
  if (tensor.is_input()) return inputs[index].histories;
  return tensor.is_group() && groups[index].history_changed ? 2 : 1;
}

const TensorType& Signature::type_of(const History& history) const {
  const auto index = static_cast<size_t>(history.tensor.index);
  switch (history.tensor.kind) {
    case CallTensor::Kind::Input: {
      const InputFacts& facts = inputs[index];
      return facts.type_after && is_new_last(history) ? *facts.type_after : *facts.type;
    }
    case CallTensor::Kind::Group:
      return *groups[index].type;
    case CallTensor::Kind::Base:
      return *bases[index].type;
    case CallTensor::Kind::Output:
      return *outputs[index].type;
  }
  TANDEM_CHECK(false, "call", "no such tensor");
}

std::string to_string(const CallTensor& tensor) {
  constexpr std::array kWords = {"input ", "group ", "base ", "output "};
  return base::str(kWords[static_cast<size_t>(tensor.kind)], tensor.index);
}

std::string to_string(const History& history) {
  return to_string(history.tensor) +
         (history.number == 0 ? "" : base::str(", history ", history.number));
}

std::string to_string(const Signature& signature) {
  std::vector<Row> rows;
  using Kind = CallTensor::Kind;
  const auto add = [&](Row row, Kind kind, size_t index) {
    remark_tangents(row.back(), {kind, static_cast<int64_t>(index)}, signature.tangents);
    rows.push_back(std::move(row));
  };
  for (size_t i = 0; i < signature.inputs.size(); ++i)
    add(input_row(i, signature.inputs[i]), Kind::Input, i);
  for (size_t i = 0; i < signature.groups.size(); ++i)
    add(group_row(i, signature.groups[i]), Kind::Group, i);
  for (size_t i = 0; i < signature.outputs.size(); ++i)
    add(output_row(i, signature.outputs[i]), Kind::Output, i);
  for (size_t i = 0; i < signature.bases.size(); ++i)
    add(base_row(i, signature.bases[i]), Kind::Base, i);
  Row::size_type columns = Row().size();
  std::vector<size_t> widths(columns, 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }

  std::string out = signature.training ? "training: " : "inference: ";
  out += counted(signature.inputs.size(), "input");
  out += base::str(" (", signature.lifted_count, " lifted), ");
  out += counted(signature.outputs.size(), "output");
  out += ", " + counted(signature.tangents.size(), "tangent") + "\n";
  for (const Row& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < columns; ++i) {
      line += row[i];
      line.append(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  for (const EqualityFacts& facts : signature.equalities) {
    out += base::str("  input ", facts.a, " and input ", facts.b,
                     facts.equal ? " are equal\n" : " are not equal\n");
  }
  if (signature.grad_mode_after)
    out += base::str("  leaves grad mode ", *signature.grad_mode_after ? "on\n" : "off\n");
  return out;
}

std::ostream& operator<<(std::ostream& out, const Signature& signature) {
  return out << to_string(signature);
}

}  // namespace tandem::ir
