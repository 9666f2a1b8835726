#include "fuzz/generate.h"

#include "fuzz/changing_sizes.h"
#include "fuzz/chooser.h"
#include "fuzz/interpret.h"
#include "fuzz/op.h"
#include "fuzz/patterns.h"
#include "support/same_bits.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

namespace tandem::fuzz {
namespace {

constexpr int64_t kLargestNumel = 36;
constexpr double kLargestValue = 300;
constexpr int kAttempts = 12;

using Ops = std::vector<const Op*>;

/// What is not drawn, and why. Every row is a difference that docs/reference/differences.md names.
bool is_excluded(const Op& op, Around around) {
  // data() of a view has a base, and of a written tensor no counter of its own.
  if (op.name == "data" || op.name == "data.add_") return true;
  // detach_() of what has views, or of arguments that are used again.
  if (op.name == "detach_") return true;
  // A trace replaces inference mode by no_grad: views of custom functions say so in errors.
  return around == Around::Inference && op.has(kCustom);
}
/// Inference regions inside the function: views that leave them do not remember it.
constexpr bool kInferenceInside = false;

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

/// Ops by what they exercise: a program draws a weight for each kind, so that some programs are
/// nearly all views and writes, others nearly all layers.
enum Kind : size_t { Pointwise, Reduction, Layer, Draw, View, Copy, Write, Autograd, kKinds };

const std::array<Ops, kKinds>& ops_by_kind() {
  static const std::array<Ops, kKinds> table = [] {
    std::array<Ops, kKinds> kinds;
    const auto add = [&](std::vector<Op> ops, Kind kind) {
      for (const Op& op : ops) {
        if (op.pattern == nullptr) continue;
        Kind actual = kind;
        if (op.has(kRandom) && !op.has(kInPlace)) actual = Draw;
        if (kind == Copy && op.has(kView)) actual = View;
        kinds[actual].push_back(find_op(op.name));
      }
    };
    add(pointwise_ops(), Pointwise);
    add(reduction_ops(), Reduction);
    add(layer_ops(), Layer);
    add(shape_ops(), Copy);
    add(in_place_ops(), Write);
    add(autograd_ops(), Autograd);
    return kinds;
  }();
  return table;
}

/// What is left of the rules in programs that break them on purpose.
struct Limits {
  double largest = kLargestValue;
  int64_t numel = kLargestNumel;
  bool special = false;  // whatever the values
  bool empty = false;    // nothing is a value, too
};

bool is_tame(const at::Tensor& tensor, const Limits& limits) {
  if (!tensor.defined()) return true;
  if (tensor.numel() > limits.numel) return false;
  if (tensor.numel() == 0) return limits.empty;
  if (limits.special) return true;
  if (!tensor.is_floating_point() && !tensor.is_complex()) return true;
  const at::NoGradGuard no_grad;
  const at::Tensor largest = tensor.detach().abs().max();
  return largest.item<double>() <= limits.largest;  // false for NaN, too
}

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

bool has_gaps(const at::Tensor& tensor) { return !tensor.is_non_overlapping_and_dense(); }

/// The program came to values that compare badly: another one is made.
struct Wild {};

class Generator {
 public:
  Generator(Random& random, uint64_t seed, const GenerateOptions& options) : random_(random) {
    const bool drawn = random.percent(50);  // the same programs, with or without
    program_.second_order = options.second_order && drawn;
    program_.seed = seed;
    program_.patterns = patterns_of(seed, options.patterns);
    leave_sizes_to_others(program_.patterns);
    for (const Op& op : all_ops()) {
      if (op.pattern && op.only_in && has(*op.only_in)) pattern_ops_.push_back(&op);
    }
  }

  ProgramSpec make() {
    torch::manual_seed(100);
    program_.rounds = random_.percent(30);
    for (int64_t& weight : weights_) weight = random_.one_of({0, 1, 1, 3});
    weights_[Pointwise] += 1;
    weights_[Draw] = random_.one_of({0, 0, 0, 1});
    // Only in float32 does a run in float64 tell the truth.
    dtype_ = random_.percent(bits_promised_ ? 70 : 30) ? at::kDouble : at::kFloat;
    heed_patterns();
    if (has(ProgramPattern::EntryReuse) && random_.percent(70)) {
      parts_origin(program_.arguments);
    } else {
      origin(program_.arguments, random_.between(1, 3));
    }
    const bool closes_over = random_.percent(35);
    if (has(ProgramPattern::NewHistories)) {
      parts_origin(program_.closure);
    } else if (closes_over || has(ProgramPattern::SetData)) {
      origin(program_.closure, random_.between(1, 2));
    }
    program_.mode = random_.percent(25)  ? CallMode::Epilogue
                    : random_.percent(4) ? CallMode::OtherThread
                                         : CallMode::InGraph;
    program_.around = random_.percent(4)   ? Around::NoGrad
                      : random_.percent(2) ? Around::Inference
                                           : Around::Nothing;
    program_.variation = random_.one_of({Variation::None, Variation::None, Variation::None,
                                         Variation::NoGrad, Variation::FlipGrad, Variation::Wider});
    if (has(ProgramPattern::EntryReuse)) program_.variation = Variation::Apart;
    if (has(ProgramPattern::SetData)) draw_new_data();
    if (has(ProgramPattern::ChangingSizes)) program_.variation = Variation::None;
    const Interpreter interpreter(program_, false);
    const Tensors arguments = interpreter.make(program_.arguments);
    const Tensors closure = interpreter.make(program_.closure);
    Tensors live = given(program_.arguments, arguments);
    const Tensors closed = given(program_.closure, closure);
    const size_t first_closed = live.size();
    live.insert(live.end(), closed.begin(), closed.end());
    for (size_t index = first_closed; index < live.size(); ++index) {
      closed_over_.insert(static_cast<int>(index));
      // An earlier call may have written it.
      if (!bits_promised_) inexact_.insert(storage_of(live[index]));
    }
    may_raise_ = random_.percent(3) || has(ProgramPattern::UnfitNumbers);
    function(program_.function, live, random_.between(2, 14));
    further(first_closed, live);
    leave_traces(live);
    return program_;
  }

