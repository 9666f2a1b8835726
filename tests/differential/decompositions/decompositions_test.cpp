#include "cases.h"
#include "ir/ivalue.h"
#include "ops/decompositions/table.h"
#include "ops/metadata/meta_tensor.h"
#include "passes/decompose.h"
#include "support/error_text.h"
#include "support/graph_text.h"
#include "support/one_thread.h"
#include "support/paths.h"
#include "tandem/backend.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace tandem::test {

at::Tensor Draw::normal(std::vector<int64_t> sizes) {
  const auto seed = static_cast<uint64_t>(integer(0, 1 << 30));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  if (special) {
    const at::Tensor edges =
        at::tensor({0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 21.0, -30.0, 100.0, 1e15,
                    -1e15, HUGE_VAL, -HUGE_VAL, std::nan("")},
                   at::kDouble);
    const at::Tensor picked = at::randint(0, edges.numel(), sizes, generator, at::kLong);
    return edges.take(picked).to(dtype);
  }
  at::Tensor values = at::randn(sizes, generator, at::kDouble) * 2;
  const at::Tensor kind = at::randint(0, 40, sizes, generator, at::kLong);
  int64_t place = 0;
  for (const double special : {-3.0, 0.0, 0.5, 3.0})
    values = values.masked_fill(kind == place++, special);
  return random.relaid(values.to(dtype));
}

at::Tensor Draw::uniform(std::vector<int64_t> sizes, double low, double high) {
  const auto seed = static_cast<uint64_t>(integer(0, 1 << 30));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return random.relaid((at::rand(sizes, generator, at::kDouble) * (high - low) + low).to(dtype));
}

namespace {

constexpr int kCalls = 16;

std::vector<DecompositionCase> all_cases() {
  std::vector<DecompositionCase> cases;
  for (const auto& some : {activation_cases(), loss_cases(), norm_cases(), other_cases()})
    cases.insert(cases.end(), some.begin(), some.end());
  return cases;
}

/// A graph that makes one call, and the tensors that go in.
struct OneCall {
  ir::Graph graph{"one_call"};
  std::vector<at::Tensor> inputs;
};

OneCall one_call(const std::string& op, const Arguments& args) {
  OneCall result;
  ops::MetadataPropagator metadata;
  const auto& arguments = ops::find_op(op).schema().arguments();
  Builder builder(result.graph);
  const auto value_of = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return ir::kNoValue;
    const auto role = ir::Descriptor::user_input(static_cast<int64_t>(result.inputs.size()));
    result.inputs.push_back(tensor);
    return result.graph.add_input(ir::Type(metadata.meta_of(tensor).type), role).id();
  };
  Builder::Operands operands;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool undefined = args[i].isTensor() && !args[i].toTensor().defined();
    operands.push_back(
        undefined ? ir::Operand()
                  : ir::to_operand(result.graph, args[i], arguments[i].real_type(), value_of));
  }
  int64_t place = 0;
  for (const Expr& expr : builder.ops(op, operands))
    result.graph.add_output(expr.id(), ir::Descriptor::output(place++));
  return result;
}

std::vector<at::Tensor> run(const ir::Graph& graph, std::vector<at::Tensor> inputs) {
  torch::manual_seed(17);
  return backend("eager")->compile(graph, {})->run(inputs);
}

Arguments in_double(const Arguments& args) {
  Arguments wide;
  for (const c10::IValue& arg : args) {
    const bool narrow =
        arg.isTensor() && arg.toTensor().defined() && arg.toTensor().is_floating_point();
    wide.push_back(narrow ? c10::IValue(arg.toTensor().to(at::kDouble)) : arg);
  }
  return wide;
}

double distance(const at::Tensor& a, const at::Tensor& exact) {
  const at::Tensor difference = (a.to(at::kDouble) - exact).abs();
  // Equal infinities and two NaNs are no difference.
  const at::Tensor same =
      (a.to(at::kDouble) == exact).logical_or(a.isnan().logical_and(exact.isnan()));
  return difference.masked_fill(same, 0).max().item<double>();
}

double largest(const at::Tensor& tensor) {
  return tensor.nan_to_num(0, 0, 0).abs().max().item<double>();
}

