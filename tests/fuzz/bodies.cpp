#include "fuzz/bodies.h"

#include "fuzz/changing_sizes.h"
#include "fuzz/chooser.h"
#include "fuzz/execute.h"
#include "fuzz/interpret.h"
#include "fuzz/op_rules.h"

#include <optional>
#include <utility>

namespace tandem::fuzz {
namespace {

constexpr int kAttempts = 12;

/// Inference regions inside the function: views that leave them do not remember it.
constexpr bool kInferenceInside = false;

const Op* draw_op(Draft& draft) {
  if (!draft.pattern_ops.empty() && draft.random.percent(30)) {
    const Op* op = draft.random.one_of(draft.pattern_ops);
    // A compiled function inside names no host state, and what it is given is mostly no input of
    // the call, as what a backward writes must be. Behind a result that gets no gradient back
    // eager's engine goes on, on zeros, where a compiled call takes it for unused.
    const bool is_out_of_place =
        (draft.in_inner && (op->only_in == ProgramPattern::HostState ||
                            op->only_in == ProgramPattern::BackwardWrites)) ||
        (draft.in_further && op->only_in == ProgramPattern::UndefinedTangents);
    if (!is_out_of_place) return op;
  }
  int64_t total = 0;
  for (int64_t weight : draft.weights) total += weight;
  int64_t at = draft.random.below(total);
  size_t kind = 0;
  while (at >= draft.weights[kind]) at -= draft.weights[kind++];
  return draft.random.one_of(ops_by_kind()[kind]);
}

/// The result goes to a variable that has a value of the same kind.
void rebind(Draft& draft, Chooser& chooser, Statement& statement) {
  const at::Tensor result = chooser.value(statement.results[0]);
  if (!result.defined()) return;
  const int last = statement.results[0];
  for (int variable = 0; variable < last; ++variable) {
    const at::Tensor& there = chooser.value(variable);
    if (there.defined() && there.sizes() == result.sizes() &&
        there.scalar_type() == result.scalar_type() && draft.random.percent(50) &&
        !draft.closed_over.contains(variable)) {
      statement.results[0] = variable;
      chooser.live[static_cast<size_t>(variable)] = result;
      chooser.live.pop_back();
      return;
    }
  }
}

/// One more op at the end of the list.
void add_op(Draft& draft, Chooser& chooser, std::vector<Statement>& statements) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Statement statement;
    statement.op = draw_op(draft);
    const bool gaps = draft.seen_gaps, rounding = draft.seen_rounding;
    chooser.before.clear();
    const size_t variables = chooser.live.size();
    const auto forget = [&] {
      draft.seen_gaps = gaps;
      draft.seen_rounding = rounding;
      chooser.live.resize(variables);
    };
    if (!may_draw(draft, *statement.op) || !statement.op->pattern(chooser, statement) ||
        !ask_for_sizes(chooser, statement)) {
      forget();
      continue;
    }
    if (!execute(draft, chooser, statement)) {
      forget();
      continue;
    }
    statements.insert(statements.end(), chooser.before.begin(), chooser.before.end());
    // A loop is only one if variables are assigned again.
    if (draft.in_loop && statement.results.size() == 1 && draft.random.percent(60)) {
      rebind(draft, chooser, statement);
    }
    statements.push_back(statement);
    return;
  }
}

/// How often the body can run: tried out.
int64_t count_turns(Draft& draft, Chooser& chooser, const std::vector<Statement>& body) {
  if (draft.raised) return 1;
  const Interpreter interpreter(draft.program, false);
  const int64_t wanted = draft.random.between(2, 3);
  const test::WideRun::Scope scope(draft.wide_run);
  for (int64_t turn = 1; turn < wanted; ++turn) {
    try {
      interpreter.run(body, chooser.live);
    } catch (const std::exception&) {
      throw Wild{};
    }
    for (const at::Tensor& tensor : chooser.live) {
      if (!is_tame(tensor, draft.limits)) throw Wild{};
    }
  }
  return wanted;
}

