#include "ops/op_table.h"

#include "ops/op_row.h"
#include "ops/rules/rules.h"
#include "unit/ops/eager_judge.h"

#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <cstring>
#include <set>
#include <thread>

namespace tandem::ops {
namespace {

const OpInfo& facts(const std::string& name) { return info(find_op(name)); }

TEST(OpTable, ReadsViewsFromTheSchema) {
  for (const char* name :
       {"view", "t", "transpose.int", "expand", "as_strided", "slice.Tensor", "select.int",
        "split.Tensor", "unbind.int", "detach", "alias", "_reshape_alias"}) {
    EXPECT_TRUE(facts(name).is_view) << name;
    EXPECT_EQ(facts(name).work, Work::Other) << name;  // none
  }
  EXPECT_FALSE(facts("clone").is_view);
  EXPECT_FALSE(facts("add_.Tensor").is_view);  // its result is its argument, rewritten
}

TEST(OpTable, ReadsWritesFromTheSchema) {
  EXPECT_TRUE(facts("add_.Tensor").writes_arguments);
  EXPECT_TRUE(facts("add.out").writes_arguments);
  EXPECT_TRUE(facts("_foreach_add_.Scalar").writes_arguments);
  EXPECT_TRUE(facts("_native_batch_norm_legit").writes_arguments);
  EXPECT_FALSE(facts("add.Tensor").writes_arguments);
  EXPECT_FALSE(facts("native_batch_norm").writes_arguments);  // it does write, and does not say so
  EXPECT_TRUE(facts("native_batch_norm").hidden_writes);
}

// Dropping a draw would shift the random stream of every later op; dropping a check would lose an
// error.
TEST(OpTable, KeepsDrawsEffectsAndWrites) {
  for (const char* name :
       {"bernoulli.p", "rand", "randn_like", "native_dropout", "multinomial", "_assert_async.msg",
        "_functional_assert_async.msg", "_print", "native_batch_norm", "add_.Tensor",
        "mkldnn_rnn_layer_backward", "_foreach_mul_.Scalar"}) {
    EXPECT_FALSE(facts(name).removable()) << name;
    EXPECT_FALSE(facts(name).mergeable()) << name;
  }
  for (const char* name :
       {"add.Tensor", "mm", "view", "native_layer_norm", "_unsafe_view", "full"}) {
    EXPECT_TRUE(facts(name).removable()) << name;
    EXPECT_TRUE(facts(name).mergeable()) << name;
  }
}

// Nobody calls an op without results for anything but what else it does.
TEST(OpTable, AnOpWithoutResultsHasAnEffect) {
  auto library =
      torch::Library(torch::Library::FRAGMENT, "tandem_test", std::nullopt, __FILE__, __LINE__);
  library.def("tell(Tensor x) -> ()");
  const auto tell = c10::Dispatcher::singleton().findSchemaOrThrow("tandem_test::tell", "");
  EXPECT_TRUE(info(tell).has_effect);
  EXPECT_FALSE(info(tell).removable());
  EXPECT_FALSE(facts("_foreach_add_.Scalar").has_effect);  // it writes, which is known as such
}

TEST(OpTable, TellsWhatOnlyDataCanAnswer) {
  for (const char* name : {"_local_scalar_dense", "equal", "allclose"})
    EXPECT_TRUE(facts(name).reads_data) << name;
  for (const char* name :
       {"nonzero", "masked_select", "_unique2", "bincount", "_ctc_loss.Tensor"}) {
    EXPECT_TRUE(facts(name).data_dependent_shape) << name;
  }
  // Tagged as dynamic, but so only for some arguments; those are refused when they come.
  for (const char* name : {"index.Tensor", "_ctc_loss", "repeat_interleave.Tensor"}) {
    EXPECT_FALSE(facts(name).data_dependent_shape) << name;
  }
}

TEST(OpTable, ClassifiesWork) {
  for (const char* name : {"gelu", "hardswish_backward", "clone", "full"})
    EXPECT_EQ(facts(name).work, Work::Pointwise) << name;
  for (const char* name : {"sum.dim_IntList", "gather", "arange", "tril"})
    EXPECT_EQ(facts(name).work, Work::Sweep) << name;
  // Tagged pointwise, `equal` returns one bool; draws are not repeated.
  for (const char* name : {"mm", "convolution_backward", "cat", "sort", "_softmax", "equal",
                           "bernoulli.p", "rrelu_with_noise", "add_.Tensor"})
    EXPECT_EQ(facts(name).work, Work::Other) << name;
}

TEST(OpTable, DecidesFromArgumentsWhetherACallDraws) {
  at::Tensor x = at::rand({1, 1, 2, 4});
  c10::OperatorHandle attention = find_op("_scaled_dot_product_attention_math");
  auto attend = [&](double dropout) {
    return with_defaults(attention, {x, x, x, c10::IValue(), dropout});
  };
  EXPECT_TRUE(draws(attention, attend(0.5)));
  EXPECT_FALSE(draws(attention, attend(0.0)));

  c10::OperatorHandle rrelu = find_op("rrelu_with_noise_functional");
  EXPECT_TRUE(draws(rrelu, with_defaults(rrelu, {x, x, 0.1, 0.3, true})));
  EXPECT_FALSE(draws(rrelu, with_defaults(rrelu, {x, x, 0.1, 0.3, false})));

  c10::OperatorHandle dropout = find_op("native_dropout");
  EXPECT_TRUE(
      draws(dropout, std::vector<c10::IValue>{x, 0.5, c10::IValue()}));  // none means training
  EXPECT_FALSE(draws(dropout, std::vector<c10::IValue>{x, 0.5, false}));
  EXPECT_FALSE(draws(find_op("relu"), std::vector<c10::IValue>{x}));
  EXPECT_TRUE(draws(find_op("bernoulli.p"), std::vector<c10::IValue>{x, 0.0, c10::IValue()}));
}

TEST(OpTable, ListsTheAliasesThatRealStoragesShow) {
  at::Tensor x = at::rand({4, 6});
  auto shares = [&](const at::Tensor& result) { return result.storage().is_alias_of(x.storage()); };
  EXPECT_TRUE(shares(at::_unsafe_view(x, {24})));
  for (const at::Tensor& piece : at::unsafe_split(x, 2, 0)) EXPECT_TRUE(shares(piece));
  for (const at::Tensor& piece : at::unsafe_split_with_sizes(x, {1, 3}, 0))
    EXPECT_TRUE(shares(piece));
  for (const at::Tensor& piece : at::unsafe_chunk(x, 2, 0)) EXPECT_TRUE(shares(piece));
  for (const char* name :
       {"_unsafe_view", "unsafe_split.Tensor", "unsafe_split_with_sizes", "unsafe_chunk"}) {
    EXPECT_TRUE(facts(name).is_view) << name;
  }
}

TEST(OpTable, FindsTheInplaceOverload) {
  auto inplace = [](const char* name) {
    auto found = inplace_overload(find_op(name), at::kFloat);
    return found ? c10::toString(found->operator_name()) : std::string("none");
  };
  EXPECT_EQ(inplace("add.Tensor"), "aten::add_.Tensor");
  EXPECT_EQ(inplace("relu"), "aten::relu_");
  EXPECT_EQ(inplace("relu"), "aten::relu_");  // remembered
  EXPECT_EQ(inplace("mm"), "none");
  EXPECT_EQ(inplace("add_.Tensor"), "none");
  EXPECT_EQ(inplace("where.self"), "none");
  EXPECT_EQ(inplace("convolution"), "none");
  // These exist, but change what a tensor looks like, not what it holds.
  EXPECT_EQ(inplace("squeeze"), "none");
  EXPECT_EQ(inplace("t"), "none");
}

/// Operands for a schema, numbers that 16 bits cannot hold among them; empty if none are known.
torch::jit::Stack operands_of(const c10::FunctionSchema& schema, at::ScalarType dtype,
                              bool single) {
  torch::jit::Stack operands;
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::TypePtr type = argument.real_type();
    const bool scalar = single && !operands.empty();
    if (type->kind() == c10::TypeKind::TensorType) {
      operands.emplace_back(scalar ? at::scalar_tensor(1.1, at::kDouble)
                                   : (at::rand({43}) * 0.8 + 0.1).to(dtype));
    } else if (*type == *c10::NumberType::get()) {
      operands.emplace_back(1.1);
    } else if (argument.default_value()) {
      operands.push_back(*argument.default_value());
    } else if (type->kind() == c10::TypeKind::FloatType) {
      operands.emplace_back(0.7);
    } else {
      return {};
    }
  }
  return operands;
}

// What a backend computes in place has the bits of the op that was recorded.
TEST(OpTable, InplaceOverloadsGiveTheSameBits) {
  int compared = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::") || op->schema().is_mutable()) continue;
    if (info(*op).work != Work::Pointwise || op->schema().returns().size() != 1) continue;
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      const auto inplace = inplace_overload(*op, dtype);
      if (!inplace) continue;
      for (const bool single : {false, true}) {
        torch::jit::Stack stack = operands_of(op->schema(), dtype, single);
        if (stack.empty() || !stack[0].isTensor()) continue;
        torch::jit::Stack in_place = stack;
        in_place[0] = stack[0].toTensor().clone();
        try {
          op->callBoxed(stack);
        } catch (const std::exception&) {
          continue;  // no such call
        }
        const at::Tensor expected = stack[0].toTensor();
        if (expected.scalar_type() != dtype || expected.sizes() != at::IntArrayRef{43}) continue;
        inplace->callBoxed(in_place);
        const at::Tensor found = in_place[0].toTensor();
        EXPECT_EQ(std::memcmp(expected.contiguous().const_data_ptr(),
                              found.contiguous().const_data_ptr(), expected.nbytes()),
                  0)
            << c10::toString(name) << " of " << dtype;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(OpTable, LeavesOutInplaceOverloadsWithOtherBits) {
  const auto offers = [](const char* name, at::ScalarType dtype) {
    return inplace_overload(find_op(name), dtype).has_value();
  };
  EXPECT_FALSE(offers("mul.Scalar", at::kBFloat16));
  EXPECT_FALSE(offers("mul.Scalar", at::kHalf));
  EXPECT_TRUE(offers("mul.Scalar", at::kFloat));
  EXPECT_TRUE(offers("mul.Tensor", at::kHalf));
  EXPECT_FALSE(offers("div.Tensor", at::kComplexFloat));
  EXPECT_TRUE(offers("div.Tensor", at::kFloat));
}

TEST(OpTable, HasEveryOpOnce) {
  std::set<std::string_view> seen;
  for (const OpRow& row : op_rows())
    EXPECT_TRUE(seen.insert(row.op).second) << row.op << " has two rows";
}

TEST(OpTable, NamesOnlyOpsThatTheDispatcherKnows) {
  for (const OpRow& row : op_rows()) {
    std::string name = "aten::" + std::string(row.op.substr(0, row.op.find('.')));
    size_t dot = row.op.find('.');
    std::string overload = dot == std::string_view::npos ? "" : std::string(row.op.substr(dot + 1));
    auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    ASSERT_TRUE(op) << row.op << " is unknown to this libtorch";
    EXPECT_EQ(find_row(*op), &row);
    if (!row.draw_switch.empty()) {
      EXPECT_TRUE(op->schema().argumentIndexWithName(std::string(row.draw_switch))) << row.op;
    }
  }
}

// A rule nobody compared with eager is a guess. Exempt: rules without results, out overloads (they
// share the rule of the functional one), and rules that only refuse.
TEST(OpTable, HasACaseAgainstEagerForEveryRule) {
  std::set<std::string> cases;
  const ::testing::UnitTest& program = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *program.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      std::string name = suite.GetTestInfo(j)->name();
      if (!name.starts_with("SayWhatEagerDoes/")) continue;
      name.erase(0, name.find('/') + 1);
      cases.insert(name.substr(0, name.rfind('_')));
    }
  }
  for (const OpRow& row : op_rows()) {
    bool exempt = row.rule == nullptr || row.rule == rules::nothing || row.rule == rules::index ||
                  row.rule == rules::addr || row.op.ends_with("out");
    std::string name(row.op);
    std::replace(name.begin(), name.end(), '.', '_');
    EXPECT_TRUE(exempt || cases.contains(name))
        << row.op << " has a rule and no case in rules_*_test.cpp";
  }
}

TEST(OpTable, AnswersEveryThreadAlike) {
  std::vector<c10::OperatorHandle> ops;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (auto op = c10::Dispatcher::singleton().findSchema(name)) ops.push_back(*op);
  }
  std::vector<std::vector<const OpInfo*>> answers(4);
  std::vector<std::thread> threads;
  for (auto& answer : answers) {
    threads.emplace_back([&ops, &answer] {
      for (const c10::OperatorHandle& op : ops) answer.push_back(&info(op));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
}

}  // namespace
}  // namespace tandem::ops
