#include "fuzz/program.h"

#include "fuzz/op.h"
#include "fuzz/write_text.h"

#include <sstream>

namespace tandem::fuzz {
namespace {

size_t count(const std::vector<Statement>& statements) {
  size_t total = 0;
  for (const Statement& statement : statements) total += 1 + count(statement.body);
  return total;
}

void print(std::ostream& out, const std::vector<Statement>& statements, int depth) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  for (const Statement& statement : statements) {
    switch (statement.kind) {
      case StatementKind::Op:
        out << indent << statement_text(statement) << '\n';
        continue;
      case StatementKind::Call:
        out << indent << "call inner " << statement.function << " (";
        for (int operand : statement.operands) out << " v" << operand;
        out << " ) ->";
        for (int result : statement.results) out << " v" << result;
        out << '\n';
        continue;
      case StatementKind::NoGrad:
        out << indent << "no_grad {\n";
        break;
      case StatementKind::EnableGrad:
        out << indent << "enable_grad {\n";
        break;
      case StatementKind::Inference:
        out << indent << "inference {\n";
        break;
      case StatementKind::Repeat:
        out << indent << "repeat " << statement.count << " {\n";
        break;
    }
    print(out, statement.body, depth + 1);
    out << indent << "}\n";
  }
}

void print(std::ostream& out, const char* name, const Origin& origin) {
  if (origin.given.empty()) return;
  out << name << ":\n";
  for (size_t index = 0; index < origin.leaves.size(); ++index) {
    const Leaf& leaf = origin.leaves[index];
    out << "  v" << index << " = leaf " << c10::toString(leaf.dtype) << at::IntArrayRef(leaf.sizes)
        << (leaf.requires_grad ? " requires grad" : "")
        << (leaf.fill == Fill::Special     ? " of special values"
            : leaf.fill == Fill::LargeMean ? " of large mean"
                                           : "")
        << (leaf.inference ? " made in inference mode" : "") << '\n';
  }
  print(out, origin.statements, 1);
  out << "  given";
  for (int variable : origin.given) out << " v" << variable;
  out << '\n';
}

void print(std::ostream& out, const std::string& name, const Function& function) {
  if (function.variables == 0) return;
  out << name << " of " << function.parameters << ":\n";
  print(out, function.statements, 1);
  out << "  return";
  for (int variable : function.results) out << " v" << variable;
  out << '\n';
}

}  // namespace

size_t count_statements(const ProgramSpec& program) {
  size_t total = count(program.arguments.statements) + count(program.closure.statements) +
                 count(program.function.statements) + count(program.further.statements);
  for (const Function& function : program.inner) total += count(function.statements);
  return total;
}

std::string print(const ProgramSpec& program) {
  std::ostringstream out;
  out << "seed " << program.seed;
  if (program.rounds) out << ", rounds";
  if (program.second_order) out << ", second order";
  if (program.around == Around::NoGrad) out << ", called in no_grad";
  if (program.around == Around::Inference) out << ", called in inference mode";
  if (program.mode == CallMode::Epilogue) out << ", write-back in the epilogue";
  if (program.mode == CallMode::OtherThread) out << ", called from another thread";
  if (program.variation == Variation::NoGrad) out << ", third call in no_grad";
  if (program.variation == Variation::FlipGrad) out << ", third call with grad flags flipped";
  if (program.variation == Variation::Wider) out << ", third call with a wider leaf";
  if (program.variation == Variation::Apart) out << ", calls with arguments in memory of their own";
  for (size_t call = 0; call < program.sizes_of_calls.size(); ++call) {
    out << (call == 0 ? ", sizes " : " ") << at::IntArrayRef(program.sizes_of_calls[call]);
  }
  if (program.host_changes) out << ", host state changes";
  if (program.new_histories) out << ", new histories before the calls";
  for (const NewData& data : program.new_data) {
    out << ", " << (data.wider ? "wider" : "other") << " data for leaf " << data.leaf
        << (data.closed_over ? " of the closure " : " ")
        << (data.after_call ? "before the backward" : "before the calls");
  }
  for (const ProgramPattern pattern : program.patterns) out << ", " << name_of(pattern);
  out << '\n';
  print(out, "arguments", program.arguments);
  print(out, "closure", program.closure);
  for (size_t index = 0; index < program.inner.size(); ++index) {
    print(out, "inner " + std::to_string(index), program.inner[index]);
  }
  print(out, "function", program.function);
  print(out, "further", program.further);
  return out.str();
}

}  // namespace tandem::fuzz
