#include "ir/ivalue.h"

#include "support/error_text.h"
#include "tandem/error.h"
#include "tandem/ir/text.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ir {
namespace {

/// Converts the arguments of an operator there and back; tensors are numbered as they come.
class IValueTest : public ::testing::Test {
 protected:
  Operand operand(const char* op, const char* overload, const char* argument,
                  const c10::IValue& value) {
    return to_operand(graph_, value, type(op, overload, argument), [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return kNoValue;
      tensors_.push_back(tensor);
      return ValueId{static_cast<int32_t>(tensors_.size() - 1)};
    });
  }

  c10::IValue back(const char* op, const char* overload, const char* argument,
                   const Operand& operand) {
    return to_ivalue(graph_, operand, type(op, overload, argument),
                     [&](ValueId id) { return tensors_[static_cast<size_t>(id)]; });
  }

  static c10::TypePtr type(const char* op, const char* overload, const char* argument) {
    const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(op, overload).schema();
    return schema.arguments()[static_cast<size_t>(*schema.argumentIndexWithName(argument))]
        .real_type();
  }

  Graph graph_{"g"};
  std::vector<at::Tensor> tensors_;
};

#define EXPECT_CONVERTS(op, overload, argument, value, expected)                     \
  do {                                                                               \
    c10::IValue input{value};                                                        \
    Operand result = operand(op, overload, argument, input);                         \
    EXPECT_EQ(result, Operand(expected)) << op << " " << argument;                   \
    EXPECT_EQ(back(op, overload, argument, result), input) << op << " " << argument; \
  } while (false)

TEST_F(IValueTest, TellsNumbersFromDtypesByTheSchema) {
  EXPECT_CONVERTS("aten::empty_like", "", "dtype", int64_t{6}, c10::ScalarType::Float);
  EXPECT_CONVERTS("aten::empty_like", "", "layout", int64_t{0}, c10::Layout::Strided);
  EXPECT_CONVERTS("aten::empty_like", "", "memory_format", int64_t{2},
                  c10::MemoryFormat::ChannelsLast);
  EXPECT_CONVERTS("aten::empty_like", "", "device", c10::Device("cpu"), c10::Device("cpu"));
  EXPECT_CONVERTS("aten::empty_like", "", "pin_memory", true, true);
  EXPECT_CONVERTS("aten::select", "int", "index", int64_t{6}, Size(6));
}

TEST_F(IValueTest, ConvertsAbsentOptionals) {
  for (const char* argument : {"dtype", "layout", "memory_format", "device", "pin_memory"}) {
    EXPECT_TRUE(operand("aten::empty_like", "", argument, {}).is_none());
    EXPECT_TRUE(back("aten::empty_like", "", argument, {}).isNone());
  }
}

TEST_F(IValueTest, ConvertsScalars) {
  EXPECT_CONVERTS("aten::add", "Scalar", "other", true, true);
  EXPECT_CONVERTS("aten::add", "Scalar", "other", int64_t{3}, Size(3));
  EXPECT_CONVERTS("aten::add", "Scalar", "other", 2.5, 2.5);
  EXPECT_CONVERTS("aten::add", "Scalar", "other", c10::complex<double>(1, 2),
                  std::complex<double>(1, 2));
  EXPECT_CONVERTS("aten::dropout", "", "p", 0.5, 0.5);
  EXPECT_CONVERTS("aten::gelu", "", "approximate", "tanh", std::string("tanh"));
}

TEST_F(IValueTest, ConvertsSymbolicIntegersThatAreConstant) {
  EXPECT_EQ(operand("aten::select", "int", "index", c10::SymInt(3)), Operand(Size(3)));
  EXPECT_EQ(operand("aten::view", "", "size", std::vector<c10::SymInt>{2, 3}),
            Operand(Operand::Sizes{2, 3}));
}

TEST_F(IValueTest, ConvertsLists) {
  EXPECT_CONVERTS("aten::view", "", "size", (std::vector<int64_t>{2, -1}), (Operand::Sizes{2, -1}));
  EXPECT_CONVERTS("aten::view", "", "size", std::vector<int64_t>(), Operand::Sizes());
  EXPECT_CONVERTS("aten::upsample_nearest1d", "vec", "scale_factors",
                  (std::vector<double>{2.0, 1.5}), (std::vector<double>{2.0, 1.5}));
  EXPECT_CONVERTS("aten::convolution_backward", "", "output_mask",
                  c10::List<bool>({true, false, true}), (std::vector<bool>{true, false, true}));
}

TEST_F(IValueTest, ConvertsTensors) {
  at::Tensor one = at::ones({2});
  Operand result = operand("aten::sin", "", "self", one);
  EXPECT_EQ(result, Operand(ValueId{0}));
  EXPECT_TRUE(back("aten::sin", "", "self", result).toTensor().is_same(one));
  EXPECT_TRUE(operand("aten::sin", "", "self", at::Tensor()).is_none());
  EXPECT_TRUE(back("aten::sin", "", "self", {}).isTensor());
  EXPECT_FALSE(back("aten::sin", "", "self", {}).toTensor().defined());
  EXPECT_TRUE(back("aten::linear", "", "bias", {}).isNone());
}

TEST_F(IValueTest, ConvertsListsOfTensors) {
  at::Tensor one = at::ones({2});
  Operand list =
      operand("aten::cat", "", "tensors", c10::List<at::Tensor>({one, at::Tensor(), one}));
  EXPECT_EQ(list, Operand(Operand::Values{ValueId{0}, kNoValue, ValueId{1}}));
  auto tensors = back("aten::cat", "", "tensors", list).toTensorVector();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_TRUE(tensors[2].is_same(one));
  EXPECT_FALSE(tensors[1].defined());

  c10::List<std::optional<at::Tensor>> optional;
  optional.push_back(std::nullopt);
  optional.push_back(one);
  Operand indices = operand("aten::index", "Tensor", "indices", optional);
  EXPECT_EQ(indices, Operand(Operand::Values{kNoValue, ValueId{2}}));
  auto returned = back("aten::index", "Tensor", "indices", indices).toOptionalTensorVector();
  ASSERT_EQ(returned.size(), 2u);
  EXPECT_FALSE(returned[0].has_value());
  EXPECT_TRUE(returned[1]->is_same(one));
}

TEST_F(IValueTest, ConvertsWrappedNumbersWithoutAValue) {
  for (const at::Scalar& number : {at::Scalar(2.5), at::Scalar(3), at::Scalar(true)}) {
    at::Tensor wrapped = at::native::wrapped_scalar_tensor(number);
    Operand result = operand("aten::mul", "Tensor", "other", wrapped);
    EXPECT_EQ(result.get_if<ValueId>(), nullptr);
    at::Tensor returned = back("aten::mul", "Tensor", "other", result).toTensor();
    EXPECT_TRUE(returned.unsafeGetTensorImpl()->is_wrapped_number());
    EXPECT_EQ(returned.scalar_type(), wrapped.scalar_type());
    EXPECT_TRUE(at::equal(returned, wrapped));
  }
  // No Scalar has this dtype: as a number it would come back with another.
  at::Tensor odd = at::scalar_tensor(1.0, at::kFloat);
  odd.unsafeGetTensorImpl()->set_wrapped_number(true);
  EXPECT_EQ(operand("aten::mul", "Tensor", "other", odd), Operand(ValueId{0}));
}

TEST_F(IValueTest, KeepsGeneratorsInTheTable) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  Operand result = operand("aten::bernoulli", "", "generator", generator);
  EXPECT_EQ(result, Operand(GeneratorRef{0}));
  EXPECT_TRUE(back("aten::bernoulli", "", "generator", result).toGenerator() == generator);
  EXPECT_EQ(test::error_text<UserError>(
                [&] { back("aten::bernoulli", "", "generator", GeneratorRef{3}); }),
            "lower: generator 3 of graph g is not bound\n"
            "  remedy: call Graph::bind_generator on a graph that was parsed");
}