  /// A program whose backward raises in eager is worth little: few are kept.
  bool is_worth_it(bool keep_raising) {
    if (keep_raising) return true;
    const Interpreter interpreter(program_, false);
    torch::manual_seed(100);
    const at::AutoGradMode as_it_was(at::GradMode::is_enabled());
    const Tensors arguments = interpreter.make(program_.arguments);
    const Tensors closure = interpreter.make(program_.closure);
    Tensors parameters = given(program_.arguments, arguments);
    for (const at::Tensor& tensor : given(program_.closure, closure)) parameters.push_back(tensor);
    try {
      Tensors roots, tangents;
      const Tensors results = interpreter.call(program_.function, parameters);
      for (const at::Tensor& result : results) {
        if (!result.defined() || !result.requires_grad() || result.is_leaf()) continue;
        roots.push_back(result);
        tangents.push_back(at::ones_like(result));
      }
      if (!roots.empty()) torch::autograd::backward(roots, tangents, true);
    } catch (const std::exception&) {
      return may_raise_;
    }
    return true;
  }

 private:
  std::vector<int64_t> some_sizes() {
    return random_.one_of<std::vector<int64_t>>(
        {{2, 3}, {3}, {2, 2}, {4}, {}, {1, 3}, {2, 1, 2}, {3, 2}, {6}, {1}, {4, 2}});
  }

  /// What the patterns of the program change for all of it.
  void heed_patterns() {
    if (has(ProgramPattern::ChangingSizes)) {
      limits_.numel = kChangingNumel;
      limits_.largest = kChangingValue;
    }
    if (has(ProgramPattern::EntryReuse)) weights_[Write] += 3;
    if (has(ProgramPattern::SpecialValues)) {
      limits_.special = true;
      program_.rounds = program_.rounds && !bits_promised_;
      weights_[Layer] = weights_[Draw] = 0;
      // Infinite slopes times zero, in this order or that.
      program_.second_order = false;
    }
    if (has(ProgramPattern::LargeMean)) {
      limits_.largest = 1e9;
      limits_.numel = 4 * kLargestNumel;
      dtype_ = at::kFloat;
      weights_[Reduction] += 3;
    }
    program_.host_changes = has(ProgramPattern::HostState);
    program_.new_histories = has(ProgramPattern::NewHistories);
    limits_.empty = has(ProgramPattern::Empties);
    // A mean of nothing is no number.
    limits_.special = limits_.special || limits_.empty || has(ProgramPattern::UnfitNumbers);
  }

  /// Of leaves that the function gets as they are.
  void draw_new_data() {
    // What views of a leaf show after set_data() is libtorch's own riddle.
    for (Origin* origin : {&program_.arguments, &program_.closure}) {
      origin->statements.clear();
      origin->given.clear();
      for (size_t leaf = 0; leaf < origin->leaves.size(); ++leaf) {
        origin->given.push_back(static_cast<int>(leaf));
      }
    }
    const int64_t count = random_.between(1, 2);
    for (int64_t index = 0; index < count; ++index) {
      NewData& data = program_.new_data.emplace_back();
      data.closed_over = random_.percent(60);
      data.after_call = !data.closed_over || random_.percent(50);
      // After the call, what a formula makes of other sizes is libtorch's secret.
      data.wider = !data.after_call && random_.percent(50);
      const Origin& origin = data.closed_over ? program_.closure : program_.arguments;
      const auto leaves = static_cast<int64_t>(origin.leaves.size());
      data.leaf = static_cast<size_t>(random_.below(leaves));
    }
  }

  bool has(ProgramPattern pattern) const { return program_.patterns.contains(pattern); }

