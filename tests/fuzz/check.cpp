#include "fuzz/check.h"

#include "conformance/compare.h"
#include "conformance/observe.h"
#include "fuzz/changing_sizes.h"
#include "fuzz/generate.h"
#include "fuzz/interpret.h"
#include "fuzz/op.h"
#include "fuzz/sizes_check.h"
#include "support/wide_run.h"
#include "tandem/tandem.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace tandem::fuzz {
namespace {

using conformance::Inputs;
using conformance::Observation;
using conformance::Settings;

constexpr int kCalls = 2;
/// Of programs whose calls differ in who shares memory.
constexpr int kCallsApart = 4;
/// Far above rounding, far below what a mistake does.
constexpr double kRoundingEps = 1 << 14;
/// The same where values have gone through bfloat16, of whose eps.
constexpr double kRoundingBFloat16Eps = 16;

/// To tensors that are no leaves, from one of the leaves, which come first.
void give_histories(const Tensors& tensors, size_t leaves) {
  const at::AutoGradMode grad_mode(true);
  for (at::Tensor tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad() || tensor.is_leaf() || tensor.is_view()) {
      continue;
    }
    for (size_t leaf = 0; leaf < leaves; ++leaf) {
      const at::Tensor& from = tensors[leaf];
      if (!from.requires_grad() || from.is_complex() != tensor.is_complex()) continue;
      tensor.detach_();
      tensor.add_(from.flatten().slice(0, 0, 1).sum());
      break;
    }
  }
}

/// The program with what it closes over.
struct Instance {
  Instance(const ProgramSpec& spec, bool compiled) : spec(spec), interpreter(spec, compiled) {
    torch::manual_seed(1);
    closed = interpreter.make(spec.closure);
    closure = given(spec.closure, closed);
  }

  Inputs inputs() const {
    Inputs inputs;
    if (gives_histories) give_histories(closed, spec.closure.leaves.size());
    const Tensors variables = interpreter.make(arguments);
    inputs.arguments = given(arguments, variables);
    if (is_apart) {
      for (at::Tensor& argument : inputs.arguments) argument = apart(argument);
    }
    const auto sort_in = [&](const Origin& origin, const Tensors& all) {
      for (size_t index = 0; index < all.size(); ++index) {
        (index < origin.leaves.size() ? inputs.leaves : inputs.watched).push_back(all[index]);
      }
    };
    sort_in(arguments, variables);
    sort_in(spec.closure, closed);
    inputs.generators = {interpreter.generator()};
    return inputs;
  }

  Tensors call(Tensors parameters) const {
    parameters.insert(parameters.end(), closure.begin(), closure.end());
    return interpreter.call(spec.function, std::move(parameters));
  }

  /// For call `number`.
  void prepare(int number) {
    if (!spec.sizes_of_calls.empty()) arguments = at_sizes_of_call(spec, number);
    if (spec.host_changes) set_host(spec.host_number(number));
    for (const NewData& data : spec.new_data) {
      if (!data.after_call && number > 0) give(data, closed, number);
    }
    gives_histories = spec.new_histories && number > 0;
    const bool first_apart = spec.seed % 2 == 1;
    is_apart = spec.variation == Variation::Apart && (number % 2 == 1) != first_apart;
  }

