#include "partition/tangents/tangent_use.h"

#include "tandem/ir/text.h"

#include <gtest/gtest.h>

namespace tandem::partition {
namespace {

using Flags = std::vector<bool>;

TEST(TangentUse, FormulasOfTheirOwnShareNothing) {
  const TangentUse use = tangent_use(ir::parse(R"(
    graph g.backward(%s: f32[4] saved 0, %t: f32[4] saved 1, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      backward:
      %a: f32[4] = aten.mul.Tensor(%d0, %s)
      %cos: f32[4] = aten.cos(%s)
      %b: f32[4] = aten.mul.Tensor(%d1, %cos)
      %c: f32[4] = aten.mul.Tensor(%d1, %t)
      %sum: f32[4] = aten.add.Tensor(%a, %b, alpha=1)
      return %sum: grad 0, %c: grad 1
    })"));
  EXPECT_EQ(use.readers, (std::vector<Flags>{{true, true}, {false, true}}));
}

// The sum reads nothing saved; the formula behind it does, for both.
TEST(TangentUse, FormulaBehindASumIsShared) {
  const TangentUse use = tangent_use(ir::parse(R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1, %d2: f32[4] tangent 2) {
      backward:
      %sum: f32[4] = aten.add.Tensor(%d0, %d1, alpha=1)
      %a: f32[4] = aten.mul.Tensor(%sum, %s)
      %b: f32[4] = aten.neg(%d2)
      return %a: grad 0, %b: grad 1
    })"));
  EXPECT_EQ(use.readers, (std::vector<Flags>{{true, true, false}}));
}

TEST(TangentUse, GradientWithoutATangentIsReadForAllOfThem) {
  const TangentUse use = tangent_use(ir::parse(R"(
    graph g.backward(%s: f32[4] saved 0, %d0: f32[4] tangent 0, %d1: f32[4] tangent 1) {
      return %s: grad 0
    })"));
  EXPECT_EQ(use.readers, (std::vector<Flags>{{true, true}}));
}

}  // namespace
}  // namespace tandem::partition