  /// Leaves that are parts of one flat tensor, as some optimizers keep parameters.
  void flat_origin(Origin& origin, int64_t parts) {
    Leaf flat;
    flat.dtype = dtype_;
    int64_t end = 0;
    for (int64_t index = 0; index < parts; ++index) {
      Statement part;
      part.op = find_op("leaf.part");
      part.operands = {0};
      part.sizes = some_sizes();
      part.i = end;
      part.j = c10::multiply_integers(part.sizes);
      part.results = {static_cast<int>(index) + 1};
      end += part.j;
      origin.statements.push_back(part);
      origin.given.push_back(part.results[0]);
    }
    flat.sizes = {end};
    origin.leaves = {flat};
    if (random_.percent(15)) origin.given.push_back(0);
  }

  /// Parts of one tensor, mostly beside each other. Most may be written.
  void parts_origin(Origin& origin) {
    const std::vector<int64_t> row = random_.one_of<std::vector<int64_t>>({{}, {2}, {3}});
    const int64_t parts = random_.between(2, 3), height = random_.between(1, 2);
    Leaf whole;
    whole.sizes = {parts * height};
    whole.sizes.insert(whole.sizes.end(), row.begin(), row.end());
    whole.dtype = dtype_;
    whole.requires_grad = random_.percent(60);
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
      narrow.j = random_.percent(85) ? part * height : 0;
      narrow.k = narrow.j + height;
      origin.given.push_back(narrow.results[0]);
    }
    if (random_.percent(40)) {
      Leaf other = whole;
      other.sizes[0] = height;
      other.requires_grad = !whole.requires_grad || random_.percent(50);
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
  void lazy_origin(Origin& origin, int64_t leaves) {
    const std::vector<int64_t> sizes = some_sizes();
    for (int64_t index = 0; index < leaves; ++index) {
      Leaf& leaf = origin.leaves.emplace_back();
      leaf.sizes = random_.percent(70) ? sizes : some_sizes();
      leaf.dtype = random_.percent(25)    ? dtype_
                   : dtype_ == at::kFloat ? at::kComplexFloat
                                          : at::kComplexDouble;
      leaf.requires_grad = random_.percent(60);
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
      if (random_.percent(60)) variable = add("mul.Scalar", variable);  // then it may be written
      if (random_.percent(30)) origin.given.push_back(variable);
      const char* view =
          complex ? random_.one_of({"conj", "conj", "imag.conj", "alias"}) : "neg_view";
      variable = add(view, variable);
      if (random_.percent(20)) variable = add("alias", variable);
      origin.given.push_back(variable);
    }
  }

  /// Numbers in tensors that do not decide the dtype of what is computed with them.
  void give_numbers(Chooser& chooser, Origin& origin) {
    const int64_t count = random_.between(1, 2);
    for (int64_t index = 0; index < count; ++index) {
      Statement statement;
      statement.op = find_op(random_.one_of({"wrapped", "wrapped", "wrapped.int", "wrapped.bool"}));
      if (!statement.op->pattern(chooser, statement) || !execute(chooser, statement)) continue;
      origin.given.push_back(statement.results[0]);
      origin.statements.push_back(statement);
    }
  }

  void origin(Origin& origin, int64_t leaves) {
    if (has(ProgramPattern::LazyViews)) {
      lazy_origin(origin, leaves);
      return;
    }
    if (has(ProgramPattern::LeafViews) && random_.percent(80)) {
      flat_origin(origin, leaves);
      return;
    }
    const std::vector<int64_t> common = some_sizes();
    for (int64_t index = 0; index < leaves; ++index) {
      Leaf leaf;
      leaf.sizes = random_.percent(50) ? common : some_sizes();
      leaf.dtype = dtype_;
      if (random_.percent(8)) {
        leaf.dtype = random_.one_of(
            {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kBool, at::kComplexDouble});
      }
      leaf.requires_grad =
          (at::isFloatingType(leaf.dtype) || at::isComplexType(leaf.dtype)) && random_.percent(75);
      origin.leaves.push_back(leaf);
    }
    if (has(ProgramPattern::ShortScalars)) {
      Leaf& wide = origin.leaves[0];
      wide.dtype = random_.one_of({at::kHalf, at::kBFloat16});
      wide.requires_grad = random_.percent(75);
      Leaf& scalar = origin.leaves.emplace_back();
      scalar.dtype =
          random_.one_of({at::kHalf, at::kBFloat16, at::kFloat, at::kFloat, at::kDouble,
                          at::kDouble, at::kLong, at::kByte, at::kBool, at::kComplexFloat});
      scalar.requires_grad =
          !at::isIntegralType(scalar.dtype, /*includeBool=*/true) && random_.percent(40);
    }
    if (has(ProgramPattern::Empties) && random_.percent(50)) {
      origin.leaves.back().sizes =
          random_.one_of<std::vector<int64_t>>({{0}, {0, 3}, {2, 0}, {1, 0, 2}});
    }
    if (has(ProgramPattern::LargeMean)) {
      origin.leaves[0].fill = Fill::LargeMean;
      origin.leaves[0].dtype = dtype_;
      origin.leaves[0].sizes = {2, random_.between(3, 40)};
    }
    if (has(ProgramPattern::SpecialValues)) {
      for (Leaf& leaf : origin.leaves) {
        if (random_.percent(70)) leaf.fill = Fill::Special;
      }
    }
    const bool sizes_change = has(ProgramPattern::ChangingSizes) && &origin == &program_.arguments;
    if (sizes_change) draw_changing_sizes(random_, program_);
    const Interpreter interpreter(program_, false);
    Tensors live = interpreter.make(origin);
    Chooser chooser(random_, live);
    chooser.sizes_change = sizes_change;
    const int64_t statements = random_.between(0, 3);
    static const Ops outside = [] {
      Ops ops;
      for (const char* name : {"mul.Scalar", "add.Scalar", "clone", "select", "slice", "t", "view",
                               "narrow", "transpose", "expand", "unsqueeze", "detach", "mul.Scalar",
                               "diagonal", "slice", "narrow", "slice.step", "squeeze"}) {
        ops.push_back(find_op(name));
      }
      return ops;
    }();
    for (int64_t index = 0; index < statements; ++index) {
      Statement statement;
      statement.op = random_.one_of(outside);
      if (!statement.op->pattern(chooser, statement)) continue;
      if (!ask_for_sizes(chooser, statement) || !execute(chooser, statement)) continue;
      origin.statements.push_back(statement);
    }
    if (has(ProgramPattern::ShortScalars)) {
      origin.given = {0, static_cast<int>(origin.leaves.size()) - 1};
    }
    if (has(ProgramPattern::WrappedNumbers)) give_numbers(chooser, origin);
    const int64_t count = random_.between(1, 3);
    for (int64_t index = 0; index < count; ++index) {
      if (index > 0 && random_.percent(12)) {
        origin.given.push_back(origin.given.back());
      } else {
        origin.given.push_back(*chooser.pick([](const at::Tensor&) { return true; }));
      }
    }
    if (sizes_change) give_changing_size(chooser, origin);
  }

  /// Two of the operands are views of one tensor that requires grad.
  static bool has_one_base(const Chooser& chooser, const Statement& statement) {
    std::set<const c10::TensorImpl*> bases;
    for (int operand : statement.operands) {
      const at::Tensor& tensor = chooser.value(operand);
      if (!tensor.is_view() || !tensor.requires_grad()) continue;
      if (!bases.insert(tensor._base().unsafeGetTensorImpl()).second) return true;
    }
    return false;
  }

  /// Runs the statement on the live tensors. False: it is not wanted, and nothing has happened.
  bool execute(Chooser& chooser, Statement& statement) {
    Tensors& live = chooser.live;
    const size_t variables = live.size();
    const Op& op = *statement.op;
    const bool writes = op.has(kInPlace);
    if (writes && !statement.operands.empty()) {
      const size_t written = op.pattern == patterns::write_list ? statement.operands.size() : 1;
      for (size_t index = 0; index < written; ++index) {
        if (!may_write(chooser.value(statement.operands[index]))) return false;
      }
      // All but the last one written get a history that leads past what the base has then.
      if (op.pattern == patterns::write_list && has_one_base(chooser, statement)) return false;
      // A product is computed in the order of rows, and then laid out as what it is written to.
      if (op.pattern == patterns::write_product && !program_.rounds &&
          !chooser.value(statement.operands[0]).is_contiguous()) {
        return false;
      }
    }
    if (!is_promised(op, chooser, statement)) return false;
    if (is_judged_by_bits(program_) && sums_gradients(chooser, statement)) return false;
    if (!bits_promised_ && op.has(kDiscontinuous) &&
        (in_loop_ || reads_inexact(chooser, statement)))
      return false;
    // What kron() and folded products return is a view inside: its aliases count by themselves.
    if ((op.name == "leaf.view" || op.name.starts_with("detach")) &&
        is_unsafe_view(chooser.value(statement.operands[0])))
      return false;
    // A call without grad mode makes its views without it.
    if (op.has(kView) && in_enable_grad_ && lacks_grad_mode()) return false;
    if (reads_sizes(op) && chooser.is_closed_over(statement.operands[0])) return false;
    if (changes_host_tensor(op) && chooser.is_closed_over(statement.operands[0])) return false;
    if (op.name == "requires_grad_" && has_relatives(chooser, statement.operands[0])) return false;
    // Gradients taken inside have no history where the formula of a trace has lost its zeros.
    if (op.has(kInnerGrad) && lost_zeros_) return false;
    // What a custom function returns of a leaf made inside has another base.
    if (op.name.starts_with("custom.returns") && chooser.value(statement.operands[0]).is_leaf()) {
      return false;
    }
    statement.own_generator =
        op.has(kRandom) && op.text.find('g') != std::string_view::npos && random_.percent(40);
    try {
      Tensors scratch = live;
      Statement probe = statement;
      probe.results.clear();
      for (int index = 0; index < 4; ++index) {
        scratch.emplace_back();
        probe.results.push_back(static_cast<int>(scratch.size()) - 1);
      }
      run_op(probe, scratch, surroundings_);
      size_t count = 0;
      for (size_t index = variables; index < scratch.size(); ++index) {
        if (!is_tame(scratch[index], limits_)) {
          if (writes) throw Wild{};
          return false;
        }
        if (scratch[index].defined()) count = index - variables + 1;
      }
      if (writes) {
        for (int operand : statement.operands) {
          if (!is_tame(chooser.value(operand), limits_)) throw Wild{};
        }
      }
      if (op.has(kNoResult)) count = 0;
      for (size_t index = 0; index < count; ++index) {
        statement.results.push_back(chooser.new_variable());
        live[static_cast<size_t>(statement.results.back())] = scratch[variables + index];
      }
      if (!bits_promised_) note_rounding(chooser, statement);
      note_company(chooser, statement);
      return true;
    } catch (const std::exception&) {  // numbers that do not fit raise no c10::Error
      if (chooser.may_raise && random_.percent(50)) {
        raised_ = true;
        // What raises only when it is computed must be asked for.
        if (!program_.patterns.empty() && !writes) {
          statement.results = {chooser.new_variable()};
          raising_ = statement.results[0];
        }
        return true;
      }
      return false;
    }
  }

  bool reads_inexact(const Chooser& chooser, const Statement& statement) const {
    for (int operand : statement.operands) {
      if (inexact_.contains(storage_of(chooser.value(operand)))) return true;
    }
    return false;
  }

  /// What is computed from inexact values is inexact, and so is whatever shares memory with it.
  void note_rounding(const Chooser& chooser, const Statement& statement) {
    const Op& op = *statement.op;
    const bool rounds = op.has(kRounds) || op.has(kInnerGrad) || op.has(kEagerBits);
    if (!rounds && !reads_inexact(chooser, statement)) return;
    const auto mark = [&](int variable) {
      const at::Tensor& tensor = chooser.value(variable);
      const bool is_number =
          tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
      if (is_number && tensor.has_storage()) inexact_.insert(storage_of(tensor));
    };
    for (int result : statement.results) mark(result);
    if (op.has(kInPlace)) {
      for (int operand : statement.operands) mark(operand);
    }
  }

  void note_company(Chooser& chooser, Statement& statement) {
    for (int operand : statement.operands) {
      const at::Tensor& tensor = chooser.value(operand);
      statement.on_view = statement.on_view || tensor.is_view();
      statement.on_written =
          statement.on_written || (!tensor.is_inference() && tensor._version() > 0);
      statement.on_drawn = statement.on_drawn || drawn_.contains(tensor.unsafeGetTensorImpl());
    }
    if (statement.op->has(kLosesZeros)) {
      const at::Tensor& x = chooser.value(statement.operands[0]);
      const at::Tensor& result = chooser.value(statement.results[0]);
      lost_zeros_ = lost_zeros_ || x.numel() == result.numel();
    }
    used_custom_ = used_custom_ || statement.op->has(kCustom);
    const bool draws = statement.on_drawn || statement.op->has(kRandom);
    const std::string_view name = statement.op->name;
    const bool expands =
        name.starts_with("expand") || name == "meshgrid" || name == "broadcast_tensors";
    for (int result : statement.results) {
      const at::Tensor& tensor = chooser.value(result);
      if (!tensor.defined()) continue;
      statement.requires_grad = statement.requires_grad || tensor.requires_grad();
      if (draws) drawn_.insert(tensor.unsafeGetTensorImpl());
      if (expands && tensor.has_storage()) expanded_.insert(storage_of(tensor));
      const bool folds = name.starts_with("linear") || name.starts_with("matmul");
      if ((folds && tensor.dim() > 2) || name == "kron") folded_.insert(storage_of(tensor));
    }
  }

  bool is_unsafe_view(const at::Tensor& tensor) const {
    return (tensor.has_storage() && folded_.contains(storage_of(tensor))) ||
           (tensor.grad_fn() && tensor.grad_fn()->name().starts_with("UnsafeView"));
  }

  /// Of the calls of this program, at least one.
  bool lacks_grad_mode() const {
    return program_.around != Around::Nothing || program_.variation == Variation::NoGrad;
  }

  /// Flags of arguments, and of tensors that have views, are not followed.
  bool has_relatives(const Chooser& chooser, int variable) const {
    const at::Tensor& tensor = chooser.value(variable);
    for (size_t index = 0; index < chooser.live.size(); ++index) {
      const at::Tensor& other = chooser.live[index];
      if (!other.defined() || !other.is_alias_of(tensor)) continue;
      if (index < static_cast<size_t>(program_.function.parameters) || !other.is_same(tensor)) {
        return true;
      }
    }
    return false;
  }

  /// Whether eager says what happens: not if an op reads what it is writing.
  static bool is_promised(const Op& op, const Chooser& chooser, const Statement& statement) {
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
      return !chooser.value(statement.operands[1])
                  .is_alias_of(chooser.value(statement.operands[2]));
    }
    return true;
  }

