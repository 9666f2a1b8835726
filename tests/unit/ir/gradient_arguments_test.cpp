#include "ir/gradient_arguments.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::ir {
namespace {

TEST(GradientArguments, WhatIsPackedIsFoundAtItsPosition) {
  const GradientArguments<std::string> named{.arguments = {"x", "y"},
                                             .replaced = {},
                                             .histories = {"history"},
                                             .states = {"cpu", "own"},
                                             .tangents = {"tangent"}};
  const std::vector<std::string> all = pack(named);
  EXPECT_EQ(all, (std::vector<std::string>{"x", "y", "history", "cpu", "own", "tangent"}));
  GradientArguments<size_t> positions =
      unpack({.arguments = 2, .replaced = 0, .histories = 1, .states = 2, .tangents = 1});
  EXPECT_EQ(positions.arguments, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(positions.replaced.empty());
  EXPECT_EQ(all[positions.histories[0]], "history");
  EXPECT_EQ(all[positions.states[1]], "own");
  EXPECT_EQ(all[positions.tangents[0]], "tangent");
}

}  // namespace
}  // namespace tandem::ir
