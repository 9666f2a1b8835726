#include "backends/eager/eager_backend.h"
#include "loops/host/host_list.h"
#include "loops/host/kernel_backend.h"
#include "loops/rules/rule.h"
#include "support/same_bits.h"
#include "tandem/ir/text.h"
#include "tandem/tandem.h"
#include "unit/backends/llvm/rule_cases.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

// Every rule: it gives what eager gives, it is reached from a compiled function, and the cut is
// told the truth about it. The number of elements fills eager's vectors: its loops over a rest
// round some 16-bit ops differently.

namespace tandem::loops {
namespace {

using at::Tensor;

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                      at::kInt,   at::kShort,  at::kChar,     at::kByte};

bool runs_with(const RuleCase& rule, at::ScalarType dtype) {
  switch (rule.of) {
    case Of::All:
      return true;
    case Of::Signed:
      return dtype != at::kByte;
    case Of::Floats:
      return c10::isFloatingType(dtype);
    case Of::Wide:
      return dtype == at::kFloat || dtype == at::kDouble;
    case Of::Integers:
      return !c10::isFloatingType(dtype);
  }
  return false;
}

at::ScalarType first_dtype(const RuleCase& rule) {
  for (at::ScalarType dtype : kDtypes)
    if (runs_with(rule, dtype)) return dtype;
  return at::kFloat;
}

std::vector<Tensor> sample(at::ScalarType dtype) {
  const bool floats = c10::isFloatingType(dtype);
  const auto numbers = [&] {
    return floats ? (torch::randn({8, 64}) * 3).to(dtype)
                  : torch::randint(-5, 6, {8, 64}, at::kLong).to(dtype);
  };
  const Tensor x = numbers(), y = numbers(), near_one = torch::randn({8, 64}) * 0.05 + 1;
  Tensor z = x.clone();
  if (floats) {
    z[0][3] = std::nan("");
    z[1][5] = INFINITY;
    z[7][60] = -INFINITY;
  }
  return {x,
          y,
          z,
          near_one.to(dtype),
          (torch::rand({8, 64}) * 0.9 + 0.05).to(dtype),
          torch::rand({8, 64}) > 0.5,
          torch::randint(0, 8, {8, 64}, at::kLong),
          torch::randint(0, 8, {6}, at::kLong),
          torch::tensor(0.3f),
          torch::tensor(int64_t{123456789})};
}

/// Where formulas and conversions have their edges, without repetition.
std::vector<double> special_values(at::ScalarType dtype) {
  if (!c10::isFloatingType(dtype)) {
    if (dtype == at::kByte) return {0, 1, 2, 3, 7, 100, 127, 128, 254, 255};
    const int bits = static_cast<int>(8 * c10::elementSize(dtype));
    const double limit = std::ldexp(1.0, bits - 1), last = bits == 64 ? 0x1p62 : limit - 1;
    return {0, 1, -1, 2, -2, 3, 7, 100, -100, last, -limit};
  }
  std::vector<double> values = {0.0, -0.0, 0.5, -0.5,   1,     -1,       2.5,       -3,          3,
                                6,   -6,   100, -40000, 65504, HUGE_VAL, -HUGE_VAL, std::nan("")};
  if (dtype == at::kHalf) values.insert(values.end(), {0x1p-24, -0x1p-14, 0.1, -0.1, 21});
  // Beyond the range of i32, and powers that overflow in f32.
  if (dtype != at::kHalf) values.insert(values.end(), {0x1p31, -0x1p31 - 0x1p9, 1e15, -1e15, 1e-5});
  return values;
}

/// Every pair of them as elements of x and y.
std::vector<Tensor> special_sample(at::ScalarType dtype) {
  std::vector<Tensor> inputs = sample(dtype);
  const std::vector<double> values = special_values(dtype);
  const auto count = static_cast<int64_t>(values.size());
  const Tensor all = torch::tensor(values, at::kDouble).to(dtype);
  const Tensor place = torch::arange(8 * 64).view({8, 64});
  const auto pick = [&](const Tensor& index) {
    return all.index_select(0, index.remainder(count).flatten()).view({8, 64});
  };
  inputs[0] = pick(place.div(count, "floor"));
  inputs[1] = pick(place);
  inputs[2] = pick(place * 5 + 3);
  inputs[3] = pick(place * 7 + 1);
  inputs[4] = pick(place.div(3, "floor"));
  return inputs;
}

/// Zeros of both signs among few numbers: for reductions, of which one NaN leaves nothing.
std::vector<Tensor> zeros_sample(at::ScalarType dtype) {
  std::vector<Tensor> inputs = sample(dtype);
  const Tensor few = torch::tensor({0.0, -0.0, 0.5, -1.0, 0.0}, at::kDouble).to(dtype);
  for (size_t i = 0; i < 5; ++i)
    inputs[i] = few.index_select(0, torch::randint(0, 5, {8 * 64}, at::kLong)).view({8, 64});
  // Rows in which a zero is the largest, and the smallest one.
  for (size_t i = 0; i < 2; ++i) {
    inputs[i].slice(0, 0, 3).clamp_max_(0);
    inputs[i].slice(0, 3, 6).clamp_min_(0);
  }
  return inputs;
}

std::string with_dtype(std::string text, const std::string& name) {
  for (size_t at; (at = text.find("DTYPE")) != std::string::npos;) text.replace(at, 5, name);
  return text;
}

/// A result of a case, and the same after one more op, which gives every rule a reader to fuse
/// with.
struct Shown {
  const RuleCase* rule;
  bool read_again;
};

/// One graph with all these cases.
std::string graph_of(std::span<const RuleCase* const> cases, at::ScalarType dtype,
                     std::vector<Shown>& shown) {
  const std::string name = ir::dtype_name(dtype);
  std::string text = with_dtype(
      "graph g(%x: DTYPE[8, 64] user_input 0, %y: DTYPE[8, 64] user_input 1, %z: DTYPE[8, 64] "
      "user_input 2, %u: DTYPE[8, 64] user_input 3, %v: DTYPE[8, 64] user_input 4, %m: bool[8, 64] "
      "user_input 5, %i: i64[8, 64] user_input 6, %r: i64[6] user_input 7, %s: f32[] user_input 8, "
      "%k: i64[] user_input 9) {",
      name);
  std::string returned;
  const auto give_back = [&](const std::string& value, Shown what) {
    returned +=
        (returned.empty() ? "%" : ", %") + value + ": output " + std::to_string(shown.size());
    shown.push_back(what);
  };
  int count = 0;
  for (const RuleCase* rule : cases) {
    const std::string types = with_dtype(rule->result, name), id = std::to_string(count++);
    const size_t second = types.find("; ");
    const std::string type = types.substr(0, second), value = "a" + id;
    text += "\n  %" + value + ": " + type;
    if (second != std::string::npos) text += ", %b" + id + ": " + types.substr(second + 2);
    text += " = " + with_dtype(rule->call, name);
    const bool is_bool = type.starts_with("bool");
    text += "\n  %c" + id + ": " + type + " = aten." + (is_bool ? "logical_not" : "neg") + "(%" +
            value + ")";
    give_back(value, {rule, false});
    if (second != std::string::npos) give_back("b" + id, {rule, false});
    give_back("c" + id, {rule, true});
  }
  return text + "\n  return " + returned + "\n}";
}

std::vector<const RuleCase*> cases_of(at::ScalarType dtype) {
  std::vector<const RuleCase*> cases;
  for (const RuleCase& rule : rule_cases())
    if (runs_with(rule, dtype)) cases.push_back(&rule);
  return cases;
}

/// Where a result breaks its promise; `wide` is eager's in float64.
Tensor broken(Promise promise, const Tensor& got, const Tensor& eager, const Tensor& wide) {
  const Tensor a = got.to(at::kDouble), b = eager.to(at::kDouble);
  Tensor differs = (a != b) & ((a == a) | (b == b));
  if (!c10::isFloatingType(got.scalar_type()) || promise == Promise::Zero) return differs;
  if (promise == Promise::Bits) return differs | ((a == 0) & (a.signbit() != b.signbit()));
  const double eps = test::eps_of(got.scalar_type());
  Tensor bound = (b - wide).abs();
  if (promise == Promise::Near) {
    bound = bound + 2 * eps * wide.abs();
  } else {
    const Tensor finite = wide.masked_select(wide.isfinite()).abs();
    bound = 2 * bound + 16 * eps * (finite.numel() == 0 ? 0 : finite.max().item<double>());
  }
  // Where eager has NaN for an infinity, the infinity is right.
  return differs & ~((a - wide).abs() <= bound) & (a != wide);
}

void expect_what_eager_gives(std::vector<Tensor> (*make_inputs)(at::ScalarType)) {
  torch::manual_seed(5);
  const auto judge = backends::eager::make_backend();
  const auto reference = make_backend(make_reference_compiler(), judge);
  const auto generated = backend("llvm");
  for (at::ScalarType dtype : kDtypes) {
    const std::vector<const RuleCase*> cases = cases_of(dtype);
    std::vector<Shown> shown, again;
    const ir::Graph graph = ir::parse(graph_of(cases, dtype, shown));
    std::vector<Tensor> inputs = make_inputs(dtype);
    const std::vector<Tensor> expected = judge->compile(graph, {})->run(inputs);
    std::vector<Tensor> wide = expected;
    if (c10::isFloatingType(dtype)) {
      const ir::Graph in_f64 = ir::parse(graph_of(cases, at::kDouble, again));
      std::vector<Tensor> wider = inputs;
      for (size_t i = 0; i < 5; ++i) wider[i] = inputs[i].to(at::kDouble);
      wide = judge->compile(in_f64, {})->run(wider);
    }
    for (const auto& engine : {reference, generated}) {
      const std::unique_ptr<Executable> compiled = engine->compile(graph, {});
      EXPECT_EQ(compiled->report().find("in eager"), std::string::npos) << compiled->report();
      const std::vector<Tensor> got = compiled->run(inputs);
      for (size_t i = 0; i < shown.size(); ++i) {
        SCOPED_TRACE(ir::dtype_name(dtype) + " " + shown[i].rule->call +
                     (shown[i].read_again ? ", read by another op" : "") +
                     (engine == reference ? ", reference" : ", generated"));
        ASSERT_EQ(got[i].scalar_type(), expected[i].scalar_type());
        const Tensor wrong =
            broken(shown[i].rule->promise, got[i], expected[i], wide[i].to(at::kDouble));
        if (!wrong.any().item<bool>()) continue;
        ADD_FAILURE() << wrong.sum().item<int64_t>() << " elements differ, the first one is "
                      << got[i].masked_select(wrong)[0].item<double>() << ", in eager "
                      << expected[i].masked_select(wrong)[0].item<double>() << ", in float64 "
                      << wide[i].masked_select(wrong)[0].item<double>();
      }
    }
  }
}

TEST(Rules, GiveWhatEagerGives) { expect_what_eager_gives(sample); }
TEST(Rules, GiveWhatEagerGivesOfSpecialValues) { expect_what_eager_gives(special_sample); }
TEST(Rules, GiveWhatEagerGivesOfZeros) { expect_what_eager_gives(zeros_sample); }

// On the list of differences: eager's vectors make a NaN of these.
TEST(Rules, AreExactWhereEagersVectorsMakeANaN) {
  const ir::Graph graph = ir::parse(R"(
    graph g(%x: f32[64] user_input 0, %y: f32[64] user_input 1) {
      %a: f32[64] = aten.fmod.Tensor(%x, %y)
      %b: f32[64] = aten.remainder.Tensor(%x, %y)
      %c: f32[64] = aten.gelu(%x, approximate="none")
      return %a: output 0, %b: output 1, %c: output 2
    })");
  const auto compiled = backend("llvm")->compile(graph, {});
  const Tensor large = torch::full({64}, 1e15), small = torch::full({64}, 1e-30);
  std::vector<Tensor> quotient_overflows = {large, small},
                      infinite = {torch::full({64}, HUGE_VAL), small};

  const std::vector<Tensor> rests = compiled->run(quotient_overflows);

  EXPECT_TRUE(rests[0].equal(torch::full({64}, std::fmod(1e15F, 1e-30F))));
  EXPECT_TRUE(rests[1].equal(rests[0]));
  EXPECT_TRUE(compiled->run(infinite)[2].equal(infinite[0]));
}

/// `aten::add.Tensor` of `aten.add.Tensor(%x, ...)`.
std::string op_of(const RuleCase& rule) {
  std::string name(rule.call);
  name.resize(name.find('('));
  return name.replace(name.find('.'), 1, "::");
}

TEST(Rules, EachHasACase) {
  std::set<std::string> covered;
  for (const RuleCase& rule : rule_cases()) covered.insert(op_of(rule));
  for (const Rule* rule : all_rules())
    EXPECT_TRUE(covered.erase(full_name(*rule))) << full_name(*rule) << " has no case";
  EXPECT_TRUE(covered.empty()) << *covered.begin() << " has a case and no rule";
}

/// Runs the graph, in a trace too.
std::vector<Tensor> interpret(const ir::Graph& graph, std::vector<Tensor> inputs) {
  return backend("eager")->compile(graph, {})->run(inputs);
}

// A decomposition or a pass that takes the op away would leave its rule to rot.
TEST(Rules, EachIsReachedFromACompiledFunction) {
  for (const RuleCase& rule : rule_cases()) {
    SCOPED_TRACE(rule.call);
    std::vector<Shown> shown;
    const RuleCase* const cases[] = {&rule};
    const ir::Graph graph = ir::parse(graph_of(cases, first_dtype(rule), shown));
    const Options options{.backend = "llvm"};
    const auto compiled = compile(
        [&](const std::vector<Tensor>& inputs) { return interpret(graph, inputs); }, options);
    torch::NoGradGuard no_grad;
    compiled(sample(first_dtype(rule)));
    const ir::Graph forward = compiled.entries()[0].forward();
    bool found = false;
    forward.for_each_node([&](const ir::Node& node) {
      const Rule* used = find_rule(Call(forward, node), make_reference_compiler()->target());
      found = found || (used != nullptr && full_name(*used) == op_of(rule));
    });
    EXPECT_TRUE(found) << ir::print(forward);
    EXPECT_EQ(compiled.report().find("left to libtorch"), std::string::npos) << compiled.report();
  }
}

// What the cut takes to be fused is: no call of an operator is left of it. With every dtype of the
// case: where the row did not apply, eager would be compared with itself.
TEST(Rules, TheCutIsToldWhatIsFused) {
  const auto llvm = backend("llvm");
  const auto judge = backends::eager::make_backend();
  const auto compiler = make_reference_compiler();
  for (at::ScalarType dtype : kDtypes) {
    for (const RuleCase* rule : cases_of(dtype)) {
      SCOPED_TRACE(ir::dtype_name(dtype) + " " + rule->call);
      std::vector<Shown> shown;
      const RuleCase* const cases[] = {rule};
      const ir::Graph graph = ir::parse(graph_of(cases, dtype, shown));
      graph.for_each_node([&](const ir::Node& node) {
        const Rule* used = find_rule(Call(graph, node), compiler->target());
        ASSERT_NE(used, nullptr);
        EXPECT_EQ(llvm->can_fuse(graph, node), used->weight != Weight::Pass);
      });
      for (const Step& step : make_host_list(graph, {}, *compiler, *judge).steps)
        EXPECT_FALSE(std::holds_alternative<LibraryStep>(step.what));
    }
  }
}

// Tagged pointwise or decomposed, but no kernel of ours: libtorch runs it, and the cut keeps it.
TEST(Rules, WhatHasNoneIsNotFused) {
  const auto llvm = backend("llvm");
  for (const char* call : {"aten.frac(%x)", "aten.xlogy.Tensor(%x, %x)", "aten.silu(%x)",
                           "aten.bernoulli.p(%x, 0.5)", "aten.cumsum(%x, 0)"}) {
    const ir::Graph graph =
        ir::parse(std::string("graph g(%x: f32[8] user_input 0) { %y: f32[8] = ") + call +
                  " return %y: output 0 }");
    graph.for_each_node(
        [&](const ir::Node& node) { EXPECT_FALSE(llvm->can_fuse(graph, node)) << call; });
  }
}

}  // namespace
}  // namespace tandem::loops