/// The bound of docs/reference/differences.md: twice eager's distance to float64, and four eps of
/// the largest value on the way, which may be an operand.
void expect_close(const at::Tensor& decomposed, const at::Tensor& eager, const at::Tensor& exact,
                  double largest_operand) {
  ASSERT_EQ(decomposed.scalar_type(), eager.scalar_type());
  ASSERT_EQ(decomposed.sizes(), eager.sizes());
  for (int64_t dim = 0; dim < eager.dim(); ++dim) {
    if (eager.size(dim) == 1) continue;
    EXPECT_EQ(decomposed.stride(dim), eager.stride(dim)) << "stride " << dim;
  }
  if (eager.numel() == 0) return;
  if (!eager.is_floating_point()) {
    EXPECT_TRUE(at::equal(decomposed, eager));
    return;
  }
  double eps = std::numeric_limits<double>::epsilon();
  if (eager.scalar_type() == at::kFloat) eps = std::numeric_limits<float>::epsilon();
  if (eager.scalar_type() == at::kBFloat16) eps = std::ldexp(1.0, -7);
  const double scale = std::max(largest(exact), largest_operand);
  const double steps = eager.scalar_type() == at::kDouble ? 32 : 4;  // it is its own judge
  EXPECT_LE(distance(decomposed, exact), 2 * distance(eager, exact) + steps * eps * scale)
      << "eager's distance is " << distance(eager, exact) << ", the largest value " << scale;
}

std::string text_of(const Arguments& args) {
  std::ostringstream out;
  for (const c10::IValue& arg : args) {
    if (arg.isTensor() && arg.toTensor().defined()) {
      out << arg.toTensor().scalar_type() << arg.toTensor().sizes() << "/"
          << arg.toTensor().strides();
    } else if (!arg.isTensor()) {
      out << arg;
    }
    out << ", ";
  }
  return out.str();
}

class Decomposed : public ::testing::TestWithParam<DecompositionCase> {};

TEST_P(Decomposed, ComputesWhatTheOpDoes) {
  const DecompositionCase& test_case = GetParam();
  const test::OneThread calm;
  int64_t rewritten = 0;
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    if (dtype == at::kBFloat16 && !test_case.bfloat16) continue;
    for (uint64_t i = 0; i < kCalls && !HasFailure(); ++i) {
      Draw draw(i * 7919 + 1, dtype);
      const Arguments args = test_case.arguments(draw);
      SCOPED_TRACE(test_case.op + "(" + text_of(args) + ")");
      OneCall call = one_call(test_case.op, args);
      const std::vector<at::Tensor> eager = run(call.graph, call.inputs);
      OneCall wide = one_call(test_case.op, in_double(args));
      const std::vector<at::Tensor> exact = run(wide.graph, wide.inputs);

      rewritten += passes::decompose(call.graph).changes;
      ir::verify(call.graph);
      const std::vector<at::Tensor> decomposed = run(call.graph, call.inputs);

      double scale = 0;
      for (const at::Tensor& input : call.inputs) {
        if (input.is_floating_point()) scale = std::max(scale, largest(input));
      }
      ASSERT_EQ(decomposed.size(), eager.size());
      for (size_t r = 0; r < eager.size(); ++r) {
        SCOPED_TRACE("result " + std::to_string(r));
        const bool unspecified =
            std::ranges::find(test_case.unspecified, r) != test_case.unspecified.end();
        ASSERT_EQ(decomposed[r].defined(), eager[r].defined());
        if (eager[r].defined() && !unspecified)
          expect_close(decomposed[r], eager[r], exact[r], scale);
      }
    }
  }
  EXPECT_GT(rewritten, 0) << "the table's body declined every call";
}