  /// Whether the arguments can be made: what is done to leaves outside may not fit their sizes.
  bool has_inputs() const {
    try {
      inputs();
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }

  /// Between call and backward.
  void after_call(const Inputs& inputs) {
    if (spec.host_changes && spec.host_number(0) != 0) set_host(0.5);
    for (const NewData& data : spec.new_data) {
      if (data.after_call) give(data, data.closed_over ? closed : inputs.leaves, 10);
    }
  }

  /// For the calls to come.
  void vary() {
    for (Leaf& leaf : arguments.leaves) {
      const bool differentiable =
          !leaf.inference && (at::isFloatingType(leaf.dtype) || at::isComplexType(leaf.dtype));
      if (spec.variation == Variation::FlipGrad && differentiable) {
        leaf.requires_grad = !leaf.requires_grad;
      }
    }
    if (spec.variation == Variation::Wider && !arguments.leaves.empty() &&
        !arguments.leaves[0].sizes.empty()) {
      ++arguments.leaves[0].sizes[0];
    }
  }

  void give(const NewData& data, const Tensors& leaves, int seed) const {
    Leaf leaf = (data.closed_over ? spec.closure : arguments).leaves.at(data.leaf);
    if (data.wider && !leaf.sizes.empty()) ++leaf.sizes[0];
    // After the call it keeps the sizes that it has by then.
    if (data.after_call) leaf.sizes = leaves.at(data.leaf).sizes().vec();
    torch::manual_seed(static_cast<uint64_t>(300 + seed));
    leaves.at(data.leaf).set_data(fill(leaf));
  }

  void set_host(double number) {
    Surroundings& surroundings = interpreter.surroundings();
    // Of two zeros it must be the number that tells.
    if (number != surroundings.host_number) {
      surroundings.host_tensor = at::scalar_tensor(number / 2, at::kDouble);
    }
    surroundings.host_number = number;
  }

  const ProgramSpec& spec;
  Interpreter interpreter;
  Origin arguments = spec.arguments;
  Tensors closed{}, closure{};
  bool is_apart = false, gives_histories = false;
};

int calls_of(const ProgramSpec& spec) {
  if (!spec.sizes_of_calls.empty()) return static_cast<int>(spec.sizes_of_calls.size());
  switch (spec.variation) {
    case Variation::None:
      return kCalls;
    case Variation::Apart:
      return kCallsApart;
    default:
      return kCalls + 1;
  }
}

/// Bits are compared though the backend rounds, but for those of what is no number.
class BitJudge : public test::RoundingJudge {
 public:
  /// `either_zero`: signs of zeros are not promised.
  explicit BitJudge(bool either_zero)
      : either_zero_(either_zero), before_(std::exchange(test::rounding_judge, this)) {}
  ~BitJudge() override { test::rounding_judge = before_; }
  BitJudge(const BitJudge&) = delete;
  BitJudge& operator=(const BitJudge&) = delete;

  std::optional<std::string> beyond(const at::Tensor& eager,
                                    const at::Tensor& compiled) const override {
    const auto real = [](const at::Tensor& tensor) {
      return (tensor.is_complex() ? at::view_as_real(tensor) : tensor).contiguous();
    };
    const at::Tensor a = real(eager), b = real(compiled);
    if (!a.is_floating_point()) return std::nullopt;
    const at::Tensor no_numbers = a.isnan().logical_and(b.isnan());
    at::Tensor same_signs = a.signbit().eq(b.signbit());
    if (either_zero_) same_signs = same_signs.logical_or(a.eq(0));
    const at::Tensor same = a.eq(b).logical_and(same_signs);
    if (same.logical_or(no_numbers).all().item<bool>()) return std::string();
    std::ostringstream out;
    out << "bits differ: eager " << a.flatten().slice(0, 0, 8) << ", compiled "
        << b.flatten().slice(0, 0, 8);
    std::string text = out.str();
    std::ranges::replace(text, '\n', ' ');
    return text;
  }