void note_parameters(Chooser& chooser) {
  bool all_leaves = true;
  for (const at::Tensor& tensor : chooser.live) {
    if (tensor.defined()) chooser.inputs.insert(tensor.unsafeGetTensorImpl());
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    all_leaves = all_leaves && tensor.is_leaf();
    chooser.parameters.insert(tensor.unsafeGetTensorImpl());
  }
  chooser.parameters_are_related = !all_leaves && chooser.parameters.size() > 1;
}

/// A gradient of one result is one thing if the other is a result, too, and another if not.
void return_both(Draft& draft, Function& function) {
  for (const Statement& statement : function.statements) {
    const bool two =
        statement.op != nullptr && (statement.op->only_in == ProgramPattern::MixedBackward ||
                                    statement.op->only_in == ProgramPattern::UndefinedTangents);
    if (!two || !draft.random.percent(50)) {
      continue;
    }
    function.results.insert(function.results.end(), statement.results.begin(),
                            statement.results.end());
  }
}

void choose_results(Draft& draft, Chooser& chooser, Function& function) {
  const int64_t results = draft.random.between(1, 3);
  for (int64_t index = 0; index < results; ++index) {
    const bool any = draft.random.percent(30);
    auto result =
        chooser.pick([&](const at::Tensor& tensor) { return any || tensor.requires_grad(); });
    if (!result) result = chooser.pick([](const at::Tensor&) { return true; });
    if (result) function.results.push_back(*result);
  }
  return_both(draft, function);
  if (draft.raising) function.results.push_back(*draft.raising);
  if (draft.random.percent(6) && !function.results.empty()) {
    function.results.push_back(function.results.front());
  }
}

void make_block(Draft& draft, Chooser& chooser, std::vector<Statement>& statements, int64_t size,
                int depth);

void make_inner_function(Draft& draft, Function& function, Tensors& live, int64_t size) {
  function.parameters = static_cast<int>(live.size());
  Chooser chooser(draft.random, live);
  chooser.closed_over = draft.closed_over;
  chooser.may_raise = draft.may_raise;
  chooser.sizes_change = draft.has(ProgramPattern::ChangingSizes);
  note_parameters(chooser);
  make_block(draft, chooser, function.statements, size, 1);
  choose_results(draft, chooser, function);
  function.variables = static_cast<int>(live.size());
}

/// A function of its own, compiled by itself in the compiled form, and a call of it.
bool make_call(Draft& draft, Chooser& chooser, Statement& statement, int64_t size) {
  if (!draft.program.inner.empty()) return false;
  const int64_t count = draft.random.between(1, 2);
  Tensors live;
  for (int64_t index = 0; index < count; ++index) {
    const auto some = chooser.pick(
        [](const at::Tensor& tensor) { return tensor.is_floating_point() && tensor.numel() > 0; });
    if (!some) return false;
    statement.operands.push_back(*some);
    live.push_back(chooser.value(*some));
  }
  Function function;
  // What is closed over outside is so inside, whatever it is called there.
  std::set<int> closed_inside;
  for (size_t index = 0; index < statement.operands.size(); ++index) {
    if (chooser.is_closed_over(statement.operands[index])) {
      closed_inside.insert(static_cast<int>(index));
    }
  }
  const std::set<int> closed_over = std::exchange(draft.closed_over, closed_inside);
  draft.in_inner = true;
  make_inner_function(draft, function, live, size);
  draft.in_inner = false;
  draft.closed_over = closed_over;
  if (draft.raised) throw Wild{};
  draft.program.inner.push_back(function);
  statement.function = draft.program.inner.size() - 1;
  for (int result : function.results) {
    statement.results.push_back(chooser.new_variable());
    chooser.live.back() = live[static_cast<size_t>(result)];
  }
  return true;
}

