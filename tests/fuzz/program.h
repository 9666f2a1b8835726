#pragma once

#include "fuzz/program_patterns.h"
#include "fuzz/sized_numbers.h"

#include <ATen/core/Generator.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Random programs as data: the same program can be run eagerly, compiled, shrunk and printed.
namespace tandem::fuzz {

using Tensors = std::vector<at::Tensor>;

struct Op;

enum class StatementKind { Op, NoGrad, EnableGrad, Inference, Repeat, Call };

/// One statement. Variables are numbered; a statement may assign a variable again.
struct Statement {
  StatementKind kind = StatementKind::Op;
  const Op* op = nullptr;
  std::vector<int> operands{};
  std::vector<int> results{};  // where the results go; fewer than the op has: the rest is dropped
  int64_t i = 0, j = 0, k = 0;
  std::vector<int64_t> sizes{};
  std::vector<SizedNumber> sized{};  // of i, j, k and sizes: those that are asked for at run time
  double c = 0, d = 0;
  at::ScalarType dtype = at::kDouble;
  bool own_generator = false;  // draws from the program's generator, not the default one
  int64_t count = 1;           // of a Repeat
  size_t function = 0;         // of a Call
  std::vector<Statement> body{};

  // What it met when the program was made, for the coverage.
  bool on_view = false, on_written = false, on_drawn = false, requires_grad = false;
};

/// What a leaf holds: draws around 0, of a few values most of which are special, or around 10,000.
enum class Fill { Normal, Special, LargeMean };

/// A tensor from nowhere: where gradients may arrive.
struct Leaf {
  std::vector<int64_t> sizes{};
  at::ScalarType dtype = at::kDouble;
  bool requires_grad = false;
  Fill fill = Fill::Normal;
  bool inference = false;  // made in inference mode
};

/// Makes the tensors that a function works on: leaves are variables 0, 1, ..., then statements run
/// on them outside the function.
struct Origin {
  std::vector<Leaf> leaves{};
  std::vector<Statement> statements{};
  std::vector<int> given{};  // the variables that the function gets, in order
};

/// Variables 0, 1, ... are its parameters.
struct Function {
  int parameters = 0;
  std::vector<Statement> statements{};
  std::vector<int> results{};
  int variables = 0;
};

/// What a function has beside its operands.
struct Surroundings {
  std::optional<at::Generator> generator{};
  // Host state, which a compiled function names in guard_on and closes_over.
  double host_number = 1.5;
  at::Tensor host_tensor = at::scalar_tensor(0.75, at::kDouble);
};

/// A leaf that gets other data by set_data().
struct NewData {
  bool closed_over = false;  // of the closure; otherwise of the arguments
  size_t leaf = 0;
  bool after_call = true;  // before the backward; otherwise before each call but the first
  bool wider = false;      // by one in its first dimension
};

/// Grad mode around the whole call.
enum class Around { Nothing, NoGrad, Inference };
/// How the compiled form is made and called.
enum class CallMode { InGraph, Epilogue, OtherThread };

/// How later calls differ. Mostly the third from the first two: it must not be served by their
/// entry. Apart: of four calls every other one gets arguments that share no memory.
enum class Variation { None, NoGrad, FlipGrad, Wider, Apart };

/// What stands in the leaves of arguments for the sizes that change from call to call.
inline constexpr std::array<int64_t, 2> kChangingSizes = {23, 29};

struct ProgramSpec {
  uint64_t seed = 0;
  PatternSet patterns{};
  Origin arguments{};  // made anew for every call
  Origin closure{};    // made once: the last parameters of the function
  Function function{};
  std::vector<Function> inner{};  // functions that are compiled by themselves, and called
  /// What happens after the call, on variables: arguments, then results.
  Function further{};
  Around around = Around::Nothing;
  CallMode mode = CallMode::InGraph;
  Variation variation = Variation::None;
  /// Not all bits are promised: see docs/reference/differences.md. No discontinuous op then.
  bool rounds = false;
  bool second_order = false;
  /// Host state is another after the call than in it, and in the call than in the one before.
  bool host_changes = false;
  /// In calls with even and odd numbers. Two zeros are two states.
  double host_number(int call) const {
    if (seed % 4 == 0) return call % 2 == 1 ? -0.0 : 0.0;
    return call % 2 == 1 ? 2 : 1.5;
  }
  std::vector<NewData> new_data{};
  /// Call by call, what each of kChangingSizes is. Empty: nothing changes.
  std::vector<std::array<int64_t, kChangingSizes.size()>> sizes_of_calls{};
  /// Before each call but the first, closed-over tensors that are no leaves get another history:
  /// the gradients of a call then end before the call before, which has kept no copies.
  bool new_histories = false;
};

/// The statements one per line, for people.
std::string print(const ProgramSpec& program);

/// Every statement of the program in which bodies lie flat, outer before inner.
size_t count_statements(const ProgramSpec& program);

}  // namespace tandem::fuzz
