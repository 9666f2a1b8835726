#include "tandem/ir/signature.h"

#include <gtest/gtest.h>

#include <sstream>

namespace tandem::ir {
namespace {

TypePtr type(std::vector<Size> sizes) {
  return std::make_shared<const TensorType>(
      TensorType::contiguous(c10::ScalarType::Float, std::move(sizes)));
}

TEST(Signature, PrintsATableOfInputsAndOutputs) {
  Signature signature;
  signature.training = true;
  signature.lifted_count = 2;
  signature.inputs = {
      {.role = Descriptor::param("fc.weight"),
       .type = type({4, 4}),
       .requires_grad = true,
       .requires_grad_after = true},
      {.role = Descriptor::buffer("mean"),
       .type = type({4}),
       .data_written = true,
       .version_delta = 2},
      {.role = Descriptor::user_input(0),
       .type = type({2, 4}),
       .requires_grad = false,
       .data_written = true,
       .history_changed = true,
       .histories = 2,
       .metadata_changed = true,
       .version_delta = 1,
       .requires_grad_after = true},
      {.role = Descriptor::user_input(1), .type = type({2, 4}), .duplicate_of = 2},
      {.role = Descriptor::user_input(2), .type = nullptr},
      {.role = Descriptor::user_input(3),
       .type = type({1}),
       .requires_grad = true,
       .is_leaf = false},
  };
  signature.outputs = {
      {.kind = OutputKind::Fresh, .type = type({2}), .requires_grad = true, .is_leaf = false},
      {.kind = OutputKind::IsInput, .type = type({2, 4}), .source = 2},
      {.kind = OutputKind::AliasOfInput, .type = type({8}), .source = 2},
      {.kind = OutputKind::SameAsOutput, .type = type({2}), .source = 0},
      {.kind = OutputKind::Undefined, .type = nullptr},
  };
  signature.tangents = {{.of = {CallTensor::output(0)}, .type = type({2}), .raises = "no"}};
  EXPECT_EQ(to_string(signature),
            R"(training: 6 inputs (2 lifted), 5 outputs, 1 tangent
  input 0   param "fc.weight"  f32[4, 4]  requires grad
  input 1   buffer "mean"      f32[4]     data written, version +2
  input 2   user_input 0       f32[2, 4]  data written, history changed, 2 histories, metadata changed, version +1, requires grad afterwards
  input 3   user_input 1       f32[2, 4]  same tensor as input 2
  input 4   user_input 2       undefined
  input 5   user_input 3       f32[1]     requires grad, not a leaf, no grad afterwards
  output 0  fresh              f32[2]     requires grad, tangent 0, raises in backward: no
  output 1  is input 2         f32[2, 4]
  output 2  view of input 2    f32[8]
  output 3  same as output 0   f32[2]
  output 4  undefined
)");
  std::ostringstream stream;
  stream << signature;
  EXPECT_EQ(stream.str(), to_string(signature));
}

TEST(Signature, PrintsGroupsAndBases) {
  Signature signature;
  signature.training = true;
  signature.inputs = {{.role = Descriptor::user_input(0), .type = type({4}), .group = 0},
                      {.role = Descriptor::user_input(1), .type = type({4}), .group = 0},
                      {.role = Descriptor::user_input(2),
                       .type = type({4}),
                       .storage = StorageChange::Replaced,
                       .set_to = 1}};
  signature.groups = {{.members = {0, 1},
                       .type = type({6}),
                       .is_root = true,
                       .requires_grad = true,
                       .is_leaf = false,
                       .history_changed = true}};
  signature.outputs = {{.kind = OutputKind::AliasOfBase, .type = type({2}), .source = 0},
                       {.kind = OutputKind::AliasOfGroup, .type = type({2}), .source = 0}};
  signature.bases = {{.type = type({2, 1}), .requires_grad = true}};
  signature.tangents = {{.of = {CallTensor::base(0)}, .type = type({2, 1})},
                        {.of = {CallTensor::group(0), 1}, .type = type({6}), .part = 1}};
  signature.grad_mode_after = false;
  EXPECT_EQ(to_string(signature),
            R"(training: 3 inputs (0 lifted), 2 outputs, 2 tangents
  input 0   user_input 0     f32[4]     in group 0
  input 1   user_input 1     f32[4]     in group 0
  input 2   user_input 2     f32[4]     memory of input 1 afterwards
  group 0   inputs 0, 1      f32[6]     requires grad, not a leaf, data written, history changed, tangent 1
  output 0  view of base 0   f32[2]
  output 1  view of group 0  f32[2]
  base 0    hidden           f32[2, 1]  requires grad, tangent 0
  leaves grad mode off
)");
}

TEST(Signature, CountsTheHistoriesOfATensor) {
  Signature signature;
  signature.inputs = {{.role = Descriptor::user_input(0),
                       .type = type({4}),
                       .histories = 3,
                       .type_after = type({2, 2})}};
  signature.groups = {{.members = {}, .type = type({6})},
                      {.members = {}, .type = type({6}), .history_changed = true}};
  const CallTensor input = CallTensor::input(0);
  EXPECT_EQ(signature.histories(input), 3);
  EXPECT_EQ(signature.histories(CallTensor::group(0)), 1);
  EXPECT_EQ(signature.histories(CallTensor::group(1)), 2);
  EXPECT_EQ(signature.last_history(input), (History{input, 2}));
  EXPECT_FALSE(signature.is_new_last({input, 1}));
  EXPECT_TRUE(signature.is_new_last({input, 2}));
  EXPECT_FALSE(signature.is_new_last({CallTensor::group(0), 0}));  // it came with its last one
  EXPECT_EQ(to_string(signature.type_of({input, 1})), "f32[4]");
  EXPECT_EQ(to_string(signature.type_of({input, 2})), "f32[2, 2]");
  EXPECT_EQ(to_string(History{input, 0}), "input 0");
  EXPECT_EQ(to_string(History{CallTensor::group(1), 1}), "group 1, history 1");
}

TEST(Signature, PrintsAnEmptyCall) {
  EXPECT_EQ(to_string(Signature()), "inference: 0 inputs (0 lifted), 0 outputs, 0 tangents\n");
}

TEST(Signature, KnowsWhetherACallWritesAnInput) {
  Signature signature;
  signature.inputs.resize(2);
  EXPECT_FALSE(signature.writes_any_input());
  signature.inputs[1].data_written = true;
  EXPECT_TRUE(signature.writes_any_input());
  signature.inputs[1].data_written = false;
  signature.inputs[1].metadata_changed = true;
  EXPECT_TRUE(signature.writes_any_input());
}

}  // namespace
}  // namespace tandem::ir
