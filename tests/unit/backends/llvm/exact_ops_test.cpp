#include "backends/eager/eager_backend.h"
#include "loops/host/kernel_backend.h"
#include "tandem/backend.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

// What is promised to have eager's bits: arithmetic, comparisons, selection, conversions. The
// number of elements fills eager's vectors: its loops over a rest round some 16-bit ops
// differently.

namespace tandem::loops {
namespace {

using at::Tensor;

struct OpCase {
  const char* call;    // of %x, %y of one dtype, %m: bool, %s: f32[]
  const char* result;  // dtype; empty: that of x
  bool floats_only = false;
};

constexpr OpCase kCases[] = {
    {"aten.add.Tensor(%x, %y, alpha=1)", ""},
    {"aten.add.Tensor(%x, %y, alpha=2)", ""},
    {"aten.add.Tensor(%x, %y, alpha=0.3)", "", true},
    {"aten.add.Scalar(%x, 0.3, alpha=1)", "", true},
    {"aten.add.Scalar(%x, 3, alpha=2)", ""},
    {"aten.add.Tensor(%x, %s, alpha=1)", "", true},
    {"aten.sub.Tensor(%x, %y, alpha=1)", ""},
    {"aten.sub.Tensor(%x, %y, alpha=0.7)", "", true},
    {"aten.rsub.Scalar(%x, 0.3, alpha=1)", "", true},
    {"aten.rsub.Scalar(%x, 3, alpha=2)", ""},
    {"aten.mul.Tensor(%x, %y)", ""},
    {"aten.mul.Tensor(%x, %s)", "", true},
    {"aten.mul.Scalar(%x, 0.3)", "", true},
    {"aten.div.Tensor(%x, %y)", "", true},
    {"aten.div.Scalar(%x, 0.3)", "", true},
    {"aten.div.Tensor_mode(%x, %y, rounding_mode=\"floor\")", "", true},
    {"aten.div.Tensor_mode(%x, %y, rounding_mode=\"trunc\")", "", true},
    {"aten.remainder.Tensor(%x, %y)", "", true},
    {"aten.remainder.Scalar(%x, 0.3)", "", true},
    {"aten.fmod.Tensor(%x, %y)", "", true},
    {"aten.neg(%x)", ""},
    {"aten.abs(%x)", ""},
    {"aten.sign(%x)", ""},
    {"aten.floor(%x)", "", true},
    {"aten.ceil(%x)", "", true},
    {"aten.trunc(%x)", "", true},
    {"aten.round(%x)", "", true},
    {"aten.reciprocal(%x)", "", true},
    {"aten.rsqrt(%x)", "", true},
    {"aten.relu(%x)", ""},
    {"aten.maximum(%x, %y)", ""},
    {"aten.minimum(%x, %y)", ""},
    {"aten.clamp(%x, -0.3, 0.7)", "", true},
    {"aten.clamp(%x, -1, 2)", ""},
    {"aten.clamp_min(%x, 0.1)", "", true},
    {"aten.clamp_max(%x, 1)", ""},
    {"aten.pow.Tensor_Scalar(%x, 2)", "", true},
    {"aten.pow.Tensor_Scalar(%x, 3)", "", true},
    {"aten.pow.Tensor_Scalar(%x, -2)", "", true},
    {"aten.eq.Tensor(%x, %y)", "bool"},
    {"aten.lt.Tensor(%x, %y)", "bool"},
    {"aten.ge.Scalar(%x, 1)", "bool"},
    {"aten.gt.Scalar(%x, 0.3)", "bool"},
    {"aten.le.Scalar(%x, 0.1)", "bool"},
    {"aten.ne.Scalar(%x, 0)", "bool"},
    {"aten.logical_not(%x)", "bool"},
    {"aten.logical_and(%x, %y)", "bool"},
    {"aten.where.self(%m, %x, %y)", ""},
    {"aten.masked_fill.Scalar(%x, %m, 1)", ""},
    {"aten.threshold_backward(%x, %y, 0)", "", true},
    {"aten.sigmoid_backward(%x, %y)", "", true},
    {"aten.tanh_backward(%x, %y)", "", true},
    {"aten.addcmul(%x, %y, %x, value=0.3)", "", true},
    {"aten.addcdiv(%x, %x, %y, value=0.3)", "", true},
    {"aten.lerp.Scalar(%x, %y, 0.3)", "", true},
    {"aten.lerp.Scalar(%x, %y, 0.8)", "", true},
    {"aten._to_copy(%x, dtype=f32)", "f32"},
    {"aten._to_copy(%x, dtype=f64)", "f64"},
    {"aten._to_copy(%x, dtype=bf16)", "bf16"},
    {"aten._to_copy(%x, dtype=f16)", "f16"},
    {"aten._to_copy(%x, dtype=i64)", "i64"},
    {"aten._to_copy(%x, dtype=i32)", "i32"},
    {"aten._to_copy(%x, dtype=i8)", "i8"},
    {"aten._to_copy(%x, dtype=bool)", "bool"},
    {"aten.tril(%x, 1)", ""},
    {"aten.amax(%x, [1], true)", "rows"},
    {"aten.amin(%x, [0], true)", "columns"},
};

Tensor sample(at::ScalarType dtype) {
  if (c10::isFloatingType(dtype)) return (torch::randn({8, 64}) * 3).to(dtype);
  return torch::randint(-5, 6, {8, 64}, at::kLong).to(dtype);
}

/// One graph with all calls, so that they are compiled together.
std::string graph_of(at::ScalarType dtype, std::vector<const OpCase*>& calls) {
  const std::string name = ir::dtype_name(dtype);
  std::string text =
      "graph g(%x: " + name + "[8, 64] user_input 0, %y: " + name +
      "[8, 64] user_input 1, %m: bool[8, 64] user_input 2, %s: f32[] user_input 3) {";
  std::string returned;
  for (const OpCase& op : kCases) {
    if (op.floats_only && !c10::isFloatingType(dtype)) continue;
    std::string result = *op.result == '\0' ? name : op.result;
    std::string shape = "[8, 64]";
    if (result == "rows" || result == "columns") {
      shape = result == "rows" ? "[8, 1]" : "[1, 64]";
      result = name;
    }
    const std::string at = std::to_string(calls.size());
    text += "\n  %r" + at + ": " + result + shape + " = " + op.call;
    returned += (returned.empty() ? "%r" : ", %r") + at + ": output " + at;
    calls.push_back(&op);
  }
  return text + "\n  return " + returned + "\n}";
}

TEST(ExactOps, GiveEagersBits) {
  torch::manual_seed(5);
  const auto judge = eager::make_backend();
  const auto reference = make_backend(make_reference_compiler(), judge);
  const auto generated = backend("llvm");
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                               at::kInt, at::kShort, at::kChar}) {
    std::vector<const OpCase*> calls;
    const ir::Graph graph = ir::parse(graph_of(dtype, calls));
    std::vector<Tensor> inputs = {sample(dtype), sample(dtype), torch::rand({8, 64}) > 0.5,
                                  torch::tensor(0.3f)};
    const std::vector<Tensor> expected = judge->compile(graph, {})->run(inputs);
    for (const auto& engine : {reference, generated}) {
      const std::vector<Tensor> got = engine->compile(graph, {})->run(inputs);
      for (size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(ir::dtype_name(dtype) + " " + calls[i]->call +
                     (engine == reference ? ", reference" : ", generated"));
        ASSERT_EQ(got[i].scalar_type(), expected[i].scalar_type());
        const Tensor differs =
            (got[i] != expected[i]) & ((got[i] == got[i]) | (expected[i] == expected[i]));
        if (!differs.any().item<bool>()) continue;
        ADD_FAILURE() << differs.sum().item<int64_t>() << " elements differ, the first one is "
                      << got[i].masked_select(differs)[0].item<double>() << ", in eager "
                      << expected[i].masked_select(differs)[0].item<double>();
      }
    }
  }
}

}  // namespace
}  // namespace tandem::loops