// NaN and infinities come where eager's kernel has them, and nowhere else.
TEST(DecomposedActivations, KeepSpecialValues) {
  const test::OneThread calm;
  for (const DecompositionCase& test_case : activation_cases()) {
    for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      if (dtype == at::kBFloat16 && !test_case.bfloat16) continue;
      for (uint64_t i = 0; i < 4 * kCalls; ++i) {
        Draw draw(i * 7919 + 1, dtype);
        draw.special = true;
        const Arguments args = test_case.arguments(draw);
        OneCall call = one_call(test_case.op, args);
        const std::vector<at::Tensor> eager = run(call.graph, call.inputs);
        passes::decompose(call.graph);
        const std::vector<at::Tensor> decomposed = run(call.graph, call.inputs);
        for (size_t r = 0; r < eager.size(); ++r) {
          if (std::ranges::find(test_case.unspecified, r) != test_case.unspecified.end()) continue;
          const at::Tensor a = decomposed[r].to(at::kDouble), b = eager[r].to(at::kDouble);
          const double far = dtype == at::kBFloat16 ? 0.02 : 1e-4;
          at::Tensor wrong = at::isclose(a, b, far, far, /*equal_nan=*/true).logical_not();
          // On the list of differences: eager's vectors make a NaN of gelu of an infinity.
          if (test_case.op == "gelu") wrong = wrong & a.isinf().logical_not();
          if (!wrong.any().item<bool>()) continue;
          const auto place = wrong.flatten().to(at::kInt).argmax().item<int64_t>();
          std::ostringstream operands;
          for (const at::Tensor& input : call.inputs) {
            if (input.sizes() == wrong.sizes())
              operands << ' ' << input.flatten()[place].item<double>();
          }
          ADD_FAILURE() << test_case.op << " of " << c10::toString(dtype) << operands.str() << ": "
                        << a.flatten()[place].item<double>() << ", in eager "
                        << b.flatten()[place].item<double>();
          break;
        }
      }
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<DecompositionCase>& info) {
  std::string name = info.param.op;
  std::ranges::replace(name, '.', '_');
  return name + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Ops, Decomposed, ::testing::ValuesIn(all_cases()), case_name);

TEST(DecompositionTable, EveryRowIsTested) {
  std::set<std::string> tested, rows;
  for (const DecompositionCase& test_case : all_cases()) tested.insert(test_case.op);
  for (const ops::DecompositionRow& row : ops::decomposition_rows()) rows.emplace(row.op);
  EXPECT_EQ(tested, rows);
}

/// The table as docs/reference/decompositions.md has it.
std::string table_text() {
  std::string text = "| op | exact | as |\n| --- | --- | --- |\n";
  for (const ops::DecompositionRow& row : ops::decomposition_rows()) {
    std::string formula(row.formula);
    for (size_t bar = formula.find('|'); bar != std::string::npos; bar = formula.find('|', bar + 2))
      formula.insert(bar, "\\");
    text += "| `" + std::string(row.op) + "` | " + (row.exact ? "yes" : "no") + " | " + formula +
            " |\n";
  }
  return text;
}

TEST(DecompositionTable, HasItsPage) {
  const std::filesystem::path path =
      std::filesystem::path(kTestsDir).parent_path() / "docs/reference/decompositions.md";
  std::ifstream file(path);
  std::stringstream read;
  read << file.rdbuf();
  const std::string page = read.str();
  const std::string prose = page.substr(0, page.find("| op |"));
  if (std::getenv("TANDEM_UPDATE_GOLDEN")) std::ofstream(path) << prose << table_text();
  EXPECT_EQ(page, prose + table_text()) << "TANDEM_UPDATE_GOLDEN=1 writes it";
}

TEST(DecompositionTable, RefusesAnOpThatDoesNotExist) {
  EXPECT_EQ(
      error_text<UserError>([] {
        Decompositions().set("aten::gelou", [](const OpCall&) { return std::vector<Expr>{}; });
      }),
      "options: decompositions: no op is called \"aten::gelou\"\n  near:   aten.gelu\n  remedy: "
      "write the name with its overload: \"aten::sum.dim_IntList\"");
}

TEST(DecompositionTable, RefusesAnEmptyBody) {
  EXPECT_EQ(
      error_text<UserError>([] { Decompositions().set("gelu", nullptr); }),
      "options: decompositions: the body for gelu is empty\n  remedy: give a function, or call "
      "keep(\"gelu\") to leave the op alone");
}

constexpr const char* kTwoOps = R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.silu(%x)  # net.cpp:3
      %b: f32[4] = aten.relu(%a)  # net.cpp:4
      return %b: output 0
    })";

