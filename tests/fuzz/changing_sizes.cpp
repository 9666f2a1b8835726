#include "fuzz/changing_sizes.h"

#include "fuzz/interpret.h"
#include "fuzz/op.h"
#include "fuzz/patterns.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

namespace tandem::fuzz {
namespace {

/// Sizes and positions that programs draw themselves are smaller; what comes from a size that
/// changes is mostly not.
constexpr int64_t kLeastChanging = 7;
/// Positions so near to an end are counted from it.
constexpr int64_t kNearEnd = 2;

using Sizes = std::array<int64_t, kChangingSizes.size()>;

int64_t draw_size(Random& random) {
  if (random.percent(4)) return 0;
  if (random.percent(10)) return 1;
  return random.one_of<int64_t>({2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17});
}

Sizes draw_sizes(Random& random, const std::vector<Sizes>& before) {
  Sizes sizes{};
  for (int64_t& size : sizes) size = draw_size(random);
  // Equal by chance: what is compiled for them must not take them for one.
  if (random.percent(12)) sizes[1] = sizes[0];
  if (!before.empty() && random.percent(40)) sizes[0] = before.back()[0];
  if (!before.empty() && random.percent(30)) sizes[1] = before.back()[1];
  return sizes;
}

bool changes(const at::Tensor& tensor) {
  return std::ranges::any_of(tensor.sizes(), [](int64_t size) { return size >= kLeastChanging; });
}

/// Whether the expression of the op has the operand of this name.
bool mentions(std::string_view text, char name) {
  const auto is_word = [&](size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || (!is_word(at - 1) && text[at - 1] != '.');
    if (begins && !is_word(at + 1)) return true;
  }
  return false;
}

/// A variable before `end` that has this size, the operands of the statement first.
std::optional<SizeRead> read_of(const Chooser& chooser, const Statement& statement, size_t end,
                                int64_t size) {
  const auto in = [&](int variable) -> std::optional<SizeRead> {
    const at::Tensor& tensor = chooser.value(variable);
    if (!tensor.defined() || chooser.is_closed_over(variable)) return std::nullopt;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      if (tensor.size(dim) == size) return SizeRead{variable, dim};
    }
    return std::nullopt;
  };
  for (int operand : statement.operands) {
    if (const auto read = in(operand)) return read;
  }
  for (size_t variable = 0; variable < end; ++variable) {
    if (const auto read = in(static_cast<int>(variable))) return read;
  }
  return std::nullopt;
}

/// The number is a size of some variable, and changes with it.
bool ask_for(const Chooser& chooser, Statement& statement, size_t end, Place place, size_t index,
             int64_t size) {
  if (size < kLeastChanging) return true;
  const auto read = read_of(chooser, statement, end, size);
  if (!read) return false;
  statement.sized.push_back({.place = place, .index = index, .reads = {*read}});
  return true;
}

bool ask_for_all(const Chooser& chooser, Statement& statement, size_t end) {
  for (size_t index = 0; index < statement.sizes.size(); ++index) {
    if (!ask_for(chooser, statement, end, Place::Sizes, index, statement.sizes[index])) {
      return false;
    }
  }
  return true;
}

/// A position in dimension `dim` of x: near the beginning it stays, near the end it is counted from
/// there, otherwise it is the middle.
void ask_for_position(const Chooser& chooser, Statement& statement, Place place, int64_t dim,
                      int64_t& position) {
  const at::Tensor& x = chooser.value(statement.operands[0]);
  const int64_t size = x.size(dim);
  if (size < kLeastChanging || position <= kNearEnd) return;
  SizedNumber number{.place = place, .reads = {{statement.operands[0], dim}}};
  if (size - position <= kNearEnd) {
    number.offset = position - size;
  } else {
    number.divisor = 2;
    position = size / 2;
  }
  statement.sized.push_back(std::move(number));
}

/// Sizes for a view of x: its dimensions in this order or another, some of them joined; one may be
/// left to libtorch.
void draw_view_sizes(Chooser& chooser, Statement& statement) {
  Random& random = chooser.random;
  const int operand = statement.operands[0];
  const at::Tensor& x = chooser.value(operand);
  if (!changes(x)) return;
  std::vector<int64_t> dims(static_cast<size_t>(x.dim()));
  for (size_t dim = 0; dim < dims.size(); ++dim) dims[dim] = static_cast<int64_t>(dim);
  if (random.percent(25)) std::ranges::reverse(dims);
  statement.sizes.clear();
  for (size_t at = 0; at < dims.size();) {
    SizedNumber number{.place = Place::Sizes, .index = statement.sizes.size()};
    int64_t value = 1;
    do {
      const int64_t dim = dims[at++], size = x.size(dim);
      value *= size;
      if (size >= kLeastChanging) {
        number.reads.push_back({operand, dim});
      } else {
        number.scale *= size;
      }
    } while (at < dims.size() && random.percent(35));
    statement.sizes.push_back(value);
    if (!number.reads.empty()) statement.sized.push_back(std::move(number));
    if (random.percent(10)) statement.sizes.push_back(1);
  }
  if (random.percent(30)) {
    const auto count = static_cast<int64_t>(statement.sizes.size());
    const auto left = static_cast<size_t>(random.below(count));
    statement.sizes[left] = -1;
    std::erase_if(statement.sized, [&](const SizedNumber& number) { return number.index == left; });
  }
}

/// Of statements that the chooser has put before the one being chosen.
bool ask_before(const Chooser& chooser, Statement& statement) {
  const auto end = static_cast<size_t>(statement.results.front());
  if (statement.op->name == "row_numbers") return statement.j < kLeastChanging;
  for (const char* name : {"refit", "ramp", "indices", "mask"}) {
    if (statement.op->name != name) continue;
    statement.op = find_op(std::string(name) + ".sized");
    return ask_for_all(chooser, statement, end) &&
           ask_for(chooser, statement, end, Place::K, 0, statement.k);
  }
  return true;
}

using Draw = bool (*)(Chooser&, Statement&);

bool is_one_of(Draw pattern, std::initializer_list<Draw> all) {
  return std::ranges::find(all, pattern) != all.end();
}

bool runs_at(const ProgramSpec& program, const Sizes& sizes) {
  ProgramSpec other = program;
  other.sizes_of_calls = {sizes};
  const Interpreter interpreter(other, false);
  torch::manual_seed(100);
  const at::AutoGradMode as_it_was(at::GradMode::is_enabled());
  try {
    Tensors parameters = given(program.arguments, interpreter.make(at_sizes_of_call(other, 0)));
    for (const at::Tensor& tensor : given(program.closure, interpreter.make(program.closure))) {
      parameters.push_back(tensor);
    }
    interpreter.call(program.function, std::move(parameters));
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace

void leave_sizes_to_others(PatternSet& patterns) {
  using enum ProgramPattern;
  for (const ProgramPattern other :
       {EntryReuse, LeafViews, LazyViews, LargeMean, SetData, NewHistories, RefusedData,
        InferenceTensors, BackwardWrites, SpreadNumbers}) {
    if (patterns.contains(other)) patterns.erase(ChangingSizes);
  }
}

void draw_changing_sizes(Random& random, ProgramSpec& program) {
  std::set<int64_t> seen;
  for (const Leaf& leaf : program.arguments.leaves)
    seen.insert(leaf.sizes.begin(), leaf.sizes.end());
  // Ones are broadcast: mostly they stay.
  if (seen.size() > 1 && random.percent(85)) seen.erase(1);
  if (seen.empty()) {
    program.arguments.leaves[0].sizes = {3, 2};
    seen = {2, 3};
  }
  std::vector<int64_t> values(seen.begin(), seen.end());
  const size_t count = values.size() > 1 && random.percent(60) ? 2 : 1;
  for (size_t number = 0; number < count; ++number) {
    const int64_t value = random.one_of(values);
    std::erase(values, value);
    for (Leaf& leaf : program.arguments.leaves) {
      std::ranges::replace(leaf.sizes, value, kChangingSizes[number]);
    }
  }
  std::vector<Sizes>& calls = program.sizes_of_calls;
  const int64_t wanted = random.between(4, 6);
  while (static_cast<int64_t>(calls.size()) < wanted) {
    const bool again = static_cast<int64_t>(calls.size()) + 1 == wanted || random.percent(30);
    calls.push_back(again && !calls.empty() ? Sizes(random.one_of(calls))
                                            : draw_sizes(random, calls));
  }
}

void give_changing_size(Chooser& chooser, Origin& origin) {
  if (std::ranges::any_of(origin.given,
                          [&](int variable) { return changes(chooser.value(variable)); })) {
    return;
  }
  // Of the leaves, at least one.
  origin.given.push_back(*chooser.pick(changes));
}

bool ask_for_sizes(Chooser& chooser, Statement& statement) {
  if (!chooser.sizes_change) return true;
  // Reshaped in place it says its old sizes, as a closed-over tensor does.
  if (statement.op->name == "empty_filled") return false;
  for (Statement& before : chooser.before) {
    if (!ask_before(chooser, before)) return false;
  }
  const Draw pattern = statement.op->pattern;
  const std::string_view text = statement.op->text;
  if (is_one_of(pattern, {patterns::range})) {
    const int64_t dims = chooser.value(statement.operands[0]).dim();
    const int64_t dim = statement.i < 0 ? statement.i + dims : statement.i;
    const int64_t size = chooser.value(statement.operands[0]).size(dim);
    ask_for_position(chooser, statement, Place::J, dim, statement.j);
    if (statement.k <= statement.j || (statement.j == size / 2 && statement.k < size - kNearEnd)) {
      statement.k = size;
    }
    ask_for_position(chooser, statement, Place::K, dim, statement.k);
  } else if (is_one_of(pattern, {patterns::anything_dim, patterns::floating_dim,
                                 patterns::write_dim, patterns::write_first}) &&
             mentions(text, 'k')) {
    const int64_t dims = chooser.value(statement.operands[0]).dim();
    const int64_t dim = statement.i < 0 ? statement.i + dims : statement.i;
    ask_for_position(chooser, statement, Place::K, dim, statement.k);
  } else if (is_one_of(pattern, {patterns::other_sizes})) {
    draw_view_sizes(chooser, statement);
  } else if (is_one_of(pattern,
                       {patterns::wider_sizes, patterns::sizes_only, patterns::last_dim}) &&
             mentions(text, 's')) {
    return ask_for_all(chooser, statement, chooser.live.size());
  } else if (is_one_of(pattern, {patterns::strided})) {
    return statement.k < kLeastChanging;
  }
  return true;
}

int64_t free_size(Chooser& chooser, int64_t usual) {
  if (!chooser.sizes_change || !chooser.random.percent(60)) return usual;
  std::set<int64_t> changing;
  for (const at::Tensor& tensor : chooser.live) {
    if (!tensor.defined()) continue;
    for (const int64_t size : tensor.sizes()) {
      if (size >= kLeastChanging && size <= kChangingSizes.back()) changing.insert(size);
    }
  }
  if (changing.empty()) return usual;
  return chooser.random.one_of(std::vector<int64_t>(changing.begin(), changing.end()));
}

bool runs_at_other_sizes(const ProgramSpec& program, Random& random) {
  if (program.sizes_of_calls.empty() || random.percent(5)) return true;
  return runs_at(program, {16, 9}) && runs_at(program, {8, 17});
}

Origin at_sizes_of_call(const ProgramSpec& program, int number) {
  Origin arguments = program.arguments;
  if (program.sizes_of_calls.empty()) return arguments;
  const Sizes& sizes = program.sizes_of_calls.at(static_cast<size_t>(number));
  for (Leaf& leaf : arguments.leaves) {
    for (int64_t& size : leaf.sizes) {
      const auto* const changing = std::ranges::find(kChangingSizes, size);
      if (changing != kChangingSizes.end()) {
        size = sizes[static_cast<size_t>(changing - kChangingSizes.begin())];
      }
    }
  }
  return arguments;
}

std::string size_text(const ProgramSpec& program, int64_t size) {
  const auto* const changing = std::ranges::find(kChangingSizes, size);
  if (program.sizes_of_calls.empty() || changing == kChangingSizes.end()) {
    return std::to_string(size);
  }
  return "sizes[" + std::to_string(changing - kChangingSizes.begin()) + "]";
}

}  // namespace tandem::fuzz
