#include "base/error.h"

#include <gtest/gtest.h>

namespace tandem::base {
namespace {

TEST(ErrorDetails, TheNewLineComesFirstAndInOneColumnWithTheOthers) {
  const UserError error("trace", "no\n  operands: f32[]\n  remedy:   another way");
  const UserError located = with_detail(error, "at", "net.cpp:41");
  EXPECT_STREQ(located.what(),
               "trace: no\n  at:       net.cpp:41\n  operands: f32[]\n  remedy:   another way");
  EXPECT_EQ(located.stage(), "trace");
}

TEST(ErrorDetails, AnErrorWithoutDetailsGetsItsFirst) {
  EXPECT_EQ(with_detail(std::string("no"), "at", "net.cpp:41"), "no\n  at: net.cpp:41");
}

TEST(ErrorDetails, NothingIsAddedForNothing) {
  EXPECT_EQ(with_detail(std::string("no\n  remedy: yes"), "at", ""), "no\n  remedy: yes");
  EXPECT_EQ(detail_line("at", ""), "");
}

}  // namespace
}  // namespace tandem::base