 private:
  const bool either_zero_;
  const test::RoundingJudge* before_;
};

using OpTest = bool (*)(const Op&);

bool any_op(const std::vector<Statement>& statements, OpTest test) {
  for (const Statement& statement : statements) {
    if (statement.op != nullptr && test(*statement.op)) return true;
    if (any_op(statement.body, test)) return true;
  }
  return false;
}

bool any_op_in(const ProgramSpec& spec, OpTest test) {
  if (any_op(spec.function.statements, test) || any_op(spec.further.statements, test)) return true;
  for (const Function& function : spec.inner) {
    if (any_op(function.statements, test)) return true;
  }
  return false;
}

/// Writes that replace what was there, all of it or some: its gradient is zeros, which depend on
/// nothing. Arithmetic in place goes on from it.
bool replaces(const Op& op) {
  if (!op.has(kInPlace) || op.has(kToggle)) return false;
  for (const char* name :
       {"add_",     "sub_",       "mul_",     "div_",   "addc",     "lerp_",   "neg_",
        "square_",  "sin_",       "cos_",     "tanh_",  "sigmoid_", "exp_",    "silu_",
        "pow_",     "atan_",      "cumsum_",  "addmm_", "baddbmm_", "detach.", "data.",
        "foreach_", "unsqueeze.", "flatten.", "t.add_"}) {
    if (op.name.starts_with(name) && !op.name.ends_with("_out")) return false;
  }
  return true;
}

/// Some dtype has 16 bits.
bool computes_in_short(const ProgramSpec& spec) {
  for (const Origin* origin : {&spec.arguments, &spec.closure}) {
    for (const Leaf& leaf : origin->leaves) {
      if (leaf.dtype == at::kHalf || leaf.dtype == at::kBFloat16) return true;
    }
  }
  return any_op_in(spec, [](const Op& op) {
    return op.name == "to.bfloat16" || op.name == "to.half" || op.name == "to.short";
  });
}

/// Gradients in float64 may come from float32.
bool computes_in_float(const ProgramSpec& spec) {
  for (const Origin* origin : {&spec.arguments, &spec.closure}) {
    for (const Leaf& leaf : origin->leaves) {
      if (leaf.dtype == at::kFloat) return true;
    }
  }
  const auto any = [](const auto& self, const std::vector<Statement>& statements) -> bool {
    for (const Statement& statement : statements) {
      if (statement.dtype == at::kFloat || self(self, statement.body)) return true;
    }
    return false;
  };
  if (any(any, spec.function.statements) || any(any, spec.further.statements)) return true;
  for (const Function& function : spec.inner) {
    if (any(any, function.statements)) return true;
  }
  return any_op_in(spec, [](const Op& op) { return op.name == "to.float"; });
}

void in_no_grad(const std::function<void()>& body) {
  const at::NoGradGuard mode;
  body();
}

Settings settings_of(const ProgramSpec& spec, const Interpreter& interpreter) {
  Settings settings;
  settings.rounding_eps = kRoundingEps;
  // What is computed around a large mean rounds like the mean.
  settings.rounding_floor = spec.patterns.contains(ProgramPattern::LargeMean) ? 1e4 : 1;
  const bool other_formula = any_op_in(spec, [](const Op& op) { return op.has(kOtherFormula); });
  const bool inner_grad = any_op_in(spec, [](const Op& op) { return op.has(kInnerGrad); });
  // On a backend that rounds, the run in float64 is the measure of that.
  const bool rounds = spec.rounds && !test::backend_rounds();
  settings.values_may_round = rounds || (other_formula && inner_grad);
  settings.sums_may_round = rounds || other_formula;
  settings.formulas_differ = other_formula;
  // Kernels find out, after those before them.
  settings.kernels_raise = spec.patterns.contains(ProgramPattern::UnfitNumbers) ||
                           spec.patterns.contains(ProgramPattern::RefusedData) ||
                           !spec.sizes_of_calls.empty();
  settings.second_zeros_may_be_undefined =
      spec.patterns.contains(ProgramPattern::Empties) || any_op_in(spec, [](const Op& op) {
        return op.has(kLosesZeros) || op.has(kCustom) || replaces(op);
      });
  settings.second_order = spec.second_order;
  settings.views_may_renew = any_op_in(spec, [](const Op& op) { return op.has(kCustom); });
  // Views of custom functions have one, views of a detached alias that was given a history, and
  // views of leaves that are views, if they are written.
  settings.own_view_nodes =
      settings.views_may_renew || spec.patterns.contains(ProgramPattern::LeafViews) ||
      any_op_in(spec, [](const Op& op) { return op.name.starts_with("detach"); });
  // Nor does a custom function look at the zeros that it is given for an undefined gradient.
  settings.zeros_may_be_undefined = inner_grad || any_op_in(spec, [](const Op& op) {
                                      return op.name == "custom.undefined_gradient";
                                    });
  settings.inner_gradients = inner_grad;
  // What is switched off is not asked for: the same holds on the way there.
  settings.undefined_gradients = any_op_in(spec, [](const Op& op) {
    return op.name == "custom.undefined_gradient" || op.name == "requires_grad_.off";
  });
  const char* partitioner = std::getenv("TANDEM_PARTITIONER");
  settings.recomputes =
      test::backend_rounds() ||  // it fuses, too
      (partitioner != nullptr && std::string_view(partitioner) == "min_cut_recompute") ||
      // What lies behind an undefined gradient is computed, on zeros, from what eager has not
      // saved.
      any_op_in(spec, [](const Op& op) {
        return op.name == "custom.asks" || op.name == "custom.passes_undefined";
      });
  if (computes_in_float(spec)) settings.least_eps = std::numeric_limits<float>::epsilon();
  if (computes_in_short(spec)) {
    settings.rounding_eps = kRoundingBFloat16Eps;
    settings.least_eps = std::numeric_limits<c10::BFloat16>::epsilon();
  }
  if (spec.further.variables > 0) {
    settings.further = [&](const Tensors& arguments, const Tensors& results) {
      Tensors parameters = arguments;
      parameters.insert(parameters.end(), results.begin(), results.end());
      return interpreter.call(spec.further, std::move(parameters));
    };
  }
  if (spec.around == Around::NoGrad) settings.around = in_no_grad;
  if (spec.around == Around::Inference) {
    settings.around = [](const std::function<void()>& body) {
      const c10::InferenceMode mode;
      body();
    };
  }
  return settings;
}

/// Gradients are summed between nodes of their own if the call rewrites an input or returns views.
bool sums_may_round(const Observation& eager) {
  for (const conformance::Record& record : eager.records) {
    if (record.what.starts_with("version of ") && record.text != "+0") return true;
    if (record.what.starts_with("is_view of result") && record.text == "1") return true;
    // A tangent is brought to the strides of its result.
    if (record.what.starts_with("memory") && !record.text.empty()) return true;
  }
  return false;
}

/// The call leaves its history on an input, perhaps a closed-over one.
bool gives_histories(const Observation& eager) {
  for (const conformance::Record& record : eager.records) {
    if (record.what.starts_with("history of ") && record.text == "1") return true;
  }
  return false;
}

/// A closed-over tensor has other sizes than in the first call.
bool gets_wider(const ProgramSpec& spec) {
  return std::ranges::any_of(spec.new_data, &NewData::wider);
}

/// What libtorch raises of a leaf that set_data() has given other sizes while a graph of an earlier
/// call lives, one that it has leaked too: that keeps the leaf's gradient accumulator, for the old
/// sizes.
bool meets_old_accumulator(const ProgramSpec& spec, int number, const Observation& eager) {
  return number > 0 && gets_wider(spec) &&
         std::ranges::any_of(eager.records, [](const conformance::Record& record) {
           return record.kind == conformance::RecordKind::Error &&
                  record.text.find("returned an invalid gradient at index") != std::string::npos;
         });
}

/// A backward after set_data() may be refused by itself, with a remedy: where it must be traced
/// again from what the call has written, or in another state of the host.
bool cannot_trace_again(const Observation& compiled) {
  return std::ranges::any_of(compiled.records, [](const conformance::Record& record) {
    if (record.kind != conformance::RecordKind::Error) return false;
    const auto says = [&](const char* words) {
      return record.text.find(words) != std::string::npos;
    };
    return (says("a backward after set_data() needs") && says("\n  remedy: run the step again")) ||
           (says("a backward after set_data() traces the function again") &&
            says("\n  remedy: run the call and its backward in the same state"));
  });
}

/// Of two errors of a call, one that is found when it is traced: sizes that do not fit, elements
/// that lie at one place. Eager comes first to the other, which is found when the call runs. Of a
/// part that split() has not made, an undefined tensor, each has its own words.
bool raises_at_the_trace(const Observation& eager, const Observation& compiled) {
  if (compiled.error.empty() || compiled.touched || compiled.refused) return false;
  const auto eager_says = [&](const char* words) {
    return eager.error.find(words) != std::string::npos;
  };
  return eager_says("setStorage: sizes") || eager_says(" is out of bounds for dimension ") ||
         eager_says("index out of range in self") ||
         eager_says("There were no tensor arguments to this function") || eager_says("undefined") ||
         (eager_says("a view of a leaf Variable that requires grad is being used in") &&
          compiled.error.find("more than one element of the written-to tensor") !=
              std::string::npos);
}

void note_errors(const Observation& eager, Verdict& verdict) {
  verdict.eager_raised = verdict.eager_raised || !eager.error.empty();
  for (const conformance::Record& record : eager.records) {
    if (record.kind == conformance::RecordKind::Error && record.text != "none" &&
        record.what.starts_with("gradient")) {
      verdict.eager_backward_raised = true;
    }
  }
}

/// Gradients of gradients may be refused by themselves, with a remedy: the first time that they
/// need what an argument held before the call wrote it, and where a formula reads data. They are
/// computed again from the arguments, also those of an earlier call to which a closed-over tensor
/// leads, and which were written since.
bool second_order_is_refused(const Observation& compiled, bool earlier_history) {
  for (const conformance::Record& record : compiled.records) {
    if (record.kind != conformance::RecordKind::Error ||
        !record.what.starts_with("second gradient")) {
      continue;
    }
    if (record.text.find("\n  remedy") != std::string::npos) return true;
    if (earlier_history && record.text.find("modified by an inplace") != std::string::npos) {
      return true;
    }
  }
  return false;
}

void drop_second_order(Observation& observation) {
  std::erase_if(observation.records, [](const conformance::Record& record) {
    return record.what.starts_with("second gradient") ||
           record.what.starts_with("gradient with a graph");
  });
}

/// A refusal says nothing of calls whose arguments lie otherwise: the next call must not be refused
/// if a function of its own takes it. What is wrong; empty: nothing.
std::string refused_for_another(const ProgramSpec& spec, Instance& compiled,
                                const conformance::Call& call, int number,
                                const Settings& settings) {
  // Later refusals may come from what earlier calls have written.
  if (spec.variation != Variation::Apart || spec.host_changes || number != 1) return {};
  const auto observe = [&](Instance& instance, const conformance::Call& way) {
    instance.prepare(number);
    return conformance::observe({[&] { return instance.inputs(); }, {}}, way, number, settings);
  };
  const Observation again = observe(compiled, call);
  if (!again.refused) return {};
  Instance own(spec, true);
  const auto handle =
      tandem::compile_boxed([&](Tensors arguments) { return own.call(std::move(arguments)); });
  if (observe(own, [&](Tensors& list) { return handle(list); }).refused) return {};
  return "call " + std::to_string(number) +
         " is refused as the one before, and by itself is not: " + again.error;
}

/// `measured`: each op of the eager run is done in float64, too.
Verdict check_once(const ProgramSpec& spec, bool measured) {
  Verdict verdict;
  test::WideRun wide_run;
  std::optional<BitJudge> bit_judge;
  if (is_judged_by_bits(spec))
    bit_judge.emplace(any_op_in(spec, [](const Op& op) { return op.has(kEitherZero); }));
  Instance eager(spec, false), compiled(spec, true);
  Options options;
  options.mutations = spec.mode == CallMode::Epilogue ? Mutations::epilogue : Mutations::in_graph;
  if (spec.host_changes) {
    options.closes_over = {&compiled.interpreter.surroundings().host_tensor};
    options.guard_on = [&] { return compiled.interpreter.surroundings().host_number; };
  }
  const auto handle = tandem::compile_boxed(
      [&](Tensors arguments) { return compiled.call(std::move(arguments)); }, options);
  const auto program_of = [](const Instance& instance) {
    return conformance::Program{[&] { return instance.inputs(); }, {}};
  };
  Settings eager_settings = settings_of(spec, eager.interpreter);
  Settings settings = settings_of(spec, compiled.interpreter);
  eager_settings.after_call = [&](const Inputs& inputs) { eager.after_call(inputs); };
  settings.after_call = [&](const Inputs& inputs) { compiled.after_call(inputs); };
  bool earlier_history = false;
  const int calls = calls_of(spec);
  const bool sizes_change = !spec.sizes_of_calls.empty();
  SizesCheck sizes_check(spec, compiled.closure);
  for (int number = 0; number < calls; ++number) {
    eager.prepare(number);
    compiled.prepare(number);
    if (sizes_change && !eager.has_inputs()) continue;
    if (number == kCalls) {
      eager.vary();
      compiled.vary();
      if (spec.variation == Variation::NoGrad) eager_settings.around = settings.around = in_no_grad;
    }
    Observation expected;
    try {
      const test::WideRun::Scope scope(wide_run, measured);
      expected = conformance::observe(
          program_of(eager), [&](Tensors& list) { return eager.call(list); }, number,
          eager_settings);
    } catch (const c10::Error&) {  // a view that libtorch has given up: it cannot be looked at
      // Of the third call the inputs may not exist.
      if (number < kCalls) verdict.kind = Verdict::Kind::Unseen;
      return verdict;
    }
    // The error of an op that nobody reads comes with its kernel, or not at all.
    const bool wider = (number == kCalls && spec.variation == Variation::Wider) ||
                       (number > 0 && gets_wider(spec));
    if (wider && !expected.error.empty()) break;
    if (meets_old_accumulator(spec, number, expected)) break;
    note_errors(expected, verdict);
    const conformance::Call make_call = [&](Tensors& list) {
      if (spec.mode != CallMode::OtherThread) return handle(list);
      Tensors results;
      std::exception_ptr error;
      std::thread([&] {
        try {
          const auto run = [&] { results = handle(list); };
          if (settings.around) {
            settings.around(run);
          } else {
            run();
          }
        } catch (...) {
          error = std::current_exception();
        }
      }).join();
      if (error) std::rethrow_exception(error);
      return results;
    };
    const conformance::Call call = [&](Tensors& list) {
      if (!sizes_change) return make_call(list);
      return sizes_check.call([&] { return make_call(list); }, [&] { return handle.stats(); },
                              number);
    };
    Observation seen = conformance::observe(program_of(compiled), call, number, settings);
    settings.sums_may_round = settings.sums_may_round || sums_may_round(expected);
    if (seen.refused) {
      verdict.kind = Verdict::Kind::Refused;
      verdict.refusal = seen.error;
      if (seen.touched) {
        verdict.kind = Verdict::Kind::Failed;
        verdict.differences = {"refused, but it has changed the " + seen.touched_what};
        return verdict;
      }
      const std::string why = refused_for_another(spec, compiled, make_call, number + 1, settings);
      if (!why.empty()) {
        verdict.kind = Verdict::Kind::Failed;
        verdict.differences = {why};
      }
      return verdict;
    }
    if (second_order_is_refused(seen, earlier_history)) {
      drop_second_order(seen);
      drop_second_order(expected);
    }
    if (cannot_trace_again(seen)) return verdict;
    settings.histories_grow = settings.histories_grow || earlier_history;
    earlier_history = earlier_history || gives_histories(expected);
    if (sizes_change && raises_at_the_trace(expected, seen)) return verdict;
    for (std::string& text : conformance::differences(expected, seen, settings)) {
      verdict.differences.push_back("call " + std::to_string(number) + ": " + std::move(text));
    }
    if (!sizes_check.difference().empty()) {
      verdict.differences.push_back("call " + std::to_string(number) + ": " +
                                    sizes_check.difference());
    }
    if (!verdict.differences.empty()) {
      verdict.kind = Verdict::Kind::Failed;
      return verdict;
    }
    // Eager has done what comes before the error, to closed-over tensors and generators.
    if (!expected.error.empty() &&
        !(sizes_change &&
          are_left_alike(eager.closed, compiled.closed, eager.interpreter.generator(),
                         compiled.interpreter.generator()))) {
      return verdict;
    }
  }
  return verdict;
}

}  // namespace

