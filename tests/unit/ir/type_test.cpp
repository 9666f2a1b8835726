#include "tandem/ir/type.h"

#include "ir/tensor_data.h"
#include "support/error_text.h"
#include "tandem/error.h"
#include "tandem/ir/operand.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace tandem::ir {
namespace {

// libtorch is the judge, empty and one-element dimensions included.
TEST(TensorType, HasTheStridesOfLibtorch) {
  for (std::vector<int64_t> sizes : std::vector<std::vector<int64_t>>{
           {}, {3}, {2, 3}, {2, 0, 3}, {0, 3}, {2, 1, 3}, {0}, {4, 3, 2, 0}}) {
    at::Tensor tensor = at::empty(sizes);
    TensorType type = TensorType::contiguous(at::kFloat, {sizes.begin(), sizes.end()});
    EXPECT_EQ(type, type_of(tensor)) << tensor.sizes();
    EXPECT_EQ(type.numel().value(), tensor.numel());
    EXPECT_EQ(type.bytes(), static_cast<int64_t>(tensor.nbytes()));
    EXPECT_TRUE(type.is_contiguous());
  }
}

TEST(TensorType, IsContiguousWhereLibtorchSaysSo) {
  at::Tensor base = at::empty({2, 3, 4});
  for (const at::Tensor& tensor :
       {base, base.transpose(0, 1).transpose(0, 1), base.transpose(0, 1), base.slice(2, 0, 2),
        base.slice(0, 0, 1), base.select(1, 0), base.slice(1, 0, 1), base.slice(2, 0, 0),
        base.narrow(0, 1, 1), base.expand({2, 3, 4}), at::empty({1}).expand({3}),
        base.select(2, 1)}) {
    EXPECT_EQ(type_of(tensor).is_contiguous(), tensor.is_contiguous())
        << tensor.sizes() << tensor.strides();
  }
}

TEST(TensorType, TakesSymbols) {
  Size s0 = Size::symbol("s0");
  TensorType type = TensorType::contiguous(at::kFloat, {s0, 4, s0 + 1});
  EXPECT_EQ(to_string(type), "f32[s0, 4, s0 + 1]");
  EXPECT_EQ(type.strides[0], 4 * s0 + 4);
  EXPECT_EQ(type.numel(), 4 * s0 * s0 + 4 * s0);
  EXPECT_FALSE(type.is_static());
  EXPECT_TRUE(type.is_contiguous());
  EXPECT_THROW(type.bytes(), InternalError);
  EXPECT_THROW(type.static_sizes(), InternalError);
}

TEST(TensorType, DiffersAndHashesByEveryPart) {
  TensorType type = TensorType::contiguous(at::kFloat, {2, 3});
  std::vector<TensorType> others(5, type);
  others[0].dtype = at::kDouble;
  others[1].device = c10::Device("cuda:0");
  others[2].layout = c10::Layout::Sparse;
  others[3].sizes = {3, 2};
  others[4].strides = {1, 2};
  EXPECT_EQ(type.hash(), TensorType(type).hash());
  for (const TensorType& other : others) {
    EXPECT_FALSE(type == other) << to_string(other);
    EXPECT_NE(type.hash(), other.hash()) << to_string(other);
  }
}

TEST(Type, ComparesByContent) {
  EXPECT_EQ(Type(TensorType::contiguous(at::kFloat, {2})),
            Type(TensorType::contiguous(at::kFloat, {2})));
  EXPECT_FALSE(Type(TensorType::contiguous(at::kFloat, {2})) == Type::of(TypeKind::Int));
  EXPECT_EQ(to_string(Type::of(TypeKind::Float)), "float");
  EXPECT_EQ(to_string(Type()), "untyped");
}

TEST(Dtype, NamesTheLegalOnes) {
  std::string text = test::error_text<UserError>([] { parse_dtype("float"); });
  EXPECT_TRUE(text.starts_with("parse: expected a dtype (f32, f64, f16, ")) << text;
  EXPECT_TRUE(text.ends_with("), got 'float'")) << text;
}

TEST(Operand, ComparesBits) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Operand(nan), Operand(nan));
  EXPECT_FALSE(Operand(0.0) == Operand(-0.0)) << "1 / x tells them apart";
  EXPECT_EQ(Operand(std::vector<double>{nan}), Operand(std::vector<double>{nan}));
  EXPECT_FALSE(Operand(std::vector<double>{0.0}) == Operand(std::vector<double>{-0.0}));
  EXPECT_FALSE(Operand(std::complex<double>(0.0, 0.0)) == Operand(std::complex<double>(0.0, -0.0)));
  EXPECT_FALSE(Operand(1) == Operand(true));
  EXPECT_FALSE(Operand(1) == Operand(1.0));
}

TEST(Operand, LeavesAbsentValuesOut) {
  int count = 0;
  auto counted = [&](ValueId) { ++count; };
  Operand(Operand::Values{ValueId{1}, kNoValue, ValueId{1}}).for_each_value(counted);
  Operand(kNoValue).for_each_value(counted);
  Operand(ValueId{4}).for_each_value(counted);
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace tandem::ir
