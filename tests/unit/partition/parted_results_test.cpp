#include "partition/tangents/parted_results.h"

#include <gtest/gtest.h>

namespace tandem::partition {
namespace {

using ir::CallTensor;
using Nodes = std::vector<std::vector<size_t>>;

/// Results 0 and 1, each by a formula of its own from inputs 0 and 1.
ir::Signature two_results(bool are_leaves) {
  ir::Signature signature;
  for (int64_t i = 0; i < 2; ++i) {
    ir::InputFacts input;
    input.requires_grad = true;
    input.is_leaf = are_leaves;
    signature.inputs.push_back(input);
    ir::TangentFacts tangent;
    tangent.of = {CallTensor::output(i)};
    signature.tangents.push_back(tangent);
    ir::GradientFacts gradient;
    gradient.of = {CallTensor::input(i)};
    signature.gradients.push_back(gradient);
    signature.formulas.push_back({.tangents = {i}, .gradients = {i}});
  }
  return signature;
}

TEST(PartedResults, WithoutACommonInputHaveNodesOfTheirOwn) {
  const PartedResults found = parted_results(two_results(/*are_leaves=*/false));
  EXPECT_EQ(found.tangents, (Nodes{{0}, {1}}));
  EXPECT_EQ(found.node_of_gradient, (std::vector<size_t>{0, 1}));
}

// What gets an undefined gradient there does nothing.
TEST(PartedResults, OfLeavesStayTogether) {
  EXPECT_EQ(parted_results(two_results(/*are_leaves=*/true)).tangents, (Nodes{{0, 1}}));
}

TEST(PartedResults, WithACommonInputStayTogether) {
  ir::Signature signature = two_results(/*are_leaves=*/false);
  signature.formulas[1].next = {0};
  EXPECT_EQ(parted_results(signature).tangents, (Nodes{{0, 1}}));
}

// Two histories of one tensor, and tensors on one memory, are made by one another.
TEST(PartedResults, OfMembersOfAGroupStayTogether) {
  ir::Signature signature = two_results(/*are_leaves=*/false);
  for (ir::InputFacts& input : signature.inputs) input.group = 0;
  signature.groups.push_back({.members = {0, 1}, .type = {}});
  EXPECT_EQ(parted_results(signature).tangents, (Nodes{{0, 1}}));
}

// In one node they happen in eager's order.
TEST(PartedResults, WithDrawsInTheBackwardStayTogether) {
  ir::Signature signature = two_results(/*are_leaves=*/false);
  signature.effects.push_back({.formula = 1});
  EXPECT_EQ(parted_results(signature).tangents, (Nodes{{0, 1}}));
}

// Part 1 belongs to a rewritten input, whose node is another one anyway.
TEST(PartedResults, LeaveOtherPartsAlone) {
  ir::Signature signature = two_results(/*are_leaves=*/false);
  signature.tangents[1].part = signature.gradients[1].part = signature.formulas[1].part = 1;
  const PartedResults found = parted_results(signature);
  EXPECT_EQ(found.tangents, (Nodes{{0}}));
  EXPECT_EQ(found.node_of_gradient, (std::vector<size_t>{0, 0}));
}

TEST(PartedResults, WhoseWayIsNotKnownStayTogether) {
  ir::Signature signature = two_results(/*are_leaves=*/false);
  signature.formulas.clear();
  EXPECT_EQ(parted_results(signature).tangents, (Nodes{{0, 1}}));
}

}  // namespace
}  // namespace tandem::partition
