#include "fuzz/op_rules.h"

#include "fuzz/patterns.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace tandem::fuzz {
namespace {

/// What is not drawn, and why. Every row is a difference that docs/reference/differences.md names.
bool is_excluded(const Op& op, Around around) {
  // data() of a view has a base, and of a written tensor no counter of its own.
  if (op.name == "data" || op.name == "data.add_") return true;
  // detach_() of what has views, or of arguments that are used again.
  if (op.name == "detach_") return true;
  // A trace replaces inference mode by no_grad: views of custom functions say so in errors.
  return around == Around::Inference && op.has(kCustom);
}

/// Ops whose effect on a closed-over tensor is host code: it happens at the trace.
bool changes_host_tensor(const Op& op) {
  return op.name == "requires_grad_" || op.name == "custom.marks_dirty";
}

/// Each element for itself, or the largest and smallest of several.
bool is_pointwise(const Op& op) {
  if (op.only_in == ProgramPattern::SpecialValues || op.only_in == ProgramPattern::ShortScalars) {
    return true;
  }
  static const std::set<std::string_view> names = [] {
    std::set<std::string_view> all = {"amax", "amin", "max.dim", "min.dim"};
    for (const Op& row : pointwise_ops()) all.insert(row.name);
    for (const char* name :
         {"add_.Scalar", "add_",      "sub_",        "mul_",        "mul_.Scalar",
          "div_.Scalar", "neg_",      "abs_",        "relu_",       "clamp_",
          "clamp_min_",  "hardtanh_", "leaky_relu_", "threshold_",  "copy_",
          "zero_",       "fill_",     "select.add_", "narrow.mul_", "narrow.zero_"}) {
      all.insert(name);
    }
    return all;
  }();
  return names.contains(op.name);
}

/// Expressions that ask a tensor for its sizes: a closed-over one is asked itself, and does not
/// know that the function has transposed its stand-in.
bool reads_sizes(const Op& op) { return op.text.find("x.size(") != std::string_view::npos; }

bool has_gaps(const at::Tensor& tensor) { return !tensor.is_non_overlapping_and_dense(); }

/// Each element by itself, or moved.
bool goes_by_element(const Op& op) {
  const bool moves = op.has(kView) && !op.name.starts_with("expand") &&
                     op.name != "broadcast_tensors" && op.name != "unfold";
  return is_pointwise(op) || moves;
}

/// Every backend promises its bits.
bool keeps_bits(const Op& op) {
  return goes_by_element(op) && !op.has(kRounds) && !op.has(kEagerBits) && !op.has(kOtherFormula) &&
         !op.has(kInnerGrad) && !op.has(kRandom);
}

/// A sign that nobody promises must decide nothing but the sign of another zero.
bool mixes_zeros(Draft& draft, const Op& op) {
  if (op.has(kEitherZero) ? draft.seen_told_zeros : op.has(kTellsZeros) && draft.seen_either_zero)
    return true;
  draft.seen_either_zero = draft.seen_either_zero || op.has(kEitherZero);
  draft.seen_told_zeros = draft.seen_told_zeros || op.has(kTellsZeros);
  return false;
}

/// Gradients of gradients do not reach what was made a leaf after an op had read it.
bool makes_late_leaf(const Draft& draft, const Op& op) {
  return draft.program.second_order && op.name == "requires_grad_";
}

/// A formula that leads only to such a leaf is no part of a call: what it writes is not written.
bool makes_leaf(const Op& op) { return op.text.find("requires_grad_(") != std::string_view::npos; }

/// Operands that are expanded, or repeated: their gradients are sums.
bool sums_gradients(const Chooser& chooser, const Statement& statement) {
  for (const Statement& before : chooser.before) {
    if (before.op->name.starts_with("refit")) return true;
  }
  int64_t largest = 0;
  for (int operand : statement.operands) {
    largest = std::max(largest, chooser.value(operand).numel());
  }
  return std::ranges::any_of(statement.operands, [&](int operand) {
    const at::Tensor& tensor = chooser.value(operand);
    return tensor.requires_grad() && tensor.numel() < largest;
  });
}

/// Two of the operands are views of one tensor that requires grad.
bool has_one_base(const Chooser& chooser, const Statement& statement) {
  std::set<const c10::TensorImpl*> bases;
  for (int operand : statement.operands) {
    const at::Tensor& tensor = chooser.value(operand);
    if (!tensor.is_view() || !tensor.requires_grad()) continue;
    if (!bases.insert(tensor._base().unsafeGetTensorImpl()).second) return true;
  }
  return false;
}

bool is_unsafe_view(const Draft& draft, const at::Tensor& tensor) {
  return (tensor.has_storage() && draft.folded.contains(storage_of(tensor))) ||
         (tensor.grad_fn() && tensor.grad_fn()->name().starts_with("UnsafeView"));
}

/// Of the calls of this program, at least one.
bool lacks_grad_mode(const Draft& draft) {
  return draft.program.around != Around::Nothing || draft.program.variation == Variation::NoGrad;
}

/// Flags of arguments, and of tensors that have views, are not followed.
bool has_relatives(const Draft& draft, const Chooser& chooser, int variable) {
  const at::Tensor& tensor = chooser.value(variable);
  for (size_t index = 0; index < chooser.live.size(); ++index) {
    const at::Tensor& other = chooser.live[index];
    if (!other.defined() || !other.is_alias_of(tensor)) continue;
    if (index < static_cast<size_t>(draft.program.function.parameters) || !other.is_same(tensor)) {
      return true;
    }
  }
  return false;
}

/// Whether eager says what happens: not if an op reads what it is writing.
bool is_promised(const Op& op, const Chooser& chooser, const Statement& statement) {
  if (!op.has(kInPlace) || op.pattern == patterns::write_list) return true;
  const at::Tensor& x = chooser.value(statement.operands[0]);
  for (size_t index = 1; index < statement.operands.size(); ++index) {
    const at::Tensor& other = chooser.value(statement.operands[index]);
    if (!other.is_alias_of(x)) continue;
    if (op.has(kNoOverlap)) return false;
    if (other.sizes() != x.sizes() || other.strides() != x.strides() ||
        other.storage_offset() != x.storage_offset()) {
      return false;
    }
  }
  if (op.name == "batch_norm.state") {
    return !chooser.value(statement.operands[1]).is_alias_of(chooser.value(statement.operands[2]));
  }
  return true;
}

/// Memory with gaps and ops whose bits depend on the layout do not go together, unless bits are
/// not compared.
bool may_write(Draft& draft, const at::Tensor& x) {
  if (draft.program.rounds) return true;
  // A write through expand() is a difference added to what it shows.
  if (x.is_view() && x.has_storage() && draft.expanded.contains(storage_of(x))) return false;
  if (!has_gaps(x) && !x.is_view()) return true;
  if (draft.seen_rounding) return false;
  draft.seen_gaps = true;
  return true;
}

bool may_use(Draft& draft, const Op& op) {
  if (draft.has(ProgramPattern::SpecialValues) && op.has(kRandom)) return false;
  if (draft.has(ProgramPattern::SpecialValues) && !draft.bits_promised && !goes_by_element(op))
    return false;
  if (is_judged_by_bits(draft.program) && (!keeps_bits(op) || mixes_zeros(draft, op))) return false;
  if (draft.program.rounds) return !op.has(kDiscontinuous);
  if (op.has(kRounds)) {
    if (draft.seen_gaps) return false;
    draft.seen_rounding = true;
  }
  return true;
}

}  // namespace

