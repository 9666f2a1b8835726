#include "fuzz/origins.h"

#include "fuzz/changing_sizes.h"
#include "fuzz/chooser.h"
#include "fuzz/execute.h"
#include "fuzz/interpret.h"

namespace tandem::fuzz {
namespace {

std::vector<int64_t> some_sizes(Draft& draft) {
  return draft.random.one_of<std::vector<int64_t>>(
      {{2, 3}, {3}, {2, 2}, {4}, {}, {1, 3}, {2, 1, 2}, {3, 2}, {6}, {1}, {4, 2}});
}

/// Leaves that are parts of one flat tensor, as some optimizers keep parameters.
void make_flat_origin(Draft& draft, Origin& origin, int64_t parts) {
  Leaf flat;
  flat.dtype = draft.dtype;
  int64_t end = 0;
  for (int64_t index = 0; index < parts; ++index) {
    Statement part;
    part.op = find_op("leaf.part");
    part.operands = {0};
    part.sizes = some_sizes(draft);
    part.i = end;
    part.j = c10::multiply_integers(part.sizes);
    part.results = {static_cast<int>(index) + 1};
    end += part.j;
    origin.statements.push_back(part);
    origin.given.push_back(part.results[0]);
  }
  flat.sizes = {end};
  origin.leaves = {flat};
  if (draft.random.percent(15)) origin.given.push_back(0);
}

/// Parts of one tensor, mostly beside each other. Most may be written.
void make_parts_origin(Draft& draft, Origin& origin) {
  const std::vector<int64_t> row = draft.random.one_of<std::vector<int64_t>>({{}, {2}, {3}});
  const int64_t parts = draft.random.between(2, 3), height = draft.random.between(1, 2);
  Leaf whole;
  whole.sizes = {parts * height};
  whole.sizes.insert(whole.sizes.end(), row.begin(), row.end());
  whole.dtype = draft.dtype;
  whole.requires_grad = draft.random.percent(60);
  origin.leaves = {whole};
  const auto add = [&](const char* op, int operand) -> Statement& {
    Statement& statement = origin.statements.emplace_back();
    statement.op = find_op(op);
    statement.operands = {operand};
    statement.results = {static_cast<int>(origin.statements.size())};
    return statement;
  };
  add("mul.Scalar", 0).c = 0.5;
  for (int64_t part = 0; part < parts; ++part) {
    Statement& narrow = add("narrow", 1);
    narrow.j = draft.random.percent(85) ? part * height : 0;
    narrow.k = narrow.j + height;
    origin.given.push_back(narrow.results[0]);
  }
  // No call can be compiled that writes such memory: refusals have to do with how arguments lie.
  if (draft.random.percent(40)) {
    add("as_integers", origin.given.back()).dtype =
        draft.dtype == at::kDouble ? at::kLong : at::kInt;
    origin.given.push_back(origin.statements.back().results[0]);
  }
  if (draft.random.percent(40)) {
    Leaf other = whole;
    other.sizes[0] = height;
    other.requires_grad = !whole.requires_grad || draft.random.percent(50);
    // Leaves come first.
    for (Statement& statement : origin.statements) {
      for (int& operand : statement.operands) operand += operand > 0;
      for (int& result : statement.results) ++result;
    }
    for (int& variable : origin.given) ++variable;
    origin.leaves.push_back(other);
    origin.given.push_back(1);
  }
}

/// Conjugated and negated views of complex leaves.
void make_lazy_origin(Draft& draft, Origin& origin, int64_t leaves) {
  const std::vector<int64_t> sizes = some_sizes(draft);
  for (int64_t index = 0; index < leaves; ++index) {
    Leaf& leaf = origin.leaves.emplace_back();
    leaf.sizes = draft.random.percent(70) ? sizes : some_sizes(draft);
    leaf.dtype = draft.random.percent(25)    ? draft.dtype
                 : draft.dtype == at::kFloat ? at::kComplexFloat
                                             : at::kComplexDouble;
    leaf.requires_grad = draft.random.percent(60);
  }
  const auto add = [&](const char* op, int operand) {
    Statement& statement = origin.statements.emplace_back();
    statement.op = find_op(op);
    statement.operands = {operand};
    statement.results = {static_cast<int>(origin.leaves.size() + origin.statements.size()) - 1};
    statement.c = 0.5;
    return statement.results[0];
  };
  for (int leaf = 0; leaf < static_cast<int>(leaves); ++leaf) {
    const bool complex = at::isComplexType(origin.leaves[static_cast<size_t>(leaf)].dtype);
    int variable = leaf;
    if (draft.random.percent(60)) variable = add("mul.Scalar", variable);  // then it may be written
    if (draft.random.percent(30)) origin.given.push_back(variable);
    const char* view =
        complex ? draft.random.one_of({"conj", "conj", "imag.conj", "alias"}) : "neg_view";
    variable = add(view, variable);
    if (draft.random.percent(20)) variable = add("alias", variable);
    origin.given.push_back(variable);
  }
}

/// Numbers in tensors that do not decide the dtype of what is computed with them.
void give_numbers(Draft& draft, Chooser& chooser, Origin& origin) {
  const int64_t count = draft.random.between(1, 2);
  for (int64_t index = 0; index < count; ++index) {
    Statement statement;
    statement.op =
        find_op(draft.random.one_of({"wrapped", "wrapped", "wrapped.int", "wrapped.bool"}));
    if (!statement.op->pattern(chooser, statement) || !execute(draft, chooser, statement)) continue;
    origin.given.push_back(statement.results[0]);
    origin.statements.push_back(statement);
  }
}

void make_origin(Draft& draft, Origin& origin, int64_t leaves) {
  if (draft.has(ProgramPattern::LazyViews)) {
    make_lazy_origin(draft, origin, leaves);
    return;
  }
  if (draft.has(ProgramPattern::LeafViews) && draft.random.percent(80)) {
    make_flat_origin(draft, origin, leaves);
    return;
  }
  const std::vector<int64_t> common = some_sizes(draft);
  for (int64_t index = 0; index < leaves; ++index) {
    Leaf leaf;
    leaf.sizes = draft.random.percent(50) ? common : some_sizes(draft);
    leaf.dtype = draft.dtype;
    if (draft.random.percent(8)) {
      leaf.dtype = draft.random.one_of(
          {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kBool, at::kComplexDouble});
    }
    leaf.requires_grad = (at::isFloatingType(leaf.dtype) || at::isComplexType(leaf.dtype)) &&
                         draft.random.percent(75);
    origin.leaves.push_back(leaf);
  }
  if (draft.has(ProgramPattern::ShortScalars)) {
    Leaf& wide = origin.leaves[0];
    wide.dtype = draft.random.one_of({at::kHalf, at::kBFloat16});
    wide.requires_grad = draft.random.percent(75);
    Leaf& scalar = origin.leaves.emplace_back();
    scalar.dtype =
        draft.random.one_of({at::kHalf, at::kBFloat16, at::kFloat, at::kFloat, at::kDouble,
                             at::kDouble, at::kLong, at::kByte, at::kBool, at::kComplexFloat});
    scalar.requires_grad =
        !at::isIntegralType(scalar.dtype, /*includeBool=*/true) && draft.random.percent(40);
  }
  if (draft.has(ProgramPattern::Empties) && draft.random.percent(50)) {
    origin.leaves.back().sizes =
        draft.random.one_of<std::vector<int64_t>>({{0}, {0, 3}, {2, 0}, {1, 0, 2}});
  }
  if (draft.has(ProgramPattern::LargeMean)) {
    origin.leaves[0].fill = Fill::LargeMean;
    origin.leaves[0].dtype = draft.dtype;
    origin.leaves[0].sizes = {2, draft.random.between(3, 40)};
  }
  if (draft.has(ProgramPattern::SpecialValues)) {
    for (Leaf& leaf : origin.leaves) {
      if (draft.random.percent(70)) leaf.fill = Fill::Special;
    }
  }
  if (draft.has(ProgramPattern::SpreadNumbers) && &origin == &draft.program.arguments) {
    origin.leaves[0].dtype = draft.dtype;
    origin.leaves[0].sizes = {8, draft.random.between(16, 24)};
  }
  if (draft.has(ProgramPattern::InferenceTensors)) {
    for (Leaf& leaf : origin.leaves) {
      leaf.inference = draft.random.percent(60);
      leaf.requires_grad = leaf.requires_grad && !leaf.inference;
    }
  }
  const bool sizes_change =
      draft.has(ProgramPattern::ChangingSizes) && &origin == &draft.program.arguments;
  if (sizes_change) draw_changing_sizes(draft.random, draft.program);
  const Interpreter interpreter(draft.program, false);
  Tensors live = interpreter.make(origin);
  Chooser chooser(draft.random, live);
  chooser.sizes_change = sizes_change;
  const int64_t statements = draft.random.between(0, 3);
  static const std::vector<const Op*> outside = [] {
    std::vector<const Op*> ops;
    for (const char* name : {"mul.Scalar", "add.Scalar", "clone", "select", "slice", "t", "view",
                             "narrow", "transpose", "expand", "unsqueeze", "detach", "mul.Scalar",
                             "diagonal", "slice", "narrow", "slice.step", "squeeze"}) {
      ops.push_back(find_op(name));
    }
    return ops;
  }();
  for (int64_t index = 0; index < statements; ++index) {
    Statement statement;
    statement.op = draft.random.one_of(outside);
    if (!statement.op->pattern(chooser, statement)) continue;
    if (!ask_for_sizes(chooser, statement) || !execute(draft, chooser, statement)) continue;
    origin.statements.push_back(statement);
  }
  if (draft.has(ProgramPattern::ShortScalars)) {
    origin.given = {0, static_cast<int>(origin.leaves.size()) - 1};
  }
  if (draft.has(ProgramPattern::WrappedNumbers)) give_numbers(draft, chooser, origin);
  const int64_t count = draft.random.between(1, 3);
  for (int64_t index = 0; index < count; ++index) {
    if (index > 0 && draft.random.percent(12)) {
      origin.given.push_back(origin.given.back());
    } else {
      origin.given.push_back(*chooser.pick([](const at::Tensor&) { return true; }));
    }
  }
  if (sizes_change) give_changing_size(chooser, origin);
}

}  // namespace

void make_origins(Draft& draft) {
  if (draft.has(ProgramPattern::EntryReuse) && draft.random.percent(70)) {
    make_parts_origin(draft, draft.program.arguments);
  } else {
    make_origin(draft, draft.program.arguments, draft.random.between(1, 3));
  }
  const bool closes_over = draft.random.percent(35);
  if (draft.has(ProgramPattern::NewHistories)) {
    make_parts_origin(draft, draft.program.closure);
  } else if (closes_over || draft.has(ProgramPattern::SetData)) {
    make_origin(draft, draft.program.closure, draft.random.between(1, 2));
  }
}

void give_new_data(Draft& draft) {
  // What views of a leaf show after set_data() is libtorch's own riddle.
  for (Origin* origin : {&draft.program.arguments, &draft.program.closure}) {
    origin->statements.clear();
    origin->given.clear();
    for (size_t leaf = 0; leaf < origin->leaves.size(); ++leaf) {
      origin->given.push_back(static_cast<int>(leaf));
    }
  }
  const int64_t count = draft.random.between(1, 2);
  for (int64_t index = 0; index < count; ++index) {
    NewData& data = draft.program.new_data.emplace_back();
    data.closed_over = draft.random.percent(60);
    data.after_call = !data.closed_over || draft.random.percent(50);
    // After the call, what a formula makes of other sizes is libtorch's secret.
    data.wider = !data.after_call && draft.random.percent(50);
    const Origin& origin = data.closed_over ? draft.program.closure : draft.program.arguments;
    const auto leaves = static_cast<int64_t>(origin.leaves.size());
    data.leaf = static_cast<size_t>(draft.random.below(leaves));
  }
}

}  // namespace tandem::fuzz
