#pragma once

#include "tandem/tandem.h"

#include <ATen/core/Generator.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace tandem::conformance {

using Tensors = std::vector<at::Tensor>;

/// What one call works on; made anew for every call, from a fixed seed.
struct Inputs {
  Tensors arguments;
  Tensors leaves{};   // where gradients arrive: what arguments were made from, parameters
  Tensors watched{};  // whatever else is looked at: bases of arguments, closed-over tensors
  std::vector<at::Generator> generators{};  // besides the default one
};

/// A compiled function, whatever its calling form.
struct Handle {
  std::function<Tensors(Tensors&)> call;
  std::function<Stats()> stats;
  std::function<std::vector<Entry>()> entries;
};

/// `call` turns a list of tensors into a call of the handle: `[](auto& h, Tensors& a) ...`.
template <class Compiled, class Call>
Handle handle_of(Compiled compiled, Call call) {
  return {[compiled, call](Tensors& arguments) { return call(compiled, arguments); },
          [compiled] { return compiled.stats(); }, [compiled] { return compiled.entries(); }};
}

/// A program that is run eagerly and compiled. One object per run of several calls: what it closes
/// over is made with it and lives as long.
struct Program {
  std::function<Inputs()> inputs;
  std::function<Tensors(Tensors&)> function;
  /// How it is compiled; empty: `compile_boxed`.
  std::function<Handle(const Options&)> compile{};
};
/// Called with the generator at a fixed seed.
using MakeProgram = std::function<Program()>;

/// What is special about a program. Each field is an exception that must be on the list of
/// differences (docs/reference/differences.md) or a fact that eager has no word for.
struct Settings {
  /// Gradients may differ in the last bits: sums in another order.
  bool sums_may_round = false;
  /// Data may differ, too: in-place ops on memory with gaps.
  bool values_may_round = false;
  /// A gradient that is zero may be undefined in the other: its formula looks at no tangent.
  bool zeros_may_be_undefined = false;
  /// The same of gradients of gradients: a formula of a trace does not depend on what eager's
  /// depends on with derivative zero.
  bool second_zeros_may_be_undefined = false;
  /// Autograd takes another formula in a trace: of gradients of gradients, either may be NaN.
  bool formulas_differ = false;
  /// What counts as rounding: so many eps of the largest value, or of `rounding_floor` if larger.
  double rounding_eps = 8, rounding_floor = 0;
  /// The eps of the coarsest dtype that the program computes in, where that is not the result's.
  double least_eps = 0;
  /// Closed-over tensors have the history of earlier calls, whose results were written since.
  bool histories_grow = false;
  /// The backward computes values again, from arguments and results: it finds writes to those where
  /// eager has saved something else.
  bool recomputes = false;
  /// A custom function returns undefined gradients. Eager passes them on without looking at
  /// what was saved, or not at all; a compiled backward may find that it was written.
  bool undefined_gradients = false;
  /// Gradients are taken inside: those of what was written through a view are views themselves in
  /// eager, of memory that nobody holds.
  bool inner_gradients = false;
  /// Results that are views have a node of ours, not that of a view op.
  bool own_view_nodes = false;
  /// A custom function is given a closed-over view: if the call is refused, libtorch may have made
  /// the history of the view anew, as after a write.
  bool views_may_renew = false;
  /// Numbers that do not fit are found by a kernel, after the draws and effects before it.
  bool kernels_raise = false;
  /// Words of our UnsupportedError for a program that eager runs; empty: it must run.
  std::string refused{};
  /// Words of the error that eager raises in the call; empty: it must not raise.
  std::string raises{};
  /// The same of differentiating what the call returns. Several errors share the words.
  std::string backward_raises{};
  /// How often the function runs to be recorded, over the four calls of one handle with write-back
  /// in the graph; with write-back in the epilogue there are two.
  int64_t traces = 1, epilogue_traces = 1;
  /// To which order gradients of gradients are compared. The kernel of an op without autograd
  /// kernel is differentiated by eager only.
  int orders = 3;
  /// Whether results are written in place after the call and everything is looked at again.
  bool write_results = true;
  /// Whether gradients are taken with create_graph and differentiated again.
  bool second_order = false;
  /// What happens between the call and its backward.
  std::function<void(const Inputs&)> after_call{};
  /// What the caller does next, given the arguments and the results; what it makes is looked at and
  /// differentiated.
  std::function<Tensors(const Tensors&, const Tensors&)> further{};
  /// State of the calling thread (grad mode, autocast): calls its argument within it.
  std::function<void(const std::function<void()>&)> around{};
  /// Facts about the entry that served the first call.
  std::function<void(const Entry&)> entry{};
};

}  // namespace tandem::conformance