TEST(Decompose, UsersRowsWinAndKeptOpsStay) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine;
  mine.keep("relu").set("aten::silu", [](const OpCall& call) -> std::vector<Expr> {
    const Expr x = call.tensor("self");
    return {x * sigmoid(x)};
  });

  passes::decompose(graph, Decompositions::standard().merge(mine));

  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %0: f32[4] = aten.sigmoid(%x)  # net.cpp:3
      %a: f32[4] = aten.mul.Tensor(%x, %0)  # net.cpp:3
      %b: f32[4] = aten.relu(%a)  # net.cpp:4
      return %b: output 0
    })");
}

TEST(Decompose, LooksAgainAtWhatABodyMakes) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine = Decompositions::standard().keep("silu");
  mine.set("relu", [](const OpCall& call) -> std::vector<Expr> {
    return {call.builder().op("threshold", {call.tensor("self"), 0, 0})};
  });

  EXPECT_EQ(passes::decompose(graph, mine).changes, 2);
  EXPECT_EQ(ir::print(graph).find("threshold"), std::string::npos);
}

TEST(Decompose, ABodyThatLeadsBackToItsOpIsRefused) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine;
  mine.set("relu", [](const OpCall& call) -> std::vector<Expr> {
    return {call.builder().op("relu", {call.tensor("self")})};
  });

  EXPECT_EQ(
      error_text<UserError>([&] { passes::decompose(graph, mine); }),
      "passes: decomposition of aten.relu leads back to ops with a decomposition, 8 times over"
      "\n  at:     net.cpp:4\n  remedy: build the body from ops that have none, or "
      "keep(\"aten::relu\")");
}

TEST(Decompose, ABodyWithAnotherTypeIsRefused) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine;
  mine.set("relu", [](const OpCall& call) -> std::vector<Expr> {
    return {unsqueeze(call.tensor("self"), 0)};
  });
  EXPECT_EQ(error_text<UserError>([&] { passes::decompose(graph, mine); }),
            "passes: decomposition of aten.relu gives result 0 the type f32[1, 4]: the op returns "
            "f32[4]\n  at:     net.cpp:4\n  remedy: return the sizes and the device of the op");
}

TEST(Decompose, ABodyWithTheWrongNumberOfResultsIsRefused) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine;
  mine.set("relu", [](const OpCall& call) -> std::vector<Expr> {
    return {call.tensor("self"), call.tensor("self")};
  });
  EXPECT_EQ(error_text<UserError>([&] { passes::decompose(graph, mine); }),
            "passes: decomposition of aten.relu returns 2 results: the op has 1\n  at:     "
            "net.cpp:4\n  schema: aten::relu(Tensor self) -> Tensor\n  remedy: return one Expr per "
            "result, undefined where there is none");
}

// The caller may write to a result; an input must not change with it.
TEST(Decompose, AnOperandThatIsReturnedIsCopied) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine;
  mine.set("relu", [](const OpCall& call) -> std::vector<Expr> { return {call.tensor("self")}; });
  passes::decompose(graph, mine);
  EXPECT_GRAPH_EQ(graph, R"(
    graph g(%x: f32[4] user_input 0) {
      %a: f32[4] = aten.silu(%x)  # net.cpp:3
      %b: f32[4] = aten.clone(%a, memory_format=none)  # net.cpp:4
      return %b: output 0
    })");
}

TEST(Decompose, ABodyThatDeclinesLeavesNothingBehind) {
  ir::Graph graph = ir::parse(kTwoOps);
  Decompositions mine;
  mine.set("relu", [](const OpCall& call) -> std::vector<Expr> {
    exp(call.tensor("self"));
    return {};
  });
  EXPECT_EQ(passes::decompose(graph, mine).changes, 0);
  EXPECT_GRAPH_EQ(graph, kTwoOps);
}

TEST(DecompositionTable, EveryRowNamesAnOpAndHasAFormula) {
  for (const ops::DecompositionRow& row : ops::decomposition_rows()) {
    ops::find_op(std::string(row.op));
    EXPECT_FALSE(row.formula.empty()) << row.op;
  }
}

}  // namespace
}  // namespace tandem::test
