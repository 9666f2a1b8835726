#include "base/seldom.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::base {
namespace {

TEST(Seldom, IsAsLargeAsAPointerAndEmptyUntilItIsMade) {
  Seldom<std::vector<int>> list;
  EXPECT_EQ(sizeof(list), sizeof(void*));
  EXPECT_TRUE(list->empty());
  list.make().push_back(3);
  list.make().push_back(4);
  EXPECT_EQ(*list, (std::vector<int>{3, 4}));
  list.reset();
  EXPECT_TRUE(list->empty());
}

// The empty one is shared: what one owner makes must not appear in another.
TEST(Seldom, HasAListOfItsOwn) {
  Seldom<std::vector<int>> one, other;
  one.make().push_back(3);
  EXPECT_TRUE(other->empty());
}

}  // namespace
}  // namespace tandem::base