  /// Memory with gaps and ops whose bits depend on the layout do not go together, unless bits are
  /// not compared.
  bool may_write(const at::Tensor& x) {
    if (program_.rounds) return true;
    // A write through expand() is a difference added to what it shows.
    if (x.is_view() && x.has_storage() && expanded_.contains(storage_of(x))) return false;
    if (!has_gaps(x) && !x.is_view()) return true;
    if (seen_rounding_) return false;
    seen_gaps_ = true;
    return true;
  }
  /// Each element by itself, or moved.
  static bool goes_by_element(const Op& op) {
    const bool moves = op.has(kView) && !op.name.starts_with("expand") &&
                       op.name != "broadcast_tensors" && op.name != "unfold";
    return is_pointwise(op) || moves;
  }

  /// Every backend promises its bits.
  static bool keeps_bits(const Op& op) {
    return goes_by_element(op) && !op.has(kRounds) && !op.has(kEagerBits) &&
           !op.has(kOtherFormula) && !op.has(kInnerGrad) && !op.has(kRandom);
  }

  /// Operands that are expanded, or repeated: their gradients are sums.
  static bool sums_gradients(const Chooser& chooser, const Statement& statement) {
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

  /// A sign that nobody promises must decide nothing but the sign of another zero.
  bool mixes_zeros(const Op& op) {
    if (op.has(kEitherZero) ? seen_told_zeros_ : op.has(kTellsZeros) && seen_either_zero_)
      return true;
    seen_either_zero_ = seen_either_zero_ || op.has(kEitherZero);
    seen_told_zeros_ = seen_told_zeros_ || op.has(kTellsZeros);
    return false;
  }

  bool may_use(const Op& op) {
    if (has(ProgramPattern::SpecialValues) && op.has(kRandom)) return false;
    if (has(ProgramPattern::SpecialValues) && !bits_promised_ && !goes_by_element(op)) return false;
    if (is_judged_by_bits(program_) && (!keeps_bits(op) || mixes_zeros(op))) return false;
    if (program_.rounds) return !op.has(kDiscontinuous);
    if (op.has(kRounds)) {
      if (seen_gaps_) return false;
      seen_rounding_ = true;
    }
    return true;
  }

  /// Gradients of gradients do not reach what was made a leaf after an op had read it.
  bool makes_late_leaf(const Op& op) const {
    return program_.second_order && op.name == "requires_grad_";
  }

  const Op* draw_op() {
    if (!pattern_ops_.empty() && random_.percent(30)) {
      const Op* op = random_.one_of(pattern_ops_);
      // A compiled function inside names no host state. Behind a result that gets no gradient back
      // eager's engine goes on, on zeros, where a compiled call takes it for unused.
      const bool is_out_of_place =
          (in_inner_ && op->only_in == ProgramPattern::HostState) ||
          (in_further_ && op->only_in == ProgramPattern::UndefinedTangents);
      if (!is_out_of_place) return op;
    }
    int64_t total = 0;
    for (int64_t weight : weights_) total += weight;
    int64_t at = random_.below(total);
    size_t kind = 0;
    while (at >= weights_[kind]) at -= weights_[kind++];
    return random_.one_of(ops_by_kind()[kind]);
  }

  /// One more op at the end of the list.
  void add_op(Chooser& chooser, std::vector<Statement>& statements) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Statement statement;
      statement.op = draw_op();
      const bool gaps = seen_gaps_, rounding = seen_rounding_;
      chooser.before.clear();
      const size_t variables = chooser.live.size();
      const auto forget = [&] {
        seen_gaps_ = gaps;
        seen_rounding_ = rounding;
        chooser.live.resize(variables);
      };
      if (is_excluded(*statement.op, program_.around) || !may_use(*statement.op) ||
          makes_late_leaf(*statement.op) || !statement.op->pattern(chooser, statement) ||
          !ask_for_sizes(chooser, statement)) {
        forget();
        continue;
      }
      if (!execute(chooser, statement)) {
        forget();
        continue;
      }
      statements.insert(statements.end(), chooser.before.begin(), chooser.before.end());
      // A loop is only one if variables are assigned again.
      if (in_loop_ && statement.results.size() == 1 && random_.percent(60)) {
        rebind(chooser, statement);
      }
      statements.push_back(statement);
      return;
    }
  }

