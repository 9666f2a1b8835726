#include "partition/keeping.h"

#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace tandem::partition {
namespace {

using As = KeptPrimal::As;

ir::Graph joint() {
  return ir::parse(R"(
    graph g.joint(%w: f32[4] param "w", %x: f32[4] user_input 0, %y: f32[4] user_input 1,
                  %t: f32[4] tangent 0) {
      %p: f32[4] = aten.mul.Tensor(%x, %w)
      %r: f32[4] = aten.add.Tensor(%p, %y, alpha=1)
      backward:
      %g: f32[4] = aten.mul.Tensor(%t, %x)
      return %r: output 0, %g: grad 0 "w"
    })");
}

ir::Signature signature_of(const ir::Graph& graph) {
  ir::Signature signature;
  signature.lifted_count = 1;
  for (size_t i = 0; i < 3; ++i) {
    const ir::ValueId input = graph.inputs()[i];
    signature.inputs.push_back(
        {.role = graph.input_role(input), .type = graph.value(input).tensor_type()});
  }
  return signature;
}

std::vector<As> kept(const ir::Signature& signature) {
  std::vector<As> all;
  for (const KeptPrimal& one : kept_primals(joint(), signature)) all.push_back(one.as);
  return all;
}

TEST(KeptPrimals, AreHeldWhereTheCallLeavesThemAlone) {
  EXPECT_EQ(kept(signature_of(joint())), (std::vector{As::Lifted, As::Held, As::Unread}));
}

TEST(KeptPrimals, AreCopiedWhereTheCallWritesWhatAGradientReads) {
  ir::Signature signature = signature_of(joint());
  signature.inputs[1].data_written = true;
  signature.inputs[2].data_written = true;
  EXPECT_EQ(kept(signature), (std::vector{As::Lifted, As::Copied, As::Unread}));
}

// The data is still there: a handle in the old shape is enough.
TEST(KeptPrimals, AreNotCopiedWhereTheCallOnlyReshapesThem) {
  ir::Signature signature = signature_of(joint());
  signature.inputs[1].metadata_changed = true;
  EXPECT_EQ(kept(signature)[1], As::Reshaped);
  signature.inputs[1].storage = ir::StorageChange::Replaced;
  EXPECT_EQ(kept(signature)[1], As::Copied);
}

// How members lie in their memory decides what the function does, read or not.
TEST(KeptPrimals, AreCopiedTogetherInAGroup) {
  ir::Signature signature = signature_of(joint());
  signature.groups.push_back({.members = {1, 2}, .type = signature.inputs[1].type});
  signature.inputs[1].group = signature.inputs[2].group = 0;
  EXPECT_EQ(kept(signature), (std::vector{As::Lifted, As::Held, As::Held}));
  signature.inputs[2].data_written = true;
  EXPECT_EQ(kept(signature), (std::vector{As::Lifted, As::InGroup, As::InGroup}));
}

}  // namespace
}  // namespace tandem::partition