void make_nested(Draft& draft, Chooser& chooser, std::vector<Statement>& statements, int64_t size,
                 int depth) {
  Statement statement;
  statement.kind =
      draft.random.one_of({StatementKind::NoGrad, StatementKind::NoGrad, StatementKind::EnableGrad,
                           StatementKind::Repeat, StatementKind::Repeat, StatementKind::Call});
  if (kInferenceInside && draft.random.percent(4)) statement.kind = StatementKind::Inference;
  // Without effect in inference mode; a trace has replaced that by no_grad.
  if (draft.program.around == Around::Inference && statement.kind == StatementKind::EnableGrad) {
    statement.kind = StatementKind::NoGrad;
  }
  switch (statement.kind) {
    case StatementKind::NoGrad: {
      const at::NoGradGuard mode;
      make_block(draft, chooser, statement.body, size, depth + 1);
      break;
    }
    case StatementKind::EnableGrad: {
      const at::AutoGradMode mode(true);
      const bool before = std::exchange(draft.in_enable_grad, true);
      make_block(draft, chooser, statement.body, size, depth + 1);
      draft.in_enable_grad = before;
      break;
    }
    case StatementKind::Inference: {
      const c10::InferenceMode mode;
      make_block(draft, chooser, statement.body, size, depth + 1);
      break;
    }
    case StatementKind::Repeat: {
      const bool before = std::exchange(draft.in_loop, true);
      make_block(draft, chooser, statement.body, size, depth + 1);
      draft.in_loop = before;
      statement.count = count_turns(draft, chooser, statement.body);
      break;
    }
    case StatementKind::Call:
      if (!make_call(draft, chooser, statement, size)) return;
      statements.push_back(statement);
      return;
    case StatementKind::Op:
      return;
  }
  if (!statement.body.empty()) statements.push_back(statement);
}

void make_block(Draft& draft, Chooser& chooser, std::vector<Statement>& statements, int64_t size,
                int depth) {
  while (size > 0 && !draft.raised) {
    if (depth < 2 && draft.random.percent(9)) {
      const int64_t inside = draft.random.between(1, 3);
      size -= inside;
      make_nested(draft, chooser, statements, inside, depth);
    } else {
      add_op(draft, chooser, statements);
      --size;
    }
  }
}

}  // namespace

void make_function(Draft& draft, Function& function, Tensors& live, int64_t size) {
  std::optional<at::NoGradGuard> no_grad;
  std::optional<c10::InferenceMode> inference;
  if (draft.program.around == Around::NoGrad) no_grad.emplace();
  if (draft.program.around == Around::Inference) inference.emplace();
  function.parameters = static_cast<int>(live.size());
  Chooser chooser(draft.random, live);
  chooser.closed_over = draft.closed_over;
  chooser.may_raise = draft.may_raise;
  chooser.sizes_change = draft.has(ProgramPattern::ChangingSizes);
  note_parameters(chooser);
  make_block(draft, chooser, function.statements, size, 0);
  choose_results(draft, chooser, function);
  function.variables = static_cast<int>(live.size());
}

void make_further(Draft& draft, size_t arguments, const Tensors& after) {
  if (draft.raised || !draft.random.percent(60)) return;
  Tensors live(after.begin(), after.begin() + static_cast<int64_t>(arguments));
  for (int result : draft.program.function.results) {
    live.push_back(after[static_cast<size_t>(result)]);
  }
  draft.may_raise = false;
  draft.in_further = true;
  draft.weights[Autograd] = 0;
  draft.weights[Draw] = 0;
  draft.weights[Write] += 2;
  Function& function = draft.program.further;
  function.parameters = static_cast<int>(live.size());
  Chooser chooser(draft.random, live);
  chooser.sizes_change = draft.has(ProgramPattern::ChangingSizes);
  const int64_t size = draft.random.between(1, 4);
  for (int64_t index = 0; index < size; ++index) add_op(draft, chooser, function.statements);
  for (size_t index = static_cast<size_t>(function.parameters); index < live.size(); ++index) {
    if (live[index].defined() && live[index].requires_grad()) {
      function.results.push_back(static_cast<int>(index));
    }
  }
  function.variables = static_cast<int>(live.size());
}

}  // namespace tandem::fuzz