  /// The result goes to a variable that has a value of the same kind.
  void rebind(Chooser& chooser, Statement& statement) {
    const at::Tensor result = chooser.value(statement.results[0]);
    if (!result.defined()) return;
    const int last = statement.results[0];
    for (int variable = 0; variable < last; ++variable) {
      const at::Tensor& there = chooser.value(variable);
      if (there.defined() && there.sizes() == result.sizes() &&
          there.scalar_type() == result.scalar_type() && random_.percent(50) &&
          !closed_over_.contains(variable)) {
        statement.results[0] = variable;
        chooser.live[static_cast<size_t>(variable)] = result;
        chooser.live.pop_back();
        return;
      }
    }
  }

  void block(Chooser& chooser, std::vector<Statement>& statements, int64_t size, int depth) {
    while (size > 0 && !raised_) {
      if (depth < 2 && random_.percent(9)) {
        const int64_t inside = random_.between(1, 3);
        size -= inside;
        nested(chooser, statements, inside, depth);
      } else {
        add_op(chooser, statements);
        --size;
      }
    }
  }

  void nested(Chooser& chooser, std::vector<Statement>& statements, int64_t size, int depth) {
    Statement statement;
    statement.kind =
        random_.one_of({StatementKind::NoGrad, StatementKind::NoGrad, StatementKind::EnableGrad,
                        StatementKind::Repeat, StatementKind::Repeat, StatementKind::Call});
    if (kInferenceInside && random_.percent(4)) statement.kind = StatementKind::Inference;
    // Without effect in inference mode; a trace has replaced that by no_grad.
    if (program_.around == Around::Inference && statement.kind == StatementKind::EnableGrad) {
      statement.kind = StatementKind::NoGrad;
    }
    switch (statement.kind) {
      case StatementKind::NoGrad: {
        const at::NoGradGuard mode;
        block(chooser, statement.body, size, depth + 1);
        break;
      }
      case StatementKind::EnableGrad: {
        const at::AutoGradMode mode(true);
        const bool before = std::exchange(in_enable_grad_, true);
        block(chooser, statement.body, size, depth + 1);
        in_enable_grad_ = before;
        break;
      }
      case StatementKind::Inference: {
        const c10::InferenceMode mode;
        block(chooser, statement.body, size, depth + 1);
        break;
      }
      case StatementKind::Repeat: {
        const bool before = std::exchange(in_loop_, true);
        block(chooser, statement.body, size, depth + 1);
        in_loop_ = before;
        statement.count = repeat(chooser, statement.body);
        break;
      }
      case StatementKind::Call:
        if (!inner(chooser, statement, size)) return;
        statements.push_back(statement);
        return;
      case StatementKind::Op:
        return;
    }
    if (!statement.body.empty()) statements.push_back(statement);
  }