Verdict check(const ProgramSpec& spec) {
  Verdict verdict = check_once(spec, /*measured=*/false);
  // Where rounding is excused, how far it carries takes a run of its own: few programs need it.
  const auto by_number = [](const std::string& text) {
    return text.find("data differs") != std::string::npos;
  };
  if (verdict.kind != Verdict::Kind::Failed || test::backend_rounds() ||
      !std::ranges::all_of(verdict.differences, by_number))
    return verdict;
  return check_once(spec, /*measured=*/true);
}

std::string graph_text(const ProgramSpec& spec) {
  const Instance compiled(spec, true);
  const auto handle =
      tandem::compile_boxed([&](Tensors arguments) { return compiled.call(std::move(arguments)); });
  const Settings settings = settings_of(spec, compiled.interpreter);
  torch::manual_seed(100);
  const Inputs inputs = compiled.inputs();
  const at::AutoGradMode as_it_was(at::GradMode::is_enabled());
  try {
    const auto call = [&] { handle(inputs.arguments); };
    if (settings.around) {
      settings.around(call);
    } else {
      call();
    }
  } catch (const std::exception& error) {
    return std::string("the call raises: ") + error.what() + '\n';
  }
  std::ostringstream out;
  for (const Entry& entry : handle.entries()) {
    out << entry.signature() << '\n' << ir::print(entry.forward());
    if (entry.kind() == EntryKind::training) out << '\n' << ir::print(entry.backward());
  }
  return out.str();
}

}  // namespace tandem::fuzz