bool may_draw(Draft& draft, const Op& op) {
  return !is_excluded(op, draft.program.around) && may_use(draft, op) &&
         !makes_late_leaf(draft, op) &&
         !(draft.has(ProgramPattern::BackwardWrites) && makes_leaf(op));
}

bool reads_inexact(const Draft& draft, const Chooser& chooser, const Statement& statement) {
  for (int operand : statement.operands) {
    if (draft.inexact.contains(storage_of(chooser.value(operand)))) return true;
  }
  return false;
}

bool may_run(Draft& draft, const Chooser& chooser, const Statement& statement) {
  const Op& op = *statement.op;
  const bool writes = op.has(kInPlace);
  if (writes && !statement.operands.empty()) {
    const size_t written = op.pattern == patterns::write_list ? statement.operands.size() : 1;
    for (size_t index = 0; index < written; ++index) {
      if (!may_write(draft, chooser.value(statement.operands[index]))) return false;
    }
    // All but the last one written get a history that leads past what the base has then.
    if (op.pattern == patterns::write_list && has_one_base(chooser, statement)) return false;
    // A product is computed in the order of rows, and then laid out as what it is written to.
    if (op.pattern == patterns::write_product && !draft.program.rounds &&
        !chooser.value(statement.operands[0]).is_contiguous()) {
      return false;
    }
  }
  if (!is_promised(op, chooser, statement)) return false;
  if (is_judged_by_bits(draft.program) && sums_gradients(chooser, statement)) return false;
  if (!draft.bits_promised && op.has(kDiscontinuous) &&
      (draft.in_loop || reads_inexact(draft, chooser, statement)))
    return false;
  // What kron() and folded products return is a view inside: its aliases count by themselves.
  if ((op.name == "leaf.view" || op.name.starts_with("detach")) &&
      is_unsafe_view(draft, chooser.value(statement.operands[0])))
    return false;
  // A call without grad mode makes its views without it.
  if (op.has(kView) && draft.in_enable_grad && lacks_grad_mode(draft)) return false;
  if (reads_sizes(op) && chooser.is_closed_over(statement.operands[0])) return false;
  if (changes_host_tensor(op) && chooser.is_closed_over(statement.operands[0])) return false;
  if (op.name == "requires_grad_" && has_relatives(draft, chooser, statement.operands[0]))
    return false;
  // Gradients taken inside have no history where the formula of a trace has lost its zeros.
  if (op.has(kInnerGrad) && draft.lost_zeros) return false;
  // What a custom function returns of a leaf made inside has another base.
  if (op.name.starts_with("custom.returns") && chooser.value(statement.operands[0]).is_leaf()) {
    return false;
  }
  return true;
}

}  // namespace tandem::fuzz
