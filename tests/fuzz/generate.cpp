#include "fuzz/generate.h"

#include "fuzz/bodies.h"
#include "fuzz/changing_sizes.h"
#include "fuzz/draft.h"
#include "fuzz/interpret.h"
#include "fuzz/origins.h"
#include "support/same_bits.h"

#include <utility>

namespace tandem::fuzz {
namespace {

/// What the patterns of the program change for all of it.
void heed_patterns(Draft& draft) {
  if (draft.has(ProgramPattern::ChangingSizes)) {
    draft.limits.numel = kChangingNumel;
    draft.limits.largest = kChangingValue;
  }
  if (draft.has(ProgramPattern::EntryReuse) || draft.has(ProgramPattern::InferenceTensors) ||
      draft.has(ProgramPattern::BackwardWrites))
    draft.weights[Write] += 3;
  // What a backward has written has no gradients of gradients.
  if (draft.has(ProgramPattern::BackwardWrites)) draft.program.second_order = false;
  if (draft.has(ProgramPattern::SpecialValues)) {
    draft.limits.special = true;
    draft.program.rounds = draft.program.rounds && !draft.bits_promised;
    draft.weights[Layer] = draft.weights[Draw] = 0;
    // Infinite slopes times zero, in this order or that.
    draft.program.second_order = false;
  }
  if (draft.has(ProgramPattern::LargeMean)) {
    draft.limits.largest = 1e9;
    draft.limits.numel = 4 * kLargestNumel;
    draft.dtype = at::kFloat;
    draft.weights[Reduction] += 3;
  }
  if (draft.has(ProgramPattern::SpreadNumbers)) {
    draft.limits.numel = kSpreadNumel;
    draft.weights[Pointwise] += 3;
  }
  draft.program.host_changes = draft.has(ProgramPattern::HostState);
  draft.program.new_histories = draft.has(ProgramPattern::NewHistories);
  draft.limits.empty = draft.has(ProgramPattern::Empties);
  // A mean of nothing is no number.
  draft.limits.special =
      draft.limits.special || draft.limits.empty || draft.has(ProgramPattern::UnfitNumbers);
}

/// Whether no other argument or closed-over tensor shares its memory, nor a view that a custom
/// function may have returned.
bool is_alone(const Draft& draft, const Tensors& live, size_t argument) {
  const size_t others =
      draft.used_custom ? live.size() : static_cast<size_t>(draft.program.function.parameters);
  for (size_t index = 0; index < others; ++index) {
    if (!live[index].defined()) continue;
    if (index != argument && live[index].is_alias_of(live[argument])) return false;
  }
  return true;
}

/// What the function does to its caller at the end: an argument gives up its gradient, grad mode
/// is left changed. Decided by numbers of its own, so that the programs are otherwise the same.
void leave_traces(Draft& draft, const Tensors& live) {
  Random random(draft.program.seed + 0x7ACE5);
  const auto end_with = [&](const char* op, std::vector<int> operands) {
    Statement statement;
    statement.op = find_op(op);
    statement.operands = std::move(operands);
    draft.program.function.statements.push_back(statement);
  };
  if (draft.raised || draft.program.around == Around::Inference) return;
  if (random.percent(4)) {
    std::vector<int> leaves;
    for (size_t index = 0; index < draft.program.arguments.given.size(); ++index) {
      // A view says that it is a leaf until it is asked for the history that a write has given it.
      if (live[index].is_leaf() && live[index].requires_grad() && !live[index].grad_fn() &&
          is_alone(draft, live, index))
        leaves.push_back(static_cast<int>(index));
    }
    if (!leaves.empty()) end_with("requires_grad_.off", {random.one_of(leaves)});
  }
  // Of another thread nobody sees the mode.
  if (random.percent(4) && draft.program.mode != CallMode::OtherThread)
    end_with(random.percent(50) ? "grad_mode.off" : "grad_mode.on", {});
}

ProgramSpec make(Draft& draft) {
  torch::manual_seed(100);
  draft.program.rounds = draft.random.percent(30);
  for (int64_t& weight : draft.weights) weight = draft.random.one_of({0, 1, 1, 3});
  draft.weights[Pointwise] += 1;
  draft.weights[Draw] = draft.random.one_of({0, 0, 0, 1});
  // Only in float32 does a run in float64 tell the truth.
  draft.dtype = draft.random.percent(draft.bits_promised ? 70 : 30) ? at::kDouble : at::kFloat;
  heed_patterns(draft);
  make_origins(draft);
  draft.program.mode = draft.random.percent(25)  ? CallMode::Epilogue
                       : draft.random.percent(4) ? CallMode::OtherThread
                                                 : CallMode::InGraph;
  draft.program.around = draft.random.percent(4)   ? Around::NoGrad
                         : draft.random.percent(2) ? Around::Inference
                                                   : Around::Nothing;
  draft.program.variation =
      draft.random.one_of({Variation::None, Variation::None, Variation::None, Variation::NoGrad,
                           Variation::FlipGrad, Variation::Wider});
  // What a backward writes gets no gradient from the formula that writes it.
  if (draft.has(ProgramPattern::BackwardWrites) && draft.program.variation == Variation::FlipGrad)
    draft.program.variation = Variation::None;
  if (draft.has(ProgramPattern::EntryReuse)) draft.program.variation = Variation::Apart;
  if (draft.has(ProgramPattern::SetData)) give_new_data(draft);
  if (draft.has(ProgramPattern::ChangingSizes)) draft.program.variation = Variation::None;
  const Interpreter interpreter(draft.program, false);
  const Tensors arguments = interpreter.make(draft.program.arguments);
  const Tensors closure = interpreter.make(draft.program.closure);
  Tensors live = given(draft.program.arguments, arguments);
  const Tensors closed = given(draft.program.closure, closure);
  const size_t first_closed = live.size();
  live.insert(live.end(), closed.begin(), closed.end());
  for (size_t index = first_closed; index < live.size(); ++index) {
    draft.closed_over.insert(static_cast<int>(index));
    // An earlier call may have written it.
    if (!draft.bits_promised) draft.inexact.insert(storage_of(live[index]));
  }
  draft.may_raise = draft.random.percent(3) || draft.has(ProgramPattern::UnfitNumbers) ||
                    draft.has(ProgramPattern::RefusedData) ||
                    draft.has(ProgramPattern::InferenceTensors);
  const bool is_long = draft.has(ProgramPattern::SpreadNumbers);
  make_function(draft, draft.program.function, live,
                is_long ? draft.random.between(6, 18) : draft.random.between(2, 14));
  make_further(draft, first_closed, live);
  leave_traces(draft, live);
  return draft.program;
}

/// A program whose backward raises in eager is worth little: few are kept.
bool is_worth_it(const Draft& draft, bool keep_raising) {
  if (keep_raising) return true;
  const Interpreter interpreter(draft.program, false);
  torch::manual_seed(100);
  const at::AutoGradMode as_it_was(at::GradMode::is_enabled());
  const Tensors arguments = interpreter.make(draft.program.arguments);
  const Tensors closure = interpreter.make(draft.program.closure);
  Tensors parameters = given(draft.program.arguments, arguments);
  for (const at::Tensor& tensor : given(draft.program.closure, closure))
    parameters.push_back(tensor);
  try {
    Tensors roots, tangents;
    const Tensors results = interpreter.call(draft.program.function, parameters);
    for (const at::Tensor& result : results) {
      if (!result.defined() || !result.requires_grad() || result.is_leaf()) continue;
      roots.push_back(result);
      tangents.push_back(at::ones_like(result));
    }
    if (!roots.empty()) torch::autograd::backward(roots, tangents, true);
  } catch (const std::exception&) {
    return draft.may_raise;
  }
  return true;
}

}  // namespace

bool is_judged_by_bits(const ProgramSpec& program) {
  return test::backend_rounds() && !program.rounds &&
         (program.patterns.contains(ProgramPattern::SpecialValues) ||
          program.patterns.contains(ProgramPattern::ShortScalars));
}

ProgramSpec generate(uint64_t seed, const GenerateOptions& options) {
  Random random(seed);
  for (;;) {
    try {
      Draft draft(random, seed, options);
      ProgramSpec program = make(draft);
      if (is_worth_it(draft, random.percent(10)) && runs_at_other_sizes(program, random)) {
        return program;
      }
    } catch (const Wild&) {
    } catch (const std::exception&) {  // a view that libtorch has given up
    }
  }
}

}  // namespace tandem::fuzz
