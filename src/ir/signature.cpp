#include "tandem/ir/signature.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace tandem::ir {
namespace {

/// One line of the table: place, role or kind, type, remarks.
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
  if (facts.data_written) remark(remarks, "data written");
  if (facts.history_changed) remark(remarks, "history changed");
  if (facts.metadata_changed) remark(remarks, "metadata changed");
  if (facts.written_in_grad_mode) remark(remarks, "written in grad mode");
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
    case OutputKind::SameAsOutput:
      return base::str("same as output ", facts.source);
    case OutputKind::Undefined:
      return "undefined";
  }
  return "unknown";
}

Row output_row(size_t index, const OutputFacts& facts, const std::vector<TangentFacts>& tangents) {
  std::string remarks;
  if (facts.requires_grad) remark(remarks, facts.is_leaf ? "requires grad, leaf" : "requires grad");
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i].output != static_cast<int64_t>(index)) continue;
    remark(remarks, base::str("tangent ", i));
    if (!tangents[i].raises.empty()) remark(remarks, "raises in backward: " + tangents[i].raises);
  }
  std::string type = facts.kind == OutputKind::Undefined ? "" : type_text(facts.type);
  return {base::str("output ", index), kind_text(facts), std::move(type), std::move(remarks)};
}

std::string counted(size_t count, const char* noun) {
  return base::str(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

bool Signature::writes_any_input() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const InputFacts& facts) {
    return facts.data_written || facts.metadata_changed;
  });
}

std::string to_string(const Signature& signature) {
  std::vector<Row> rows;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    rows.push_back(input_row(i, signature.inputs[i]));
  }
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    rows.push_back(output_row(i, signature.outputs[i], signature.tangents));
  }
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
  return out;
}

std::ostream& operator<<(std::ostream& out, const Signature& signature) {
  return out << to_string(signature);
}

}  // namespace tandem::ir
