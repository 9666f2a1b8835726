#include "partition/tangents/asked.h"

#include <gtest/gtest.h>

namespace tandem::partition {
namespace {

using Flags = std::vector<bool>;

/// Two results, a shared formula, and two gradients, of which one needs the second result only:
///   tangent 0 -> 0 -> 2 -> 3 (gradient 0)
///   tangent 1 -> 1 -> 2,  1 -> 4 (gradient 1)
ir::Signature shared() {
  ir::Signature signature;
  signature.formulas = {{.tangents = {0}, .next = {2}},
                        {.tangents = {1}, .next = {2, 4}},
                        {.next = {3}},
                        {.gradients = {0}},
                        {.gradients = {1}}};
  return signature;
}

TEST(FormulasRun, WhatATangentLeadsTo) {
  EXPECT_EQ(formulas_run(shared(), {{true, false}}), (Flags{true, false, true, true, false}));
  EXPECT_EQ(formulas_run(shared(), {{true, true}}), Flags(5, true));
  EXPECT_EQ(formulas_run(shared(), {{false, false}}), Flags(5, false));
}

TEST(FormulasRun, OnlyWhatLeadsToAWantedGradient) {
  EXPECT_EQ(formulas_run(shared(), {{true, true}, {true, false}}),
            (Flags{true, true, true, true, false}));
  EXPECT_EQ(formulas_run(shared(), {{true, true}, {false, true}}),
            (Flags{false, true, false, false, true}));
  EXPECT_EQ(formulas_run(shared(), {{true, false}, {false, true}}), Flags(5, false));
}

TEST(FormulasRun, OfASignatureWithoutFormulasNone) {
  EXPECT_EQ(formulas_run({}, {{true}}), Flags{});
}

}  // namespace
}  // namespace tandem::partition
