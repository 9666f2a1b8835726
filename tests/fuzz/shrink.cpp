#include "fuzz/shrink.h"

#include <algorithm>
#include <set>
#include <vector>

namespace tandem::fuzz {
namespace {

using Statements = std::vector<Statement>;

/// Calls `visit` with every list of statements; it may change the list.
template <class Visit>
void for_each_list(Statements& statements, const Visit& visit) {
  visit(statements);
  for (Statement& statement : statements) for_each_list(statement.body, visit);
}

void rename(Statements& statements, const std::function<int(int)>& name) {
  for_each_list(statements, [&](Statements& list) {
    for (Statement& statement : list) {
      for (int& operand : statement.operands) operand = name(operand);
      for (int& result : statement.results) result = name(result);
      rename_asked(statement, name);
    }
  });
}

bool uses(const Statements& statements, int variable) {
  for (const Statement& statement : statements) {
    if (std::ranges::find(statement.operands, variable) != statement.operands.end() ||
        std::ranges::find(statement.results, variable) != statement.results.end() ||
        std::ranges::count(variables_asked(statement), variable) > 0 ||
        uses(statement.body, variable)) {
      return true;
    }
  }
  return false;
}

/// Drops whatever reads a variable that nothing defines any more.
void drop_readers(Statements& statements, std::set<int>& defined) {
  Statements kept;
  for (Statement& statement : statements) {
    const auto is_defined = [&](int variable) { return defined.contains(variable); };
    if (!std::ranges::all_of(statement.operands, is_defined) ||
        !std::ranges::all_of(variables_asked(statement), is_defined)) {
      continue;
    }
    drop_readers(statement.body, defined);
    const bool block = statement.kind != StatementKind::Op && statement.kind != StatementKind::Call;
    if (block && statement.body.empty()) continue;
    defined.insert(statement.results.begin(), statement.results.end());
    kept.push_back(statement);
  }
  statements = std::move(kept);
}

void repair(Statements& statements, std::vector<int>& results, int parameters) {
  std::set<int> defined;
  for (int variable = 0; variable < parameters; ++variable) defined.insert(variable);
  drop_readers(statements, defined);
  std::erase_if(results, [&](int result) { return !defined.contains(result); });
}

/// One way to make a program smaller, given a number; false when there is no such number.
using Step = bool (*)(ProgramSpec&, size_t);

struct Part {
  Statements* statements;
  std::vector<int>* results;
  int parameters;
};

std::vector<Part> parts(ProgramSpec& program) {
  std::vector<Part> list;
  const auto add = [&](Function& function) {
    list.push_back({&function.statements, &function.results, function.parameters});
  };
  const auto add_origin = [&](Origin& origin) {
    list.push_back({&origin.statements, &origin.given, static_cast<int>(origin.leaves.size())});
  };
  add(program.further);
  add(program.function);
  for (Function& function : program.inner) add(function);
  add_origin(program.arguments);
  add_origin(program.closure);
  return list;
}

void drop_from_parts(ProgramSpec& program) {
  const size_t arguments = program.arguments.given.size(), closed = program.closure.given.size();
  const size_t results = program.function.results.size();
  for (const Part& part : parts(program)) repair(*part.statements, *part.results, part.parameters);
  // Parameters and results have fixed places: a program that lost one is not a smaller one.
  if (program.arguments.given.size() != arguments || program.closure.given.size() != closed) {
    program.function.results.clear();
  }
  if (program.function.results.size() != results) program.further = {};
}

/// The place of statement `number` of the whole program, counted from the end of each part.
bool with_statement(ProgramSpec& program, size_t number,
                    const std::function<void(Part&, Statements&, size_t)>& act) {
  for (Part part : parts(program)) {
    bool found = false;
    std::vector<Statements*> lists;
    for_each_list(*part.statements, [&](Statements& list) { lists.push_back(&list); });
    for (Statements* list : lists) {
      if (number < list->size()) {
        act(part, *list, list->size() - 1 - number);
        found = true;
        break;
      }
      number -= list->size();
    }
    if (found) return true;
  }
  return false;
}

bool drop_statement(ProgramSpec& program, size_t number) {
  const bool found = with_statement(program, number, [](Part&, Statements& list, size_t at) {
    list.erase(list.begin() + static_cast<int64_t>(at));
  });
  if (found) drop_from_parts(program);
  return found;
}

/// Its first operand takes the place of its result.
bool bypass_statement(ProgramSpec& program, size_t number) {
  return with_statement(program, number, [](Part& part, Statements& list, size_t at) {
    const Statement statement = list[at];
    if (statement.kind != StatementKind::Op || statement.operands.empty()) return;
    list.erase(list.begin() + static_cast<int64_t>(at));
    const auto name = [&](int variable) {
      return std::ranges::find(statement.results, variable) != statement.results.end()
                 ? statement.operands[0]
                 : variable;
    };
    rename(*part.statements, name);
    for (int& result : *part.results) result = name(result);
  });
}

bool unwrap_block(ProgramSpec& program, size_t number) {
  return with_statement(program, number, [](Part&, Statements& list, size_t at) {
    if (list[at].body.empty()) return;
    const Statements body = list[at].body;
    list.erase(list.begin() + static_cast<int64_t>(at));
    list.insert(list.begin() + static_cast<int64_t>(at), body.begin(), body.end());
  });
}

bool shorten_loop(ProgramSpec& program, size_t number) {
  return with_statement(program, number, [](Part&, Statements& list, size_t at) {
    if (list[at].kind == StatementKind::Repeat && list[at].count > 1) --list[at].count;
  });
}

bool own_generator_off(ProgramSpec& program, size_t number) {
  return with_statement(program, number,
                        [](Part&, Statements& list, size_t at) { list[at].own_generator = false; });
}

bool drop_result(ProgramSpec& program, size_t number) {
  Function& function = program.function;
  if (number >= function.results.size() || function.results.size() == 1) return false;
  function.results.erase(function.results.begin() + static_cast<int64_t>(number));
  program.further = {};
  return true;
}

bool drop_argument(ProgramSpec& program, size_t number) {
  const size_t arguments = program.arguments.given.size();
  if (number >= arguments + program.closure.given.size()) return false;
  const int variable = static_cast<int>(number);
  if (uses(program.function.statements, variable)) return true;
  std::vector<int>& results = program.function.results;
  if (std::ranges::find(results, variable) != results.end()) return true;
  if (number < arguments) {
    if (arguments == 1) return true;
    program.arguments.given.erase(program.arguments.given.begin() + variable);
    if (program.further.variables > 0) {
      if (uses(program.further.statements, variable)) return true;
      const auto name = [&](int other) { return other > variable ? other - 1 : other; };
      rename(program.further.statements, name);
      for (int& result : program.further.results) result = name(result);
      --program.further.parameters;
      --program.further.variables;
    }
  } else {
    program.closure.given.erase(program.closure.given.begin() +
                                static_cast<int64_t>(number - arguments));
  }
  const auto name = [&](int other) { return other > variable ? other - 1 : other; };
  rename(program.function.statements, name);
  for (int& result : results) result = name(result);
  --program.function.parameters;
  --program.function.variables;
  return true;
}

bool drop_leaf(ProgramSpec& program, size_t number) {
  for (Origin* origin : {&program.arguments, &program.closure}) {
    if (number >= origin->leaves.size()) {
      number -= origin->leaves.size();
      continue;
    }
    const int variable = static_cast<int>(number);
    if (uses(origin->statements, variable) ||
        std::ranges::find(origin->given, variable) != origin->given.end()) {
      return true;
    }
    const bool closed_over = origin == &program.closure;
    std::vector<NewData>& new_data = program.new_data;
    if (std::ranges::any_of(new_data, [&](const NewData& data) {
          return data.closed_over == closed_over && data.leaf == number;
        })) {
      return true;
    }
    for (NewData& data : new_data) {
      if (data.closed_over == closed_over && data.leaf > number) --data.leaf;
    }
    origin->leaves.erase(origin->leaves.begin() + variable);
    const auto name = [&](int other) { return other > variable ? other - 1 : other; };
    rename(origin->statements, name);
    for (int& given : origin->given) given = name(given);
    return true;
  }
  return false;
}

bool drop_new_data(ProgramSpec& program, size_t number) {
  if (number >= program.new_data.size()) return false;
  program.new_data.erase(program.new_data.begin() + static_cast<int64_t>(number));
  return true;
}

bool drop_sizes_of_call(ProgramSpec& program, size_t number) {
  if (number >= program.sizes_of_calls.size() || program.sizes_of_calls.size() == 1) return false;
  program.sizes_of_calls.erase(program.sizes_of_calls.begin() + static_cast<int64_t>(number));
  return true;
}

/// One of the sizes is the same in all calls; then it does not change at all.
bool settle_size(ProgramSpec& program, size_t number) {
  auto& calls = program.sizes_of_calls;
  if (calls.empty() || number >= kChangingSizes.size()) return false;
  const int64_t first = calls[0][number];
  const bool settled =
      std::ranges::all_of(calls, [&](const auto& sizes) { return sizes[number] == first; });
  for (auto& sizes : calls) sizes[number] = first;
  if (!settled) return true;
  for (Leaf& leaf : program.arguments.leaves) {
    std::ranges::replace(leaf.sizes, kChangingSizes[number], first);
  }
  return true;
}

/// A number that was asked for is what it was when the program was made.
bool settle_number(ProgramSpec& program, size_t number) {
  return with_statement(program, number,
                        [](Part&, Statements& list, size_t at) { list[at].sized.clear(); });
}

bool simplify_leaf(ProgramSpec& program, size_t number) {
  for (Origin* origin : {&program.arguments, &program.closure}) {
    if (number < origin->leaves.size()) {
      origin->leaves[number].requires_grad = false;
      origin->leaves[number].fill = Fill::Normal;
      origin->leaves[number].inference = false;
      return true;
    }
    number -= origin->leaves.size();
  }
  return false;
}

/// One dimension of one leaf becomes one, or is dropped.
bool shrink_leaf(ProgramSpec& program, size_t number) {
  for (Origin* origin : {&program.arguments, &program.closure}) {
    for (Leaf& leaf : origin->leaves) {
      if (number < leaf.sizes.size()) {
        if (leaf.sizes[number] == 1) {
          leaf.sizes.erase(leaf.sizes.begin() + static_cast<int64_t>(number));
        } else {
          --leaf.sizes[number];
        }
        return true;
      }
      number -= leaf.sizes.size();
    }
  }
  return false;
}

bool simplify_modes(ProgramSpec& program, size_t number) {
  switch (number) {
    case 0:
      program.further = {};
      return true;
    case 1:
      program.second_order = false;
      return true;
    case 2:
      program.around = Around::Nothing;
      return true;
    case 3:
      program.mode = CallMode::InGraph;
      return true;
    case 4:
      program.variation = Variation::None;
      return true;
    case 5:
      program.host_changes = false;
      return true;
    case 6:
      program.new_histories = false;
      return true;
    case 7:  // fails nowhere if it is still called
      program.inner.clear();
      return true;
    default:
      return false;
  }
}

}  // namespace

ProgramSpec shrink(const ProgramSpec& program,
                   const std::function<bool(const ProgramSpec&)>& still_fails) {
  constexpr Step kSteps[] = {simplify_modes, drop_statement,     bypass_statement, unwrap_block,
                             shorten_loop,   own_generator_off,  drop_result,      drop_argument,
                             drop_new_data,  drop_sizes_of_call, settle_size,      settle_number,
                             drop_leaf,      simplify_leaf,      shrink_leaf};
  ProgramSpec best = program;
  const auto key = [](const ProgramSpec& spec) { return print(spec); };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Step step : kSteps) {
      for (size_t number = 0;;) {
        ProgramSpec candidate = best;
        if (!step(candidate, number)) break;
        const bool changed = key(candidate) != key(best);
        if (changed && !candidate.function.results.empty() && still_fails(candidate)) {
          best = candidate;  // the same number now means the next one
          smaller = true;
        } else {
          ++number;
        }
      }
    }
  }
  return best;
}

}  // namespace tandem::fuzz
