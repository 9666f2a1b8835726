#include "fuzz/execute.h"

#include "fuzz/kinks.h"
#include "fuzz/op_rules.h"

#include <exception>
#include <string_view>

namespace tandem::fuzz {
namespace {

/// What is computed from inexact values is inexact, and so is whatever shares memory with it.
void note_rounding(Draft& draft, const Chooser& chooser, const Statement& statement) {
  const Op& op = *statement.op;
  const bool rounds = op.has(kRounds) || op.has(kInnerGrad) || op.has(kEagerBits);
  if (!rounds && !reads_inexact(draft, chooser, statement)) return;
  const auto mark = [&](int variable) {
    const at::Tensor& tensor = chooser.value(variable);
    const bool is_number = tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
    if (is_number && tensor.has_storage()) draft.inexact.insert(storage_of(tensor));
  };
  for (int result : statement.results) mark(result);
  if (op.has(kInPlace)) {
    for (int operand : statement.operands) mark(operand);
  }
}

/// By how much a backend may miss a value: as the judge sees it (docs/reference/differences.md).
double distance_of(const Draft& draft, const at::Tensor& tensor) {
  const at::Tensor wide = draft.wide_run.wide(tensor);
  if (!wide.defined() || !draft.inexact.contains(storage_of(tensor))) return 0;
  const at::NoGradGuard no_grad;
  const double own = (wide - tensor).abs().nan_to_num(0, 0, 0).max().item<double>();
  return 2 * own + 16 * draft.wide_run.eps() * draft.wide_run.largest();
}

void note_company(Draft& draft, Chooser& chooser, Statement& statement) {
  for (int operand : statement.operands) {
    const at::Tensor& tensor = chooser.value(operand);
    statement.on_view = statement.on_view || tensor.is_view();
    statement.on_written =
        statement.on_written || (!tensor.is_inference() && tensor._version() > 0);
    statement.on_drawn = statement.on_drawn || draft.drawn.contains(tensor.unsafeGetTensorImpl());
  }
  if (statement.op->has(kLosesZeros)) {
    const at::Tensor& x = chooser.value(statement.operands[0]);
    const at::Tensor& result = chooser.value(statement.results[0]);
    draft.lost_zeros = draft.lost_zeros || x.numel() == result.numel();
  }
  draft.used_custom = draft.used_custom || statement.op->has(kCustom);
  const bool draws = statement.on_drawn || statement.op->has(kRandom);
  const std::string_view name = statement.op->name;
  const bool expands =
      name.starts_with("expand") || name == "meshgrid" || name == "broadcast_tensors";
  for (int result : statement.results) {
    const at::Tensor& tensor = chooser.value(result);
    if (!tensor.defined()) continue;
    statement.requires_grad = statement.requires_grad || tensor.requires_grad();
    if (draws) draft.drawn.insert(tensor.unsafeGetTensorImpl());
    if (expands && tensor.has_storage()) draft.expanded.insert(storage_of(tensor));
    const bool folds = name.starts_with("linear") || name.starts_with("matmul");
    if ((folds && tensor.dim() > 2) || name == "kron") draft.folded.insert(storage_of(tensor));
  }
}

}  // namespace

bool execute(Draft& draft, Chooser& chooser, Statement& statement) {
  Tensors& live = chooser.live;
  const size_t variables = live.size();
  const Op& op = *statement.op;
  const bool writes = op.has(kInPlace);
  if (!draft.bits_promised) {
    for (const Statement& before : chooser.before) note_rounding(draft, chooser, before);
  }
  if (!may_run(draft, chooser, statement)) return false;
  if (!draft.bits_promised && reads_inexact(draft, chooser, statement) &&
      is_at_kink(chooser, statement, draft.surroundings,
                 {.distance = [&](const at::Tensor& tensor) { return distance_of(draft, tensor); },
                  .second_order = draft.program.second_order})) {
    return false;
  }
  statement.own_generator =
      op.has(kRandom) && op.text.find('g') != std::string_view::npos && draft.random.percent(40);
  try {
    Tensors scratch = live;
    Statement probe = statement;
    probe.results.clear();
    for (int index = 0; index < 4; ++index) {
      scratch.emplace_back();
      probe.results.push_back(static_cast<int>(scratch.size()) - 1);
    }
    {
      const test::WideRun::Scope scope(draft.wide_run);
      run_op(probe, scratch, draft.surroundings);
    }
    size_t count = 0;
    for (size_t index = variables; index < scratch.size(); ++index) {
      if (!is_tame(scratch[index], draft.limits)) {
        if (writes) throw Wild{};
        return false;
      }
      if (scratch[index].defined()) count = index - variables + 1;
    }
    if (writes) {
      for (int operand : statement.operands) {
        if (!is_tame(chooser.value(operand), draft.limits)) throw Wild{};
      }
    }
    if (op.has(kNoResult)) count = 0;
    for (size_t index = 0; index < count; ++index) {
      statement.results.push_back(chooser.new_variable());
      live[static_cast<size_t>(statement.results.back())] = scratch[variables + index];
    }
    if (!draft.bits_promised) note_rounding(draft, chooser, statement);
    note_company(draft, chooser, statement);
    return true;
  } catch (const std::exception&) {  // numbers that do not fit raise no c10::Error
    if (chooser.may_raise && draft.random.percent(50)) {
      draft.raised = true;
      // What raises only when it is computed must be asked for.
      const bool unread = draft.has(ProgramPattern::RefusedData) && draft.random.percent(50);
      if (!draft.program.patterns.empty() && !writes && !unread) {
        statement.results = {chooser.new_variable()};
        draft.raising = statement.results[0];
      }
      return true;
    }
    return false;
  }
}

}  // namespace tandem::fuzz