  /// How often the body can run: tried out.
  int64_t repeat(Chooser& chooser, const std::vector<Statement>& body) {
    if (raised_) return 1;
    const Interpreter interpreter(program_, false);
    const int64_t wanted = random_.between(2, 3);
    for (int64_t turn = 1; turn < wanted; ++turn) {
      try {
        interpreter.run(body, chooser.live);
      } catch (const std::exception&) {
        throw Wild{};
      }
      for (const at::Tensor& tensor : chooser.live) {
        if (!is_tame(tensor, limits_)) throw Wild{};
      }
    }
    return wanted;
  }

  /// A function of its own, compiled by itself in the compiled form, and a call of it.
  bool inner(Chooser& chooser, Statement& statement, int64_t size) {
    if (!program_.inner.empty()) return false;
    const int64_t count = random_.between(1, 2);
    Tensors live;
    for (int64_t index = 0; index < count; ++index) {
      const auto some = chooser.pick([](const at::Tensor& tensor) {
        return tensor.is_floating_point() && tensor.numel() > 0;
      });
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
    const std::set<int> closed_over = std::exchange(closed_over_, closed_inside);
    in_inner_ = true;
    fill(function, live, size);
    in_inner_ = false;
    closed_over_ = closed_over;
    if (raised_) throw Wild{};
    program_.inner.push_back(function);
    statement.function = program_.inner.size() - 1;
    for (int result : function.results) {
      statement.results.push_back(chooser.new_variable());
      chooser.live.back() = live[static_cast<size_t>(result)];
    }
    return true;
  }

  static void note_parameters(Chooser& chooser) {
    bool all_leaves = true;
    for (const at::Tensor& tensor : chooser.live) {
      if (!tensor.defined() || !tensor.requires_grad()) continue;
      all_leaves = all_leaves && tensor.is_leaf();
      chooser.parameters.insert(tensor.unsafeGetTensorImpl());
    }
    chooser.parameters_are_related = !all_leaves && chooser.parameters.size() > 1;
  }

  void fill(Function& function, Tensors& live, int64_t size) {
    function.parameters = static_cast<int>(live.size());
    Chooser chooser(random_, live);
    chooser.closed_over = closed_over_;
    chooser.may_raise = may_raise_;
    chooser.sizes_change = has(ProgramPattern::ChangingSizes);
    note_parameters(chooser);
    block(chooser, function.statements, size, 1);
    choose_results(chooser, function);
    function.variables = static_cast<int>(live.size());
  }

  /// A gradient of one result is one thing if the other is a result, too, and another if not.
  void return_both(Function& function) {
    for (const Statement& statement : function.statements) {
      const bool two =
          statement.op != nullptr && (statement.op->only_in == ProgramPattern::MixedBackward ||
                                      statement.op->only_in == ProgramPattern::UndefinedTangents);
      if (!two || !random_.percent(50)) {
        continue;
      }
      function.results.insert(function.results.end(), statement.results.begin(),
                              statement.results.end());
    }
  }

  void choose_results(Chooser& chooser, Function& function) {
    const int64_t results = random_.between(1, 3);
    for (int64_t index = 0; index < results; ++index) {
      const bool any = random_.percent(30);
      auto result =
          chooser.pick([&](const at::Tensor& tensor) { return any || tensor.requires_grad(); });
      if (!result) result = chooser.pick([](const at::Tensor&) { return true; });
      if (result) function.results.push_back(*result);
    }
    return_both(function);
    if (raising_) function.results.push_back(*raising_);
    if (random_.percent(6) && !function.results.empty()) {
      function.results.push_back(function.results.front());
    }
  }

  void function(Function& function, Tensors& live, int64_t size) {
    std::optional<at::NoGradGuard> no_grad;
    std::optional<c10::InferenceMode> inference;
    if (program_.around == Around::NoGrad) no_grad.emplace();
    if (program_.around == Around::Inference) inference.emplace();
    function.parameters = static_cast<int>(live.size());
    Chooser chooser(random_, live);
    chooser.closed_over = closed_over_;
    chooser.may_raise = may_raise_;
    chooser.sizes_change = has(ProgramPattern::ChangingSizes);
    note_parameters(chooser);
    block(chooser, function.statements, size, 0);
    choose_results(chooser, function);
    function.variables = static_cast<int>(live.size());
  }

  /// Whether no other argument or closed-over tensor shares its memory, nor a view that a custom
  /// function may have returned.
  bool is_alone(const Tensors& live, size_t argument) const {
    const size_t others =
        used_custom_ ? live.size() : static_cast<size_t>(program_.function.parameters);
    for (size_t index = 0; index < others; ++index) {
      if (!live[index].defined()) continue;
      if (index != argument && live[index].is_alias_of(live[argument])) return false;
    }
    return true;
  }

  /// What the function does to its caller at the end: an argument gives up its gradient, grad mode
  /// is left changed. Decided by numbers of its own, so that the programs are otherwise the same.
  void leave_traces(const Tensors& live) {
    Random random(program_.seed + 0x7ACE5);
    const auto end_with = [&](const char* op, std::vector<int> operands) {
      Statement statement;
      statement.op = find_op(op);
      statement.operands = std::move(operands);
      program_.function.statements.push_back(statement);
    };
    if (raised_ || program_.around == Around::Inference) return;
    if (random.percent(4)) {
      std::vector<int> leaves;
      for (size_t index = 0; index < program_.arguments.given.size(); ++index) {
        if (live[index].is_leaf() && live[index].requires_grad() && is_alone(live, index))
          leaves.push_back(static_cast<int>(index));
      }
      if (!leaves.empty()) end_with("requires_grad_.off", {random.one_of(leaves)});
    }
    // Of another thread nobody sees the mode.
    if (random.percent(4) && program_.mode != CallMode::OtherThread)
      end_with(random.percent(50) ? "grad_mode.off" : "grad_mode.on", {});
  }

  /// Ops and writes on what the caller holds afterwards.
  void further(size_t arguments, const Tensors& after) {
    if (raised_ || !random_.percent(60)) return;
    Tensors live(after.begin(), after.begin() + static_cast<int64_t>(arguments));
    for (int result : program_.function.results) {
      live.push_back(after[static_cast<size_t>(result)]);
    }
    may_raise_ = false;
    in_further_ = true;
    weights_[Autograd] = 0;
    weights_[Draw] = 0;
    weights_[Write] += 2;
    Function& function = program_.further;
    function.parameters = static_cast<int>(live.size());
    Chooser chooser(random_, live);
    chooser.sizes_change = has(ProgramPattern::ChangingSizes);
    const int64_t size = random_.between(1, 4);
    for (int64_t index = 0; index < size; ++index) add_op(chooser, function.statements);
    for (size_t index = static_cast<size_t>(function.parameters); index < live.size(); ++index) {
      if (live[index].defined() && live[index].requires_grad()) {
        function.results.push_back(static_cast<int>(index));
      }
    }
    function.variables = static_cast<int>(live.size());
  }

  Random& random_;
  ProgramSpec program_{};
  std::array<int64_t, kKinds> weights_{};
  Limits limits_{};
  Ops pattern_ops_{};  // of the patterns that the program has
  at::ScalarType dtype_ = at::kDouble;
  Surroundings surroundings_{at::detail::createCPUGenerator(1)};
  std::set<int> closed_over_{};
  const bool bits_promised_ = !test::backend_rounds();
  std::set<const void*> inexact_{};   // storages of values whose bits are not promised
  std::set<const void*> drawn_{};     // tensors that come from a draw
  bool lost_zeros_ = false;           // a product of one element
  std::set<const void*> folded_{};    // storages of products that are views inside
  std::set<const void*> expanded_{};  // storages of which expand() has made a view
  std::optional<int> raising_{};      // what would hold the result of the op that raises
  bool may_raise_ = false, raised_ = false, in_loop_ = false;
  bool in_enable_grad_ = false, in_inner_ = false, in_further_ = false;
  bool used_custom_ = false;
  bool seen_gaps_ = false, seen_rounding_ = false;
  bool seen_either_zero_ = false, seen_told_zeros_ = false;
};

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
      Generator generator(random, seed, options);
      ProgramSpec program = generator.make();
      if (generator.is_worth_it(random.percent(10)) && runs_at_other_sizes(program, random)) {
        return program;
      }
    } catch (const Wild&) {
    } catch (const std::exception&) {  // a view that libtorch has given up
    }
  }
}

}  // namespace tandem::fuzz