TEST_F(IValueTest, RunsOperatorsWithEveryKindOfList) {
  at::Tensor x = at::arange(4, at::kFloat);
  at::Tensor m = x.view({2, 2});
  at::Tensor i = torch::tensor({1, 0, 1}, at::kLong);
  auto run = [&](const std::string& line) {
    graph_ = parse(
        "graph g(%x: f32[4] user_input 0, %m: f32[2, 2] user_input 1, %i: i64[3] user_input 2) {\n "
        " " +
        line + "\n  return\n}");
    tensors_ = {x, m, i};
    const Node& node = graph_.node(NodeId{0});
    torch::jit::Stack stack;
    for (size_t i = 0; i < node.operands().size(); ++i) {
      stack.push_back(to_ivalue(graph_, node.operands()[i],
                                node.op().schema().arguments()[i].real_type(),
                                [&](ValueId id) { return tensors_[static_cast<size_t>(id)]; }));
    }
    node.op().callBoxed(stack);
    return stack[0];
  };
  EXPECT_TRUE(at::equal(run("%y: f32[2, 2] = aten.view(%x, [2, 2])").toTensor(), x.view({2, 2})));
  EXPECT_TRUE(at::equal(run("%y: f32[8] = aten.cat([%x, %x], 0)").toTensor(), at::cat({x, x})));
  EXPECT_TRUE(
      at::equal(run("[%y: f32[4]] = aten._foreach_add.ScalarList([%x], [1.5])").toTensorVector()[0],
                x + 1.5));
  EXPECT_TRUE(at::equal(
      run("[%y: f32[4]] = aten._foreach_add.ScalarList([%x], [2])").toTensorVector()[0], x + 2));
  EXPECT_TRUE(at::equal(run("%y: f32[2, 3] = aten.index.Tensor(%m, [none, %i])").toTensor(),
                        m.index_select(1, i)));
  EXPECT_TRUE(
      at::equal(run("%y: f64[4] = aten.sum.dim_IntList(%x, [], false, dtype=f64)").toTensor(),
                x.sum(at::kDouble)));
  EXPECT_TRUE(at::equal(run("%y: f32[4] = aten.mul.Tensor(%x, 2.5)").toTensor(), x * 2.5));
  EXPECT_EQ(run("%y: f32[4] = aten.mul.Tensor(%x, 2.5)").toTensor().scalar_type(), at::kFloat);
}

TEST_F(IValueTest, RefusesWhatAGraphCannotHold) {
  EXPECT_EQ(test::error_text<UnsupportedError>([&] { operand("aten::sin", "", "self", 3); }),
            "trace: an argument of type Tensor with a value of kind Int cannot be part of a graph");
  c10::List<at::Scalar> mixed({at::Scalar(1), at::Scalar(2.5)});
  EXPECT_EQ(test::error_text<UnsupportedError>(
                [&] { operand("aten::_foreach_add", "ScalarList", "scalars", mixed); }),
            "trace: an argument of type Scalar[] with a value of kind GenericList cannot be part "
            "of a graph");
  EXPECT_EQ(
      test::error_text<UnsupportedError>([&] { back("aten::select", "int", "index", ValueId{0}); }),
      "lower: a number that is computed at run time cannot be an integer yet");
}

}  // namespace
}  // namespace tandem::ir
